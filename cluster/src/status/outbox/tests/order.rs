//! What is sent, and when.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_latest_status_is_sent_and_those_before_it_are_not() {
    let api = FakeApi::with(&["a"]);
    let (outbox, driver) = Outbox::new(&config(None));
    for message in ["1", "2", "3"] {
        outbox.submit(says("a", json!({ "phase": "Running", "message": message })));
    }
    let agent = Agent::of(&api, (outbox, driver));
    agent.delivered("a").await;
    let patches = api.patches();
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].1["status"]["message"], "3");
    // The same status again is nothing new.
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "3" })));
    agent.delivered("a").await;
    assert_eq!(api.patches().len(), 1);
    assert_eq!(agent.outbox.stats().unacknowledged, 0);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_changes_while_it_is_sent_is_sent_again() {
    let api = FakeApi::with(&["a"]);
    api.set_takes(Duration::from_secs(1));
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert_eq!(api.phase("a"), "Failed");
    assert_eq!(api.patched(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_already_has_needs_no_request() {
    let api = FakeApi::with(&[]);
    let seen = api.put("a", &json!({ "phase": "Running" }));
    let agent = Agent::start(&api, None);
    agent.outbox.api_saw(&seen);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert!(api.tries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_has_brought_is_not_read_again() {
    let api = FakeApi::with(&["a"]);
    let agent = Agent::start(&api, None);
    agent.outbox.api_saw(&api.get_pod("a"));
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!((api.gets(), api.patched().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn last_words_go_first_then_those_who_leave_then_the_others() {
    let api = FakeApi::with(&["usual", "leaving", "last", "late"]);
    let config = OutboxConfig { concurrency: 1, ..config(None) };
    let (outbox, driver) = Outbox::new(&config);
    let leaving = json!({ "phase": "Running", "conditions": [
        { "type": "Ready", "status": "False", "reason": "NodeShutdown" }] });
    outbox.submit(running("usual"));
    outbox.submit(running("late"));
    outbox.submit(says("leaving", leaving));
    outbox.submit(ended("last"));
    let agent = Agent::of(&api, (outbox, driver));
    assert_eq!(agent.flush(Duration::from_secs(60)).await, [""; 0]);
    assert_eq!(api.patched(), ["last", "leaving", "usual", "late"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_than_allowed_are_under_way() {
    let names: Vec<String> = (0..50).map(|n| format!("pod-{n}")).collect();
    let api = FakeApi::with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    api.set_takes(Duration::from_millis(100));
    let agent = Agent::start(&api, None);
    for name in &names {
        agent.outbox.submit(running(name));
    }
    assert_eq!(agent.flush(Duration::from_secs(60)).await, [""; 0]);
    assert_eq!(api.most_at_once(), 8);
    assert_eq!(api.patched().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn one_hanging_pod_delays_no_other() {
    let api = FakeApi::with(&["a", "b"]);
    let agent = Agent::start(&api, None);
    api.fail([super::super::attempt::SendFault::Later {
        after: Some(Duration::from_secs(300)),
        error: "not now".into(),
    }]);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    agent.outbox.submit(running("b"));
    let start = Instant::now();
    agent.delivered("b").await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(agent.flush(Duration::from_secs(2)).await, ["a"]);
    agent.delivered("a").await;
    assert!(start.elapsed() >= Duration::from_secs(299), "the server named the time");
}

#[tokio::test(start_paused = true)]
async fn waiters_are_released_when_the_pod_is_gone_and_an_unknown_pod_is_not_awaited() {
    let api = FakeApi::with(&[]);
    let agent = Agent::start(&api, None);
    agent.delivered("nobody-said-anything").await;
    api.set_down(true);
    agent.outbox.submit(running("a"));
    let told = tokio::spawn({
        let outbox = agent.outbox.clone();
        async move { outbox.delivered(&PodUid::new("a")).await }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!told.is_finished());
    agent.outbox.gone(&PodUid::new("a"));
    told.await.unwrap();
    assert_eq!(agent.outbox.stats().backing_off, 0);
}
