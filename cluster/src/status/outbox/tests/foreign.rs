//! Others write to the same status.

use super::*;

/// virtual-kubelet#899: the node lifecycle controller has marked the pod as not ready.
#[tokio::test(start_paused = true)]
async fn foreign_changes_to_our_fields_are_reverted() {
    let api = FakeApi::with(&["a"]);
    let agent = Agent::start(&api, None);
    let ready =
        json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    agent.outbox.submit(says("a", ready.clone()));
    agent.delivered("a").await;
    let theirs = json!({ "phase": "Running", "conditions": [
        { "type": "Ready", "status": "False", "reason": "NodeNotReady" },
        { "type": "example.com/theirs", "status": "True" }] });
    agent.outbox.api_saw(&api.put("a", &theirs));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let status = api.get_pod("a").status.clone().unwrap();
    let conditions = status.conditions.unwrap();
    assert_eq!((conditions[0].status.as_str(), conditions[0].reason.as_deref()), ("True", None));
    assert_eq!(conditions.len(), 2, "theirs stays");
    assert_eq!(agent.outbox.stats().reasserted, 1);
}

#[tokio::test(start_paused = true)]
async fn our_own_write_in_the_watch_is_no_change() {
    let api = FakeApi::with(&["a"]);
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    let tries = api.tries().len();
    agent.outbox.api_saw(&api.get_pod("a"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.tries().len(), tries);
}

#[tokio::test(start_paused = true)]
async fn an_event_from_before_our_write_does_not_undo_what_is_known() {
    let api = FakeApi::with(&["a"]);
    let old = api.get_pod("a");
    let agent = Agent::start(&api, None);
    agent.outbox.api_saw(&old);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    agent.outbox.api_saw(&old);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.patched().len(), 1);
}

/// etcd was restored from a backup: a list and the answers to patches have lower versions than before.
#[tokio::test(start_paused = true)]
async fn a_server_whose_versions_went_back_is_believed() {
    let api = FakeApi::with(&["a"]);
    let backup = api.get_pod("a");
    let agent = Agent::start(&api, None);
    let say = async |messages: std::ops::Range<u8>| {
        for message in messages {
            let said = json!({ "phase": "Running", "message": message.to_string() });
            agent.outbox.submit(says("a", said));
            agent.delivered("a").await;
        }
    };
    say(0..9).await;
    api.restore(&backup);
    agent.outbox.listing();
    agent.outbox.api_saw(&backup);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.phase("a"), "Running", "after a list");

    say(10..19).await;
    api.restore(&backup);
    say(20..21).await;
    agent.outbox.api_saw(&api.put("a", &json!({ "phase": "Pending" })));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.phase("a"), "Running", "after an answer");
}

#[tokio::test(start_paused = true)]
async fn a_fight_over_a_field_becomes_ever_slower() {
    let api = FakeApi::with(&["a"]);
    let agent = Agent::start(&api, None);
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "ours" })));
    agent.delivered("a").await;
    for _ in 0..3600 {
        agent.outbox.api_saw(&api.put("a", &json!({ "phase": "Running", "message": "theirs" })));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let written = api.patched().len();
    assert!((8..40).contains(&written), "{written} times in an hour");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_take_over_is_not_sent_for_ever() {
    let api = FakeApi::with(&["a"]);
    api.strip("message");
    let agent = Agent::start(&api, None);
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "m" })));
    agent.delivered("a").await;
    let written = api.patched().len();
    assert!(written <= 2, "once more, in case the first was made of what was out of date");
    for _ in 0..100 {
        let status = serde_json::to_value(api.get_pod("a").status.clone()).unwrap();
        agent.outbox.api_saw(&api.put("a", &status));
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(api.patched().len(), written);
}

/// A pod that others have failed while its containers still run here.
#[tokio::test(start_paused = true)]
async fn what_others_have_failed_stays_failed() {
    let api = FakeApi::with(&[]);
    let seen = api.put("a", &json!({ "phase": "Failed", "reason": "NodeLost" }));
    let agent = Agent::start(&api, None);
    agent.outbox.api_saw(&seen);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!(api.phase("a"), "Failed");
    assert!(api.patched().is_empty());
}
