//! Others write to the same status.

use super::*;

/// virtual-kubelet#899: the node lifecycle controller has marked the pod as not ready.
#[tokio::test(start_paused = true)]
async fn foreign_changes_to_our_fields_are_reverted() {
    let (server, agent) = started(&["a"]);
    let ready =
        json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    agent.outbox.submit(says("a", ready.clone()));
    agent.delivered("a").await;
    let theirs = json!({ "phase": "Running", "conditions": [
        { "type": "Ready", "status": "False", "reason": "NodeNotReady" },
        { "type": "example.com/theirs", "status": "True" }] });
    agent.outbox.api_saw(&put(&server, "a", theirs));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let status = there(&server, "a").status.clone().unwrap();
    let conditions = status.conditions.unwrap();
    assert_eq!((conditions[0].status.as_str(), conditions[0].reason.as_deref()), ("True", None));
    assert_eq!(conditions.len(), 2, "theirs stays");
    assert_eq!(agent.outbox.stats().reasserted, 1);
}

#[tokio::test(start_paused = true)]
async fn our_own_write_in_the_watch_is_no_change() {
    let (server, agent) = started(&["a"]);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    let tries = server.requests().len();
    agent.outbox.api_saw(&there(&server, "a"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.requests().len(), tries);
}

#[tokio::test(start_paused = true)]
async fn an_event_from_before_our_write_does_not_undo_what_is_known() {
    let server = with(&["a"]);
    let old = there(&server, "a");
    let agent = Agent::start(&server, None);
    agent.outbox.api_saw(&old);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    agent.outbox.api_saw(&old);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(patched(&server).len(), 1);
}

/// etcd was restored from a backup: a list and the answers to patches have lower versions than before.
#[tokio::test(start_paused = true)]
async fn a_server_whose_versions_went_back_is_believed() {
    let server = with(&["a"]);
    let (backup, version) = (there(&server, "a"), server.version());
    let agent = Agent::start(&server, None);
    let say = async |messages: std::ops::Range<u8>| {
        for message in messages {
            let said = json!({ "phase": "Running", "message": message.to_string() });
            agent.outbox.submit(says("a", said));
            agent.delivered("a").await;
        }
    };
    say(0..9).await;
    server.restore(version);
    agent.outbox.listing();
    agent.outbox.api_saw(&backup);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(phase(&server, "a"), "Running", "after a list");

    say(10..19).await;
    server.restore(version);
    say(20..21).await;
    agent.outbox.api_saw(&put(&server, "a", json!({ "phase": "Pending" })));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(phase(&server, "a"), "Running", "after an answer");
}

#[tokio::test(start_paused = true)]
async fn a_fight_over_a_field_becomes_ever_slower() {
    let (server, agent) = started(&["a"]);
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "ours" })));
    agent.delivered("a").await;
    for _ in 0..3600 {
        agent.outbox.api_saw(&put(
            &server,
            "a",
            json!({ "phase": "Running", "message": "theirs" }),
        ));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let written = patched(&server).len();
    assert!((8..40).contains(&written), "{written} times in an hour");
}

