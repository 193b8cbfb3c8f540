//! What is sent, and when.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_latest_status_is_sent_and_those_before_it_are_not() {
    let server = with(&["a"]);
    let (outbox, driver) = Outbox::new(&config(None));
    for message in ["1", "2", "3"] {
        outbox.submit(says("a", json!({ "phase": "Running", "message": message })));
    }
    let agent = Agent::of(&server, (outbox, driver));
    agent.delivered("a").await;
    let first = &patches(&server)[..];
    let [first] = first else { panic!("{first:?}") };
    assert_eq!(first.body["status"]["message"], "3");
    // No version, so that it is not refused for what another client wrote.
    assert_eq!(first.body["metadata"], json!({ "uid": "a" }));
    assert_eq!(first.content_type, "application/strategic-merge-patch+json");
    // The same status again is nothing new.
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "3" })));
    agent.delivered("a").await;
    assert_eq!(patches(&server).len(), 1);
    assert_eq!(agent.outbox.stats().unacknowledged, 0);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_changes_while_it_is_sent_is_sent_again() {
    let server = with(&["a"]);
    server.fault(Fault::on("*", "*").delay(Duration::from_secs(1)));
    let agent = Agent::start(&server, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Failed");
    assert_eq!(patched(&server), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_already_has_needs_no_request() {
    let server = with(&[]);
    let seen = put(&server, "a", json!({ "phase": "Running" }));
    let agent = Agent::start(&server, None);
    agent.outbox.api_saw(&seen);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert!(server.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_has_brought_is_not_read_again() {
    let (server, agent) = started(&["a"]);
    agent.outbox.api_saw(&there(&server, "a"));
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!((server.count("get", "pods"), patched(&server).len()), (0, 1));
}

/// virtual-kubelet: TestUpdatePodStatusWithNilProviderStatus.
#[tokio::test(start_paused = true)]
async fn a_pod_of_which_nothing_was_said_is_left_untouched() {
    let server = with(&["a", "b"]);
    let before = server.get(&path("a"));
    let agent = Agent::start(&server, None);
    agent.outbox.api_saw(&there(&server, "a"));
    agent.outbox.submit(running("b"));
    agent.delivered("b").await;
    agent.delivered("a").await;
    assert_eq!(server.get(&path("a")), before);
}

#[tokio::test(start_paused = true)]
async fn last_words_go_first_then_those_who_leave_then_the_others() {
    let server = with(&["usual", "leaving", "last", "late"]);
    let config = OutboxConfig { concurrency: 1, ..config(None) };
    let (outbox, driver) = Outbox::new(&config);
    let leaving = json!({ "phase": "Running", "conditions": [
        { "type": "Ready", "status": "False", "reason": "NodeShutdown" }] });
    outbox.submit(running("usual"));
    outbox.submit(running("late"));
    outbox.submit(says("leaving", leaving));
    outbox.submit(ended("last"));
    let agent = Agent::of(&server, (outbox, driver));
    assert_eq!(agent.flush(Duration::from_secs(60)).await, [""; 0]);
    assert_eq!(patched(&server), ["last", "leaving", "usual", "late"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_than_allowed_are_under_way() {
    let names: Vec<String> = (0..50).map(|n| format!("pod-{n}")).collect();
    let server = with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    server.fault(Fault::on("*", "*").delay(Duration::from_millis(100)));
    let agent = Agent::start(&server, None);
    for name in &names {
        agent.outbox.submit(running(name));
    }
    let mut most = 0;
    while patches(&server).len() < 50 {
        most = most.max(server.requests().iter().filter(|one| one.code.is_none()).count());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(most, 8);
    assert_eq!(agent.flush(Duration::from_secs(60)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_hanging_pod_delays_no_other() {
    let (server, agent) = started(&["a", "b"]);
    server.fault(Fault::on("*", "*").times(1).status(429).retry_after(300));
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
    let (server, agent) = started(&[]);
    agent.delivered("nobody-said-anything").await;
    server.fault(down());
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
