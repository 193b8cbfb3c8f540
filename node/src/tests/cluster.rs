//! Tests of a whole node in a cluster: in-memory containers, a scripted login manager, an API server over TLS.

mod machine;

use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::Fault;
use winddown_shared::{GateReason, LockState, MachineState, PodUid};
use winddown_shutdown::Outcome;

use machine::Machine;
use winddown_control::api::{ApiState, DrainEvent, DrainRequest, PodState, PodStatus};
use winddown_control::{ActApi, StatusApi};

const LONG: Duration = Duration::from_secs(60);
const NODE: &str = "nodes/n1";

fn pod_path(name: &str) -> String {
    format!("pods/default/{name}")
}

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

fn is_unready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "False"
}

/// Waits until `is` is true.
async fn until(what: &str, is: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + LONG;
    while !is() {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_run_here_has_failed_in_the_api_and_a_changed_one_is_not_started_anew() {
    let m = Machine::new().await;
    let agent = m.agent().await;
    let web = m.bind("web");
    m.until_phase("web", "Running").await;
    m.server.patch(&pod_path("web"), &json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    let wanted = &agent.node.0.core.wanted;
    until("the label", || {
        let wanted = wanted.borrow().clone().unwrap();
        let given = wanted.pods.iter().find(|pod| *pod.uid() == web).unwrap();
        given.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("a"))
    })
    .await;
    assert_eq!(m.starts(&web), 1);
    // The node is drained: pods are refused.
    agent.node.0.core.gate.shut(GateReason::Drain);
    m.bind("late");
    m.until_phase("late", "Failed").await;
    let late = m.server.get(&pod_path("late")).unwrap();
    assert_eq!(late["status"]["reason"], "NodeShutdown");
    agent.node.0.core.gate.lift(GateReason::Drain);
    m.bind("later");
    m.until_phase("later", "Running").await;
    let late = m.server.get(&pod_path("late")).unwrap();
    assert_eq!(late["status"]["phase"], "Failed", "it is never run after that");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_the_apis_pods_says_that_no_disruption_budget_is_asked() {
    let m = Machine::new().await;
    let agent = m.agent().await;
    let warnings = async || {
        let mut events = agent.node.drain(DrainRequest::default()).await.unwrap();
        let mut warnings = Vec::new();
        while let Some(event) = events.recv().await {
            warnings.extend(match event {
                DrainEvent::Warning { message } => Some(message),
                _ => None,
            });
        }
        warnings
    };
    assert_eq!(warnings().await, Vec::<String>::new(), "there are no pods");
    assert!(agent.node.withdraw_notice().await.opened);
    m.bind("web");
    m.until_phase("web", "Running").await;
    let [warning] = &warnings().await[..] else { panic!("one warning") };
    assert!(warning.contains("budgets are not asked") && warning.contains("with kubectl"));
    agent.stop().await;
}

/// Its volumes would have been attached elsewhere while the node is up, and nodes that go down after it would not have waited.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_whose_shutdown_is_cancelled_does_not_look_as_if_it_had_gone_down() {
    const CLEAN: &str = "winddown.dev/CleanShutdown";
    let m = Machine::new().await;
    let agent = m.agent().await;
    m.until_node("is up", |node| condition(node, CLEAN)["status"] == "False").await;
    let mut events = agent.node.drain(DrainRequest::default()).await.unwrap();
    while events.recv().await.is_some() {}
    agent.go_down().await;
    m.until_node("has gone down", |node| is_true(node, CLEAN)).await;
    agent.login.cancel();
    m.until_node("is up again", |node| condition(node, CLEAN)["status"] == "False").await;
    assert!(agent.node.0.core.gate.is_shut(), "it is still drained");
    agent.stop().await;
}

/// Until the next agent came, a node said that its shutdown waits for the pods.
#[tokio::test(flavor = "multi_thread")]
async fn the_conditions_of_a_node_whose_agent_is_stopped_promise_nothing() {
    const OURS: [&str; 3] =
        ["winddown.dev/CleanShutdown", "winddown.dev/Unprotected", "winddown.dev/ShutdownHeld"];
    let m = Machine::new().await;
    for is_away in [false, true] {
        let agent = m.agent().await;
        let all_are = |node: &Value, status: &str| {
            OURS.iter().all(|kind| condition(node, kind)["status"] == status)
        };
        m.until_node("is up", |node| all_are(node, "False")).await;
        if is_away {
            m.server.fault(Fault::on("*", "*").delay(LONG));
        }
        let begun = tokio::time::Instant::now();
        agent.stop().await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let node = m.server.get(NODE).unwrap();
        assert!(all_are(&node, if is_away { "False" } else { "Unknown" }), "{node:#}");
        let said = condition(&node, OURS[1]);
        assert!(is_away || said["reason"] == "AgentStopped", "{said:#}");
    }
}

/// The kernel, and with it the boot's id, is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_terminated_before_a_soft_reboot_leaves_the_api_after_it_and_not_before() {
    let mut m = Machine::new().await;
    let agent = m.agent().await;
    m.bind("web");
    m.until_phase("web", "Running").await;
    agent.go_down().await;
    m.until_phase("web", "Failed").await;
    agent.stop().await;
    let agent = m.agent().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(m.server.get(&pod_path("web")).is_some());
    agent.stop().await;
    m.system_start = Duration::from_secs(900);
    let agent = m.agent().await;
    until("removed", || m.server.get(&pod_path("web")).is_none()).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_restarted_while_the_api_is_away_looks_after_the_same_pods() {
    let m = Machine::new().await;
    let first = m.agent().await;
    let (web, gone) = (m.bind("web"), m.bind("gone"));
    m.until_phase("web", "Running").await;
    m.until_phase("gone", "Running").await;
    first.stop().await;
    m.server.delete(&pod_path("gone"), Some(1)).unwrap();
    m.server.remove(&pod_path("gone"));
    m.server.cut_off().await.unwrap();
    let second = m.agent().await;
    until("both are known", || second.node.workers().snapshot().len() == 2).await;
    let api = || StatusApi::status(&second.node).cluster.unwrap().api.state;
    until("the API has not answered", || api() == ApiState::Unreachable).await;
    assert!(m.runtime.runs(&web) && m.runtime.runs(&gone), "no answer is no proof of anything");
    m.server.come_back().await.unwrap();
    until("ended", || m.runtime.stops() == [gone.clone()]).await;
    m.until_pod("web", "stays ready", |pod| is_true(pod, "Ready")).await;
    assert_eq!((m.starts(&web), m.starts(&gone)), (1, 1));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_read_the_record_of_a_running_pod_leaves_the_pod_its_volumes() {
    let m = Machine::new().await;
    let first = m.agent().await;
    let (web, orphan) = (m.bind("web"), m.bind("orphan"));
    m.until_phase("web", "Running").await;
    m.until_phase("orphan", "Running").await;
    first.stop().await;
    for uid in [&web, &orphan] {
        m.lose_record(uid);
    }
    let volumes = [&web, &orphan, &PodUid::new("uid-gone")].map(|uid| m.make_volume(uid));
    m.runtime.stop_takes(&orphan, 60 * LONG);
    m.server.delete(&pod_path("orphan"), Some(1)).unwrap();
    m.server.remove(&pod_path("orphan"));
    m.server.cut_off().await.unwrap();
    let second = m.agent().await;
    let api = || StatusApi::status(&second.node).cluster.unwrap().api.state;
    until("the API has not answered", || api() == ApiState::Unreachable).await;
    assert_eq!(volumes.each_ref().map(|volume| volume.exists()), [true; 3], "nothing is known yet");
    m.server.come_back().await.unwrap();
    until("the volumes of a pod that is gone are removed", || !volumes[2].exists()).await;
    assert_eq!(volumes.each_ref().map(|volume| volume.exists()), [true, true, false]);
    m.runtime.exit(&orphan, 0);
    until("the volumes go with the last of its containers", || !volumes[1].exists()).await;
    assert!(volumes[0].exists());
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_the_address_that_its_machine_gets_later_and_keeps_it_while_there_is_none() {
    let m = Machine::new().await;
    let first = m.agent().await;
    m.until_node("is ready", |node| is_true(node, "Ready")).await;
    let addresses = || m.server.get(NODE).unwrap()["status"]["addresses"].clone();
    assert_eq!(addresses(), Value::Null);
    m.settings.send_modify(|now| now.status_update_frequency = Duration::from_millis(50));
    let reads = m.addresses.lock().1;
    until("they are read again and again", || m.addresses.lock().1 > reads + 2).await;
    m.addresses.lock().0 = vec!["192.0.2.7".parse().unwrap()];
    let both = json!([
        {"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "n1"}
    ]);
    m.until_node("has both addresses", |node| node["status"]["addresses"] == both).await;
    assert_eq!(*m.names.borrow(), ["192.0.2.7", "n1"], "its certificate is for these");
    first.stop().await;
    m.addresses.lock().0.clear();
    m.server.forget_requests();
    let second = m.agent().await;
    until("the status is written", || m.server.count("patch", "nodes/status") > 0).await;
    assert_eq!(addresses(), both);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_pod_whose_record_is_lost_is_not_declared_dead_and_leaves_the_api_after_its_end()
{
    let m = Machine::new().await;
    let first = m.agent().await;
    let (once, going) = (m.bind_with("once", &json!({"restartPolicy": "Never"})), m.bind("going"));
    m.until_phase("once", "Running").await;
    m.until_phase("going", "Running").await;
    first.stop().await;
    m.lose_record(&once);
    m.lose_record(&going);
    m.server.delete(&pod_path("going"), Some(5)).unwrap();
    let second = m.agent().await;
    until("it is gone", || m.server.get(&pod_path("going")).is_none()).await;
    assert!(m.runtime.stops().contains(&going), "it was asked to terminate before that");
    let wanted = &second.node.0.core.wanted;
    until("the other one is looked after", || {
        let wanted = wanted.borrow().clone();
        wanted.is_some_and(|wanted| wanted.pods.iter().any(|pod| *pod.uid() == once))
    })
    .await;
    assert_eq!(m.server.get(&pod_path("once")).unwrap()["status"]["phase"], "Running");
    assert_eq!(m.starts(&once), 1);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_refused_by_labels_of_the_node_that_were_not_read_or_are_old() {
    let mut m = Machine::new().await;
    m.has_labels = true;
    let node = |disk: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"disk": disk}}});
    m.server.apply(node("ssd")).unwrap();
    let unread = ["get", "list"].map(|verb| m.server.fault(Fault::on(verb, "nodes").status(503)));
    let on = |disk: &str| json!({"nodeSelector": {"disk": disk}});
    m.bind_with("early", &on("ssd"));
    let agent = m.agent().await;
    m.until_pod("early", "says why it waits", |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|why| why.contains("was not read"))
    })
    .await;
    unread.into_iter().for_each(|fault| m.server.lift(fault));
    m.until_phase("early", "Running").await;
    // The watch is broken, and another client changes the label.
    let unseen = m.server.fault(Fault::on("list|watch", "nodes").status(503));
    m.server.drop_watches("nodes");
    m.server.patch(NODE, &json!({"metadata": {"labels": {"disk": "nvme"}}})).unwrap();
    m.bind_with("late", &on("nvme"));
    m.until_phase("late", "Running").await;
    m.bind_with("other", &on("ssd"));
    m.until_phase("other", "Failed").await;
    m.server.lift(unseen);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_or_written_for_a_pod_that_does_not_fit_and_it_is_refused_as_any_other() {
    let mut m = Machine::new().await;
    m.has_labels = true;
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "default"}, "data": {"k": "eA=="}});
    m.server.apply(secret).unwrap();
    let agent = m.agent().await;
    let refers = |cpu: &str| {
        json!({
            "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
            "containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": cpu}}}],
        })
    };
    m.bind_with("fits", &refers("1"));
    m.until_phase("fits", "Running").await;
    let reads = m.server.count("get", "secrets");
    assert!(reads > 0);
    let large = m.bind_with("large", &refers("64"));
    m.until_phase("large", "Failed").await;
    let (mut plain, status) = (refers("64"), |name: &str| {
        let said = m.server.get(&pod_path(name)).unwrap()["status"].clone();
        [said["reason"].clone(), said["message"].clone()]
    });
    plain["volumes"] = json!([]);
    m.bind_with("plain", &plain);
    m.until_phase("plain", "Failed").await;
    assert_eq!(status("large")[0], "OutOfcpu");
    assert_eq!(status("large"), status("plain"));
    assert_eq!(m.server.count("get", "secrets"), reads, "nothing was read for it");
    agent.node.0.core.gate.shut(GateReason::Drain);
    m.bind_with("late", &refers("0"));
    m.until_phase("late", "Failed").await;
    assert_eq!(status("late")[0], "NodeShutdown");
    assert_eq!(m.server.count("get", "secrets"), reads, "nor while pods are refused");
    assert_eq!(m.starts(&large), 0);
    agent.stop().await;
}