/// As the kubelet does: HandlePodReconcile, pkg/kubelet/kubelet.go.
#[tokio::test(start_paused = true)]
async fn ready_follows_a_readiness_gate_however_often_that_changes() {
    let server = ApiServer::in_memory().unwrap();
    let put =
        |gate: bool| {
            let status = if gate { "True" } else { "False" };
            let before = server.get(&path("a")).map(|pod| pod["status"]["conditions"].clone());
            let ready = before
                .and_then(|all| all.as_array()?.iter().find(|c| c["type"] == "Ready").cloned());
            let conditions = ready.into_iter().chain([json!({ "type": "gate", "status": status })]);
            to_pod(&server.apply(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "uid": "a" },
            "spec": { "nodeName": "n1", "containers": [{ "name": "main" }],
                "readinessGates": [{ "conditionType": "gate" }] },
            "status": { "phase": "Running", "conditions": conditions.collect::<Vec<_>>() },
        })).unwrap())
        };
    put(true);
    let agent = Agent::start(&server, None);
    let ready =
        json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    agent.outbox.submit(says("a", ready));
    agent.delivered("a").await;
    for round in 0..20 {
        let gate = round % 2 == 1;
        agent.outbox.api_saw(&put(gate));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let conditions = there(&server, "a").status.clone().unwrap().conditions.unwrap();
        let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!(ready.status == "True", gate, "change {round}");
    }
    assert_eq!(agent.outbox.stats().reasserted, 0, "there is no dispute");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_take_over_is_not_sent_for_ever() {
    let server = with(&["a"]);
    server.fault(Fault::on("patch", "pods/status").ignore());
    let agent = Agent::start(&server, None);
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "m" })));
    agent.delivered("a").await;
    let written = patched(&server).len();
    assert!(written <= 2, "once more, in case the first was made of what was out of date");
    for _ in 0..100 {
        let status = serde_json::to_value(there(&server, "a").status.clone()).unwrap();
        agent.outbox.api_saw(&put(&server, "a", status));
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(patched(&server).len(), written);
}

/// Kubernetes 1.28 knows no `hostIPs`.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_a_field_gets_each_status_once() {
    let server = with(&["a"]);
    server.fault(Fault::on("patch", "pods/status").harm(Harm::Lack("hostIPs".to_owned())));
    let agent = Agent::start(&server, None);
    for message in ["1", "2", "3"] {
        let said = json!({ "phase": "Running", "message": message, "hostIP": "192.0.2.1",
            "hostIPs": [{ "ip": "192.0.2.1" }] });
        agent.outbox.submit(says("a", said));
        agent.delivered("a").await;
        let seen = there(&server, "a").status.clone().unwrap().message;
        assert_eq!(seen.as_deref(), Some(message));
    }
    assert_eq!(
        patched(&server).len(),
        4,
        "the first one twice, in case it was made of what was out of date"
    );
}

/// virtual-kubelet: TestUpdatePodStatusUsesKubernetesResourceVersion. No version goes with a patch, so that what
/// another client wrote in between neither fails it nor is undone by it.
#[tokio::test(start_paused = true)]
async fn a_write_in_between_neither_fails_the_status_nor_is_undone() {
    let (server, agent) = started(&["a"]);
    agent.outbox.api_saw(&there(&server, "a"));
    server.patch(&path("a"), &json!({ "metadata": { "labels": { "by": "them" } } })).unwrap();
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Running");
    assert_eq!(server.get(&path("a")).unwrap()["metadata"]["labels"]["by"], "them");
    assert_eq!(server.count("patch", "pods/status"), 1, "at the first attempt");
}

/// virtual-kubelet: TestPodStatusDelete.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_container_is_written_to_a_pod_that_is_being_deleted() {
    let server = with(&["a"]);
    put(&server, "a", json!({ "phase": "Running" }));
    server.delete(&path("a"), Some(30)).unwrap();
    let agent = Agent::start(&server, None);
    agent.outbox.api_saw(&there(&server, "a"));
    let exit = json!({ "name": "main", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
        "state": { "terminated": { "exitCode": 0 } } });
    let said = json!({ "phase": "Failed", "containerStatuses": [exit] });
    agent.outbox.submit(StatusUpdate { last: true, ..says("a", said) });
    agent.delivered("a").await;
    let there = server.get(&path("a")).unwrap();
    let state = &there["status"]["containerStatuses"][0]["state"];
    assert_eq!(
        (&there["status"]["phase"], &state["terminated"]["exitCode"]),
        (&json!("Failed"), &json!(0))
    );
    assert!(there["metadata"]["deletionTimestamp"].is_string(), "it is deleted by others");
}

/// A pod that others have failed while its containers still run here.
#[tokio::test(start_paused = true)]
async fn what_others_have_failed_stays_failed() {
    let server = with(&[]);
    let seen = put(&server, "a", json!({ "phase": "Failed", "reason": "NodeLost" }));
    let agent = Agent::start(&server, None);
    agent.outbox.api_saw(&seen);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Failed");
    assert!(patched(&server).is_empty());
}
