//! API servers that fail.

use super::super::attempt::SendFault;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_tried_ever_more_slowly_and_all_go_out_when_it_answers() {
    let api = FakeApi::with(&["a", "b", "c"]);
    api.set_down(true);
    let agent = Agent::start(&api, None);
    for name in ["a", "b", "c"] {
        agent.outbox.submit(running(name));
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(agent.outbox.stats().silent_since.is_some());
    let tries = api.tries();
    let late = tries.iter().filter(|at| at.elapsed() < Duration::from_secs(1000)).count();
    assert!((250..=700).contains(&late), "10 s at most and 5 s at least for each of three: {late}");
    api.set_down(false);
    let back = Instant::now();
    for name in ["a", "b", "c"] {
        agent.delivered(name).await;
    }
    assert!(back.elapsed() <= Duration::from_secs(10));
    assert_eq!(agent.outbox.stats().silent_since, None);
    // The first answer released the others.
    let sent: Vec<Instant> = api.patches().into_iter().map(|(at, _)| at).collect();
    assert!(sent[2] - sent[0] < Duration::from_millis(50), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up_and_asked_again() {
    let api = FakeApi::with(&["a"]);
    api.set_takes(Duration::from_secs(3600));
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    api.set_takes(Duration::ZERO);
    agent.delivered("a").await;
    assert_eq!(api.phase("a"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_new_status_does_not_wait_out_the_back_off_of_the_old_one() {
    let api = FakeApi::with(&["a"]);
    api.set_down(true);
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    api.set_down(false);
    let start = Instant::now();
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert!(start.elapsed() < Duration::from_millis(10));
    assert_eq!(api.patched(), ["a"], "the older status is not sent any more");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_asks_to_wait_is_waited_even_for_a_new_status() {
    let api = FakeApi::with(&["a"]);
    api.fail([SendFault::Later { after: Some(Duration::from_secs(30)), error: "429".into() }]);
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert!(start.elapsed() >= Duration::from_secs(29));
    assert_eq!(api.phase("a"), "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_read_anew_and_tried_again() {
    let api = FakeApi::with(&["a"]);
    let agent = Agent::start(&api, None);
    agent.outbox.api_saw(&api.get_pod("a"));
    api.fail([SendFault::Stale]);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!((api.gets(), api.phase("a").as_str()), (1, "Running"));
}

/// The pod was deleted, and another one with its name was created.
#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_that_came_later_is_never_written_to() {
    let api = FakeApi::with(&["a"]);
    let agent = Agent::start(&api, None);
    agent.outbox.api_saw(&api.get_pod("a"));
    api.replace("a");
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert_eq!(api.phase("a"), "Pending");
    assert!(api.patched().is_empty());
    assert_eq!(agent.outbox.final_status(&PodUid::new("a")), None, "it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_server_refuses_is_tried_again_slowly_and_the_next_one_at_once() {
    let api = FakeApi::with(&["a"]);
    api.fail((0..1000).map(|_| SendFault::Refused("spec: Invalid".into())));
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tries = api.tries().len();
    assert!((20..60).contains(&tries), "from 5 ms up to 5 min: {tries}");
    api.set_down(false);
    api.fail([]);
    let before = api.tries().len();
    agent.outbox.submit(ended("a"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(api.tries().len() > before);
}

#[tokio::test(start_paused = true)]
async fn flush_says_who_is_not_told_and_returns_at_the_deadline() {
    let api = FakeApi::with(&["a", "b"]);
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    api.set_down(true);
    agent.outbox.submit(running("b"));
    let start = Instant::now();
    assert_eq!(agent.flush(Duration::from_secs(3)).await, ["b"]);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(agent.flush(Duration::ZERO).await, ["b"], "a deadline that has passed");
    api.set_down(false);
    assert_eq!(agent.flush(Duration::from_secs(30)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn waiting_entries_are_retried_when_another_request_is_answered() {
    let api = FakeApi::with(&["a"]);
    api.set_down(true);
    let agent = Agent::start(&api, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    api.set_down(false);
    let start = Instant::now();
    agent.outbox.api_answers();
    agent.delivered("a").await;
    assert!(start.elapsed() < Duration::from_millis(10));
}