/// A container that requests so many CPUs.
fn asks(cpu: &str) -> Value {
    json!({"containers": [{"name": "main", "image": "none",
        "resources": {"requests": {"cpu": cpu}}}]})
}

/// The same, and the pod refers to a Secret that there is not.
fn waits(cpu: &str) -> Value {
    let mut spec = asks(cpu);
    spec["volumes"] = json!([{"name": "late", "secret": {"secretName": "late"}}]);
    spec
}

fn waits_with(pod: &Value, words: &str) -> bool {
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    waiting["message"].as_str().is_some_and(|message| message.contains(words))
}

/// It was admitted first, and failed because others had come since.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_for_a_secret_keeps_the_room_for_which_it_was_admitted() {
    let mut m = Machine::new().await;
    m.has_labels = true;
    let agent = m.agent().await;
    let first = m.bind_with("first", &waits("1500m"));
    m.until_pod("first", "waits", |pod| waits_with(pod, "late")).await;
    m.bind_with("second", &asks("1"));
    m.until_phase("second", "Failed").await;
    m.bind_with("small", &asks("500m"));
    m.until_phase("small", "Running").await;
    m.server.delete(&pod_path("first"), Some(0)).unwrap();
    until("its room is free", || !agent.node.0.core.fit.admitted().has(&first)).await;
    let third = m.bind_with("third", &waits("1500m"));
    m.until_pod("third", "waits in its place", |pod| waits_with(pod, "late")).await;
    let late = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "late", "namespace": "default"}, "data": {"k": "eA=="}});
    m.server.apply(late).unwrap();
    m.until_phase("third", "Running").await;
    assert_eq!(m.starts(&third), 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_for_a_secret_does_not_fail_because_its_node_is_drained_meanwhile() {
    let mut m = Machine::new().await;
    m.has_labels = true;
    let agent = m.agent().await;
    let early = m.bind_with("early", &waits("1"));
    m.until_pod("early", "waits", |pod| waits_with(pod, "late")).await;
    // A pod that is looked at before the agent knows whether its node goes down is admitted at the next attempt.
    until("it is admitted", || agent.node.0.core.fit.admitted().has(&early)).await;
    let shown = StatusApi::status(&agent.node).pods;
    let waits = |pod: &PodStatus| (pod.state, pod.containers[0].reason.clone());
    let expected = (PodState::Waiting, "ContainerCreating".to_owned());
    assert_eq!(shown.iter().map(waits).collect::<Vec<_>>(), [expected]);
    agent.node.0.core.gate.shut(GateReason::Drain);
    m.until_pod("early", "waits for the node", |pod| waits_with(pod, "drained")).await;
    let late = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "late", "namespace": "default"}, "data": {"k": "eA=="}});
    m.server.apply(late).unwrap();
    m.bind_with("new", &asks("100m"));
    m.until_phase("new", "Failed").await;
    agent.node.0.core.gate.lift(GateReason::Drain);
    m.until_phase("early", "Running").await;
    agent.stop().await;
}

