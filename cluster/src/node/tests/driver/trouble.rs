//! An API server that is slow, unreachable, or refuses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;
use crate::node::{NodeSettings, Ping};

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_at_the_start_is_asked_until_it_is_there() {
    let ledger = Ledger::new();
    let away = json!({ "code": 503, "reason": "ServiceUnavailable" });
    ledger.script(move |_| Some(Mishap::Refuse(503, away.clone())));
    let agent = Agent::start(&ledger);
    sleep(Duration::from_secs(3600)).await;
    let looks = ledger.sent(&Method::GET, NODE);
    assert!(looks.len() > 360, "at least every 10 s: {}", looks.len());
    assert!(looks.len() < 800, "and not much more often: {}", looks.len());
    assert!(agent.handle.state().borrow().outage.is_some());
    ledger.script(|_| None);
    let back = Instant::now();
    agent.told().await;
    assert!(back.elapsed() <= Duration::from_secs(10));
    assert_eq!(agent.handle.state().borrow().registrations, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_be_left_alone_is() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    let busy = json!({ "code": 429, "reason": "TooManyRequests",
        "details": { "retryAfterSeconds": 30 } });
    let mut refused = false;
    ledger.script(move |entry| {
        let refuse = entry.path == STATUS && !std::mem::replace(&mut refused, true);
        refuse.then(|| Mishap::Refuse(429, busy.clone()))
    });
    let t0 = Instant::now();
    agent.handle.set_ready(Err("container runtime is down".into()));
    agent.told().await;
    assert!(t0.elapsed() >= Duration::from_secs(30) && t0.elapsed() < Duration::from_secs(31));
    assert_eq!(ready_is(&ledger), ("False".into(), "container runtime is down".into()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_version_has_expired_begins_with_a_new_list() {
    let ledger = Ledger::new();
    let mut asked = 0;
    ledger.script(move |entry| {
        let lists_or_watches = entry.method == Method::GET && entry.path == "/api/v1/nodes";
        asked += u32::from(lists_or_watches);
        let expired = json!({ "code": 410, "reason": "Expired" });
        (lists_or_watches && asked == 2).then_some(Mishap::Refuse(410, expired))
    });
    let agent = Agent::ready(&ledger).await;
    sleep(Duration::from_millis(50)).await;
    ledger.edit(&json!({ "metadata": { "labels": { "theirs": "1" } } }));
    sleep(Duration::from_secs(1)).await;
    let node = agent.handle.server_node().borrow().clone().unwrap();
    assert!(node.metadata.labels.as_ref().is_some_and(|all| all.contains_key("theirs")));
}

/// etcd was restored from a backup.
#[tokio::test(start_paused = true)]
async fn a_server_whose_versions_went_back_is_believed() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    let backup = ledger.node();
    // The answers to heartbeats have ever higher versions.
    sleep(Duration::from_secs(600)).await;
    ledger.restore(&backup);
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(ready_is(&ledger).0, "False");
    assert_eq!(ledger.node()["spec"]["unschedulable"], true);
}

/// Beside a kubelet nothing is written for days, so no answer to a write shows it.
#[tokio::test(start_paused = true)]
async fn a_server_whose_versions_went_back_is_believed_without_a_write() {
    let ledger = Ledger::new();
    let backup = ledger.put(NODE, json!({ "metadata": { "name": NAME } }));
    ledger.edit(&json!({ "metadata": { "labels": { "lost": "1" } } }));
    let agent = Agent::start_with(&ledger, facts(), NodeSettings::beside_kubelet());
    agent.told().await;
    ledger.restore(&backup);
    sleep(Duration::from_secs(2 * 3600)).await;
    let node = agent.handle.server_node().borrow().clone().unwrap();
    assert_eq!(node.metadata.labels, None);
    assert_eq!(ledger.sent(&Method::PATCH, "").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_another_client_registers_at_the_same_moment_is_taken_over() {
    let ledger = Ledger::new();
    let rival = ledger.clone();
    ledger.script(move |entry| {
        if entry.method == Method::POST && rival_is_absent(entry) {
            rival_creates(&rival);
        }
        None
    });
    fn rival_is_absent(entry: &super::super::ledger::Entry) -> bool {
        entry.path == "/api/v1/nodes"
    }
    fn rival_creates(ledger: &Ledger) {
        // The ledger is locked while the script runs, so another task does it.
        let ledger = ledger.clone();
        tokio::spawn(async move {
            if ledger.get(NODE).is_none() {
                ledger
                    .put(NODE, json!({ "metadata": { "name": "n1", "labels": { "rival": "1" } } }));
            }
        });
    }
    let agent = Agent::ready(&ledger).await;
    assert_eq!(ledger.condition("Ready")["status"], "True");
    assert!(agent.handle.state().borrow().uid.is_some());
}

#[tokio::test(start_paused = true)]
async fn labels_and_taints_that_the_server_forbids_do_not_keep_the_status_out() {
    let ledger = Ledger::new();
    ledger.put(NODE, json!({ "metadata": { "name": "n1" } }));
    ledger.script(|entry| {
        let refusal = json!({ "code": 403, "reason": "Forbidden", "message": "not allowed to modify taints" });
        (entry.path == NODE && entry.method == Method::PATCH)
            .then_some(Mishap::Refuse(403, refusal))
    });
    let facts = NodeFacts { taints: vec![taint("a", "1")], ..facts() };
    let agent = Agent::start_with(&ledger, facts, NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(ready_is(&ledger).0, "True");
    sleep(Duration::from_secs(3600)).await;
    let state = agent.handle.state().borrow().clone();
    assert_eq!(state.refused.as_deref(), Some("not allowed to modify taints"));
    assert_eq!(state.outage, None);
    let tries = ledger.sent(&Method::PATCH, NODE).len();
    assert!((10..=80).contains(&tries), "two kinds, every few minutes: {tries}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_done_and_whose_answer_was_lost_is_not_doubled() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    // The request takes longer than any caller waits, and is carried out nevertheless.
    let mut late = false;
    ledger.script(move |entry| {
        let first = entry.path == STATUS && !std::mem::replace(&mut late, true);
        first.then_some(Mishap::Late(Duration::from_secs(20)))
    });
    agent.handle.set_ready(Err("why".into()));
    agent.told().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(ready_is(&ledger).1, "why");
    assert!(ledger.sent(&Method::PATCH, STATUS).len() <= 4);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_stays_deleted_unless_it_is_wanted_again() {
    for (registration, comes_back) in [(Registration::AtStart, false), (Registration::Always, true)]
    {
        let ledger = Ledger::new();
        let settings = NodeSettings { registration, ..NodeSettings::default() };
        let agent = Agent::start_with(&ledger, facts(), settings);
        agent.handle.set_ready(Ok(()));
        agent.told().await;
        let uid = ledger.node()["metadata"]["uid"].clone();
        ledger.remove(NODE);
        sleep(Duration::from_secs(400)).await;
        assert_eq!(ledger.get(NODE).is_some(), comes_back);
        let state = agent.handle.state().borrow().clone();
        assert_eq!(state.deleted, !comes_back);
        assert_eq!(agent.handle.server_node().borrow().is_some(), comes_back);
        if comes_back {
            assert_eq!(state.registrations, 2);
            let new = ledger.node()["metadata"]["uid"].clone();
            assert_ne!(new, uid);
            let lease = ledger.get(LEASE).unwrap();
            assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], new, "a new lease");
        }
    }
}

/// After a restart of the agent, the watch lists the node before what runs the pods has answered.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_finds_first_is_registered_and_stays_deleted_when_it_is() {
    struct Slow;
    impl Ping for Slow {
        async fn ping(&self) -> Result<(), String> {
            sleep(Duration::from_secs(1)).await;
            Ok(())
        }
    }
    let ledger = Ledger::new();
    Agent::ready(&ledger).await.stop.cancel();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) =
        NodeController::builder(ledger.client(), NAME, told, clock()).ping(Slow).build().unwrap();
    tokio::spawn(controller.run(CancellationToken::new()));
    sleep(Duration::from_secs(2)).await;
    let uid = handle.state().borrow().uid.clone();
    assert_eq!(uid.as_deref(), ledger.node()["metadata"]["uid"].as_str());
    ledger.remove(NODE);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(ledger.get(NODE), None);
    let state = handle.state().borrow().clone();
    assert!(state.deleted && state.uid.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_is_not_registered() {
    let ledger = Ledger::new();
    let settings = NodeSettings { registration: Registration::Always, ..NodeSettings::default() };
    let agent = Agent::start_with(&ledger, facts(), settings);
    agent.handle.set_shutting_down(true);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(ledger.get(NODE), None);
}

/// kubernetes/kubernetes#103086: silence alone would leave pods on a node that cannot run them.
#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_only_while_the_api_knows_how_things_are() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    let refusal = json!({ "code": 403, "reason": "Forbidden", "message": "no" });
    ledger
        .script(move |entry| (entry.path == STATUS).then(|| Mishap::Refuse(403, refusal.clone())));
    agent.handle.set_ready(Err("container runtime is down".into()));
    sleep(Duration::from_secs(15)).await;
    let renewals = ledger.sent(&Method::PUT, LEASE).len();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(ledger.sent(&Method::PUT, LEASE).len(), renewals, "not renewed");
    assert!(agent.handle.state().borrow().lease_problem.is_some());
    ledger.script(|_| None);
    agent.told().await;
    sleep(Duration::from_secs(60)).await;
    assert!(ledger.sent(&Method::PUT, LEASE).len() > renewals + 4, "it says not ready, and lives");
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_refused_is_tried_again_and_not_faster_than_the_kubelet() {
    let ledger = Ledger::new();
    let _agent = Agent::ready(&ledger).await;
    ledger
        .script(|entry| (entry.path == LEASE).then(|| Mishap::Refuse(500, json!({ "code": 500 }))));
    sleep(Duration::from_secs(600)).await;
    let tries = ledger.sent(&Method::GET, LEASE).len();
    assert!((60..300).contains(&tries), "{tries}");
    ledger.script(|_| None);
    let before = ledger.sent(&Method::PUT, LEASE).len();
    sleep(Duration::from_secs(11)).await;
    assert!(ledger.sent(&Method::PUT, LEASE).len() > before);
}

#[derive(Clone, Default)]
struct Runtime(Arc<AtomicBool>);

impl Ping for Runtime {
    async fn ping(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("container runtime is down".into())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_the_pods_decides_about_readiness_from_the_first_answer_on() {
    let ledger = Ledger::new();
    let runtime = Runtime::default();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) = NodeController::builder(ledger.client(), NAME, told, clock())
        .ping(runtime.clone())
        .build()
        .unwrap();
    handle.set_ready(Ok(()));
    tokio::spawn(controller.run(CancellationToken::new()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ready_is(&ledger), ("False".into(), "container runtime is down".into()));
    runtime.0.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(ready_is(&ledger).0, "True");
    runtime.0.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(ready_is(&ledger).0, "False");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_announced_although_what_runs_the_pods_has_not_answered_yet() {
    struct Silent;
    impl Ping for Silent {
        async fn ping(&self) -> Result<(), String> {
            std::future::pending().await
        }
    }
    let ledger = Ledger::new();
    Agent::ready(&ledger).await.stop.cancel();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) =
        NodeController::builder(ledger.client(), NAME, told, clock()).ping(Silent).build().unwrap();
    tokio::spawn(controller.run(CancellationToken::new()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ready_is(&ledger).0, "True", "an agent that knows nothing yet says nothing");
    handle.set_shutting_down(true);
    handle.flush(Instant::now() + Duration::from_secs(1)).await.unwrap();
    assert_eq!(ledger.condition("GracefulNodeShutdownInProgress")["status"], "True");
}

/// virtual-kubelet: TestPingAfterStatusUpdate.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_pushed_does_not_delay_the_pings() {
    #[derive(Clone, Default)]
    struct Counted(Arc<Mutex<Vec<Instant>>>);
    impl Ping for Counted {
        async fn ping(&self) -> Result<(), String> {
            self.0.lock().unwrap().push(Instant::now());
            Ok(())
        }
    }
    let ledger = Ledger::new();
    let pings = Counted::default();
    let (facts, told) = watch::channel(facts());
    let settings = NodeSettings { lease: None, ..NodeSettings::default() };
    let (controller, handle) = NodeController::builder(ledger.client(), NAME, told, clock())
        .settings(settings)
        .ping(pings.clone())
        .build()
        .unwrap();
    handle.set_ready(Ok(()));
    tokio::spawn(controller.run(CancellationToken::new()));
    for round in 0..100 {
        sleep(Duration::from_secs(3)).await;
        facts.send_modify(|facts| {
            facts.labels.insert("round".into(), round.to_string());
            facts.capacity.insert("example.com/round".into(), Quantity(round.to_string()));
        });
    }
    let pings = pings.0.lock().unwrap().clone();
    let longest = pings.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < Duration::from_secs(25), "{longest:?}");
    assert!(pings.len() >= 28);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_an_earlier_node_that_may_not_be_deleted_is_taken_over() {
    let ledger = Ledger::new();
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "earlier" });
    ledger.put(LEASE, json!({ "metadata": { "name": "n1", "ownerReferences": [owner] } }));
    ledger.script(|entry| {
        let refusal = json!({ "code": 403, "reason": "Forbidden" });
        (entry.method == Method::DELETE).then_some(Mishap::Refuse(403, refusal))
    });
    let agent = Agent::ready(&ledger).await;
    sleep(Duration::from_secs(15)).await;
    let lease = ledger.get(LEASE).unwrap();
    let owners = lease["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["uid"], ledger.node()["metadata"]["uid"]);
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_labels_are_forbidden_is_registered_without_them_and_with_its_taints() {
    let ledger = Ledger::new();
    ledger.script(|entry| {
        let labelled = entry.body["metadata"]["labels"].get("kubernetes.io/hostname").is_some();
        let refusal = json!({ "code": 403, "reason": "Forbidden", "message": "no such labels" });
        (labelled && entry.method != Method::PUT).then_some(Mishap::Refuse(403, refusal))
    });
    let facts = NodeFacts { taints: vec![taint("a", "1")], ..facts() };
    let agent = Agent::start_with(&ledger, facts, NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(ready_is(&ledger).0, "True");
    assert_eq!(ledger.node()["spec"]["taints"][0]["key"], "a");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(agent.handle.state().borrow().refused.as_deref(), Some("no such labels"));
}

/// Reading a watch channel twice at the same time deadlocks with a writer in between.
#[test]
fn facts_that_change_while_the_node_is_compared_hold_up_neither_side() {
    let (over, is_over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(a_change_in_the_middle());
        over.send(()).unwrap();
    });
    let waited = is_over.recv_timeout(Duration::from_secs(30));
    assert!(waited.is_ok(), "the controller and whoever changes the facts wait for each other");
}

async fn a_change_in_the_middle() {
    let ledger = Ledger::new();
    let (facts, told) = watch::channel(facts());
    let (facts, is_armed) = (Arc::new(facts), Arc::new(AtomicBool::new(false)));
    let clock = {
        let (facts, is_armed, clock) = (facts.clone(), is_armed.clone(), clock());
        // The time is requested in the middle of the comparison.
        WallClock::new(move || {
            if is_armed.swap(false, Ordering::Relaxed) {
                let (facts, (done, is_done)) = (facts.clone(), std::sync::mpsc::channel());
                std::thread::spawn(move || {
                    facts.send_modify(|facts| facts.port = Some(1));
                    let _ = done.send(());
                });
                let _ = is_done.recv_timeout(Duration::from_millis(300));
            }
            clock.now()
        })
    };
    let (controller, handle) =
        NodeController::builder(ledger.client(), NAME, told, clock).build().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(controller.run(stop.clone()));
    handle.set_ready(Ok(()));
    handle.flush(Instant::now() + Duration::from_secs(20)).await.unwrap();
    handle.set_shutting_down(true);
    is_armed.store(true, Ordering::Relaxed);
    handle.flush(Instant::now() + Duration::from_secs(20)).await.unwrap();
    assert_eq!(ready_is(&ledger).0, "False");
    stop.cancel();
    running.await.unwrap();
}
