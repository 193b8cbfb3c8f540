//! API servers that fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_tried_ever_more_slowly_and_all_go_out_when_it_answers() {
    let server = with(&["a", "b", "c"]);
    server.fault(down());
    let agent = Agent::start(&server, None);
    for name in ["a", "b", "c"] {
        agent.outbox.submit(running(name));
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(agent.outbox.stats().silent_since.is_some());
    let tries = server.requests();
    let late = tries.iter().filter(|one| one.at.elapsed() < Duration::from_secs(1000)).count();
    assert!((250..=700).contains(&late), "10 s at most and 5 s at least for each of three: {late}");
    server.lift_all();
    let back = Instant::now();
    for name in ["a", "b", "c"] {
        agent.delivered(name).await;
    }
    assert!(back.elapsed() <= Duration::from_secs(10));
    assert_eq!(agent.outbox.stats().silent_since, None);
    // The first answer released the others.
    let sent: Vec<Instant> = patches(&server).into_iter().map(|patch| patch.at).collect();
    assert!(sent[2] - sent[0] < Duration::from_millis(50), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up_and_asked_again() {
    let server = with(&["a"]);
    server.fault(Fault::on("*", "*").delay(Duration::from_secs(3600)));
    let agent = Agent::start(&server, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    server.lift_all();
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_new_status_does_not_wait_out_the_back_off_of_the_old_one() {
    let server = with(&["a"]);
    server.fault(down());
    let agent = Agent::start(&server, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    server.lift_all();
    let start = Instant::now();
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert!(start.elapsed() < Duration::from_millis(10));
    assert_eq!(patched(&server), ["a"], "the older status is not sent any more");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_asks_to_wait_is_waited_even_for_a_new_status() {
    let server = with(&["a"]);
    server.fault(Fault::on("*", "*").times(1).status(429).retry_after(30));
    let agent = Agent::start(&server, None);
    agent.outbox.submit(running("a"));
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert!(start.elapsed() >= Duration::from_secs(29));
    assert_eq!(phase(&server, "a"), "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_read_anew_and_tried_again() {
    let (server, agent) = started(&["a"]);
    agent.outbox.api_saw(&there(&server, "a"));
    server.fault(Fault::on("patch", "pods/status").times(1).status(409).reason("Conflict"));
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    assert_eq!((server.count("get", "pods"), phase(&server, "a").as_str()), (1, "Running"));
}

/// The pod was deleted, and another one with its name was created.
#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_that_came_later_is_never_written_to() {
    let (server, agent) = started(&["a"]);
    agent.outbox.api_saw(&there(&server, "a"));
    replace(&server, "a");
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Pending");
    assert!(patched(&server).is_empty());
    assert_eq!(agent.outbox.final_status(&PodUid::new("a")), None, "it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_server_refuses_is_tried_again_slowly_and_the_next_one_at_once() {
    let server = with(&["a"]);
    server.fault(Fault::on("*", "*").status(422));
    let agent = Agent::start(&server, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tries = server.requests().len();
    assert!((20..60).contains(&tries), "from 5 ms up to 5 min: {tries}");
    server.lift_all();
    let before = server.requests().len();
    agent.outbox.submit(ended("a"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(server.requests().len() > before);
}

#[tokio::test(start_paused = true)]
async fn flush_says_who_is_not_told_and_returns_at_the_deadline() {
    let (server, agent) = started(&["a", "b"]);
    agent.outbox.submit(running("a"));
    agent.delivered("a").await;
    server.fault(down());
    agent.outbox.submit(running("b"));
    let start = Instant::now();
    assert_eq!(agent.flush(Duration::from_secs(3)).await, ["b"]);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(agent.flush(Duration::ZERO).await, ["b"], "a deadline that has passed");
    server.lift_all();
    assert_eq!(agent.flush(Duration::from_secs(30)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn waiting_entries_are_retried_when_another_request_is_answered() {
    let server = with(&["a"]);
    server.fault(down());
    let agent = Agent::start(&server, None);
    agent.outbox.submit(running("a"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    server.lift_all();
    let start = Instant::now();
    agent.outbox.api_answers();
    agent.delivered("a").await;
    assert!(start.elapsed() < Duration::from_millis(10));
}

/// In the end the API has the status, however a request fails.
#[tokio::test(start_paused = true)]
async fn every_kind_of_failure_is_got_over() {
    let on = || Fault::on("patch", "pods/status").times(2);
    for (name, fault) in [
        ("429", on().status(429).retry_after(1)),
        ("500", on().status(500)),
        ("503", on().status(503)),
        ("409", on().status(409).reason("Conflict")),
        ("422", on().status(422)),
        ("403", on().status(403)),
        ("reset", on().reset()),
        ("close", on().close()),
        ("lost answer", on().lose_answer()),
        ("garbled", on().garble()),
        ("hang", on().hang()),
        ("hang after it was done", on().hang_after()),
    ] {
        let server = with(&["a"]);
        server.fault(fault);
        let agent = Agent::start(&server, None);
        let ready = json!({ "type": "Ready", "status": "True" });
        agent.outbox.submit(says(
            "a",
            json!({ "phase": "Running", "podIP": "10.1.1.2", "conditions": [ready] }),
        ));
        agent.delivered("a").await;
        let status = server.get(&path("a")).unwrap()["status"].clone();
        assert_eq!(status["phase"], "Running", "{name}");
        assert_eq!(status["podIPs"], json!([{ "ip": "10.1.1.2" }]), "{name}");
        assert_eq!(status["conditions"][0]["status"], "True", "{name}");
    }
}