/// If it failed, its controller would make another at once, and so on.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_runtime_cannot_run_waits_and_the_status_says_why() {
    let mut m = Machine::new().await;
    m.has_labels = true;
    let agent = m.agent().await;
    let odd = m.bind_with("odd", &waits("1"));
    m.runtime.refuse(&odd);
    let late = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "late", "namespace": "default"}, "data": {"k": "eA=="}});
    m.server.apply(late).unwrap();
    let why = "spec.volumes: refused as scripted";
    m.until_pod("odd", "says why", |pod| waits_with(pod, why)).await;
    assert_eq!(m.server.get(&pod_path("odd")).unwrap()["status"]["phase"], "Pending");
    let [shown] = &StatusApi::status(&agent.node).pods[..] else { panic!("one pod") };
    assert_eq!(shown.containers[0].message, why);
    agent.stop().await;
}

/// Nothing of it ran, so the API server let its owner resize it, and all others were refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_resized_only_to_what_fits_and_others_are_admitted_beside_what_it_was_given() {
    let mut m = Machine::new().await;
    m.has_labels = true;
    let agent = m.agent().await;
    let web = m.bind_with("web", &asks("1"));
    m.until_phase("web", "Running").await;
    let resize = async |agent: &machine::Agent, cpu: &str| {
        let labels = json!({"labels": {"to": cpu}});
        m.server.patch(&pod_path("web"), &json!({"metadata": labels, "spec": asks(cpu)})).unwrap();
        let wanted = &agent.node.0.core.wanted;
        until("the change is known", || {
            let wanted = wanted.borrow().clone().unwrap();
            let given = wanted.pods.iter().find(|pod| *pod.uid() == web);
            let labels = given.and_then(|pod| pod.metadata.labels.clone());
            labels.is_some_and(|labels| labels.get("to").is_some_and(|to| to == cpu))
        })
        .await;
    };
    resize(&agent, "64").await;
    m.bind_with("next", &asks("500m"));
    m.until_phase("next", "Running").await;
    resize(&agent, "1200m").await;
    m.bind_with("more", &asks("400m"));
    m.until_phase("more", "Failed").await;
    resize(&agent, "65").await;
    agent.stop().await;
    let agent = m.agent().await;
    m.bind_with("last", &asks("300m"));
    m.until_phase("last", "Running").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_a_pod_leave_the_agents_memory_when_it_has_terminated() {
    let m = Machine::new().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "default"}, "data": {"k": "bGFyZ2U="}});
    m.server.apply(secret).unwrap();
    let agent = m.agent().await;
    let key = json!({"secretKeyRef": {"name": "keys", "key": "k"}});
    let main = json!({"name": "main", "image": "none", "env": [{"name": "KEY", "valueFrom": key}]});
    let once = m.bind_with("once", &json!({"restartPolicy": "Never", "containers": [main]}));
    m.until_phase("once", "Running").await;
    let has_it = |pod: &winddown_shared::Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut variables = containers.flat_map(|one| one.env.iter().flatten());
        variables.any(|variable| variable.value.as_deref() == Some("large"))
    };
    let core = &agent.node.0.core;
    let holders = || {
        let wanted = core.wanted.borrow().clone().unwrap();
        [
            wanted.pods.iter().any(has_it),
            core.workers.snapshot().iter().filter_map(|one| one.pod.as_ref()).any(has_it),
            core.statuses.all().iter().any(|entry| has_it(&entry.pod)),
        ]
    };
    assert_eq!(holders(), [true; 3]);
    m.runtime.exit(&once, 0);
    m.until_phase("once", "Succeeded").await;
    until("it has gone", || holders() == [false; 3]).await;
    let status = core.statuses.get(&once).unwrap();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert_eq!(m.starts(&once), 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stays_ready_while_its_agent_is_restarted() {
    let m = Machine::new().await;
    let first = m.agent().await;
    m.until_node("ready", |node| is_true(node, "Ready")).await;
    first.stop().await;
    m.server.forget_requests();
    // The runtime takes its time to say what runs.
    m.runtime.lists_take(Duration::from_secs(1));
    let second = m.agent().await;
    until("the lease is renewed", || m.server.count("update", "leases") > 0).await;
    let written = m.server.requests().into_iter().filter(|r| r.is("patch", "nodes/status"));
    let unready = written.filter(|request| is_unready(&request.body)).count();
    assert_eq!(unready, 0, "a NotReady node has its pods taken out of services");
    second.stop().await;
}

/// It knows of the shutdown by its record alone, until the login manager answers.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_restarted_in_a_shutdown_tells_from_the_first_moment_that_the_node_goes_down() {
    const GOES_DOWN: &str = "GracefulNodeShutdownInProgress";
    let m = Machine::new().await;
    let agent = m.agent().await;
    m.until_node("ready", |node| is_true(node, "Ready")).await;
    let web = m.bind("web");
    m.runtime.stop_takes(&web, LONG);
    m.until_phase("web", "Running").await;
    agent.login.prepare();
    m.until_node("goes down", |node| is_true(node, GOES_DOWN)).await;
    let (login, state) = (agent.login.clone(), agent.stop().await);
    m.server.forget_requests();
    login.modify(|login| {
        (login.preparing, login.delay) = (false, None);
        login.lock = LockState::Waiting { why: "not connected yet".into() };
    });
    login.set_machine(MachineState::StaysUp);
    let next = m.agent_on(state, login, m.parts().await);
    until("the lease is renewed", || m.server.count("update", "leases") > 0).await;
    let written = m.server.requests().into_iter().filter(|r| r.is("patch", "nodes/status"));
    let up = written.filter(|request| condition(&request.body, GOES_DOWN)["status"] == "False");
    assert_eq!(up.count(), 0);
    let node = m.server.get(NODE).unwrap();
    assert!(is_true(&node, GOES_DOWN) && node["spec"]["unschedulable"] == true, "{node:#}");
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_static_pods_run_and_the_node_goes_down_in_time() {
    let m = Machine::new().await;
    m.server.cut_off().await.unwrap();
    let agent = m.agent().await;
    let web = super::pod("web", 0, 5);
    agent.has_manifests(std::slice::from_ref(&web));
    until("runs", || m.runtime.runs(web.uid())).await;
    let begun = tokio::time::Instant::now();
    let report = agent.go_down().await;
    assert_eq!(report.outcome, Outcome::Clean);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_api_server_has_the_final_statuses_before_the_lock_is_released() {
    let m = Machine::new().await;
    let agent = m.agent().await;
    m.bind("web");
    m.until_phase("web", "Running").await;
    m.server.fault(Fault::on("*", "*").delay(Duration::from_millis(800)));
    agent.go_down().await;
    assert_eq!(m.server.get(&pod_path("web")).unwrap()["status"]["phase"], "Failed");
    assert!(is_true(&m.server.get(NODE).unwrap(), "winddown.dev/CleanShutdown"));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_back_before_the_last_pod_exits_has_the_final_statuses() {
    let m = Machine::new().await;
    let agent = m.agent().await;
    let web = m.bind("web");
    m.until_phase("web", "Running").await;
    m.runtime.stop_takes(&web, LONG);
    m.server.cut_off().await.unwrap();
    let api = || StatusApi::status(&agent.node).cluster.unwrap().api.state;
    until("the API does not answer", || api() == ApiState::Unreachable).await;
    m.server.fault(Fault::on("*", "*").delay(Duration::from_millis(600)));
    let back = async {
        until("it is asked to terminate", || m.runtime.stops().contains(&web)).await;
        m.server.come_back().await.unwrap();
        assert_eq!(api(), ApiState::Unreachable);
        m.runtime.exit(&web, 0);
    };
    tokio::join!(agent.go_down(), back);
    assert_eq!(m.server.get(&pod_path("web")).unwrap()["status"]["phase"], "Failed");
    assert!(is_true(&m.server.get(NODE).unwrap(), "winddown.dev/CleanShutdown"));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_join_its_cluster_runs_static_pods_and_ends_none_of_an_earlier_agent() {
    let m = Machine::new().await;
    let first = m.agent().await;
    let web = m.bind("web");
    m.until_phase("web", "Running").await;
    first.stop().await;
    let mut parts = m.parts().await;
    parts.node.update_frequency = Duration::ZERO;
    let second = m.agent_with(parts);
    let own = super::pod("own", 0, 5);
    second.has_manifests(std::slice::from_ref(&own));
    until("runs", || m.runtime.runs(own.uid())).await;
    second.node.pods_are_known().await;
    assert!(StatusApi::status(&second.node).cluster.is_none());
    assert!(second.node.workers().lifecycle(&web).is_none() && m.runtime.runs(&web));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_is_shown_in_the_api_and_the_status_says_how_the_node_stands() {
    let m = Machine::new().await;
    let agent = m.agent().await;
    m.server
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}))
        .unwrap();
    let mut object = super::pod("web", 0, 5).object().clone();
    let hash = ("kubernetes.io/config.hash".to_owned(), "uid-web".to_owned());
    object.metadata.annotations.get_or_insert_default().extend([hash]);
    object.spec.as_mut().unwrap().containers[0].image = Some("none".into());
    agent.has_manifests(&[winddown_shared::Pod::new(object).unwrap()]);
    m.until_pod("web", "has a mirror that runs", |pod| {
        pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
            && pod["status"]["phase"] == "Running"
    })
    .await;
    let cluster = StatusApi::status(&agent.node).cluster.unwrap();
    assert_eq!(cluster.api.state, ApiState::Connected);
    assert_eq!(cluster.registered, Some(true));
    agent.stop().await;
}
