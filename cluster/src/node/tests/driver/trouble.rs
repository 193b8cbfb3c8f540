//! An API server that is slow, unreachable, or refuses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::node::{NodeSettings, Ping};
use winddown_api_client::{ClusterConfig, Connection, Credentials};

/// The connection's own state says that, and what to do.
#[tokio::test(start_paused = true)]
async fn without_credentials_no_server_is_blamed_for_the_node_that_is_not_registered() {
    let path = tempfile::tempdir().unwrap().path().join("kubelet.conf");
    let config = ClusterConfig::new(Credentials::Kubeconfig { path, context: None });
    let connection = Connection::open_early(config, clock()).await.unwrap();
    let agent = Agent::start_as(connection.client(), facts(), NodeSettings::default());
    let state = agent.handle.state();
    for _ in 0..100 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(state.borrow().outage, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_at_the_start_is_asked_until_it_is_there() {
    let server = ApiServer::in_memory().unwrap();
    server.fault(Fault::on("*", "*").status(503));
    let agent = Agent::start(&server);
    sleep(Duration::from_secs(3600)).await;
    let looks = sent(&server, "get", "nodes");
    assert!(looks.len() > 360, "at least every 10 s: {}", looks.len());
    assert!(looks.len() < 800, "and not much more often: {}", looks.len());
    assert!(agent.handle.state().borrow().outage.is_some());
    server.lift_all();
    let back = Instant::now();
    agent.told().await;
    assert!(back.elapsed() <= Duration::from_secs(10));
    assert_eq!(agent.handle.state().borrow().registrations, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_be_left_alone_is() {
    let (server, agent) = ready().await;
    server.fault(Fault::on("patch", "nodes/status").times(1).status(429).retry_after(30));
    let t0 = Instant::now();
    agent.handle.set_ready(Err("container runtime is down".into()));
    agent.told().await;
    assert!(t0.elapsed() >= Duration::from_secs(30) && t0.elapsed() < Duration::from_secs(31));
    assert_eq!(ready_is(&server), ("False".into(), "container runtime is down".into()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_version_has_expired_begins_with_a_new_list() {
    let server = ApiServer::in_memory().unwrap();
    server.fault(Fault::on("watch", "nodes").times(1).status(410).reason("Expired"));
    let agent = Agent::ready(&server).await;
    sleep(Duration::from_millis(50)).await;
    server.patch(NODE, &json!({ "metadata": { "labels": { "theirs": "1" } } })).unwrap();
    sleep(Duration::from_secs(1)).await;
    let node = agent.handle.server_node().borrow().clone().unwrap();
    assert!(node.metadata.labels.as_ref().is_some_and(|all| all.contains_key("theirs")));
    assert_eq!(server.count("list", "nodes"), 2);
    // What happened meanwhile is no longer to be had.
    server.compact();
    server.drop_watches("nodes");
    server.patch(NODE, &json!({ "metadata": { "labels": { "theirs": "2" } } })).unwrap();
    sleep(Duration::from_secs(10)).await;
    let node = agent.handle.server_node().borrow().clone().unwrap();
    assert_eq!(node.metadata.labels.as_ref().unwrap()["theirs"], "2");
}

/// etcd was restored from a backup.
#[tokio::test(start_paused = true)]
async fn a_server_whose_versions_went_back_is_believed() {
    let (server, agent) = ready().await;
    let backup = server.version();
    // The answers to heartbeats have ever higher versions.
    sleep(Duration::from_secs(600)).await;
    server.restore(backup);
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(ready_is(&server).0, "False");
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
}

/// Beside a kubelet nothing is written for days, so no answer to a write shows it.
#[tokio::test(start_paused = true)]
async fn a_server_whose_versions_went_back_is_believed_without_a_write() {
    let server = ApiServer::in_memory().unwrap();
    apply(&server, json!({}));
    let backup = server.version();
    server.patch(NODE, &json!({ "metadata": { "labels": { "lost": "1" } } })).unwrap();
    let agent = Agent::start_with(&server, facts(), NodeSettings::beside_kubelet());
    agent.told().await;
    server.restore(backup);
    sleep(Duration::from_secs(2 * 3600)).await;
    let node = agent.handle.server_node().borrow().clone().unwrap();
    assert_eq!(node.metadata.labels, None);
    assert_eq!(server.count("patch", "*"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_another_client_registers_at_the_same_moment_is_taken_over() {
    let server = ApiServer::in_memory().unwrap();
    let held = server.fault(Fault::on("create", "nodes").hold());
    let agent = Agent::start(&server);
    agent.handle.set_ready(Ok(()));
    sleep(Duration::from_secs(1)).await;
    apply(&server, json!({ "labels": { "rival": "1" } }));
    server.lift(held);
    agent.told().await;
    assert_eq!(there(&server)["metadata"]["labels"]["rival"], "1");
    assert_eq!(condition(&server, "Ready")["status"], "True");
    assert!(agent.handle.state().borrow().uid.is_some());
}

#[tokio::test(start_paused = true)]
async fn labels_that_the_server_forbids_do_not_keep_the_status_out() {
    let server = ApiServer::in_memory().unwrap();
    apply(&server, json!({}));
    server.fault(Fault::on("patch", "nodes").status(403));
    let agent = Agent::start_with(&server, facts(), NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(ready_is(&server).0, "True");
    sleep(Duration::from_secs(3600)).await;
    let state = agent.handle.state().borrow().clone();
    let refused = "without the labels kubernetes.io/hostname: scripted failure 403";
    assert_eq!(state.refused.as_deref(), Some(refused));
    assert_eq!(state.outage, None);
    let tries = server.count("patch", "nodes");
    assert!((10..=80).contains(&tries), "all labels and one alone, every few minutes: {tries}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_done_and_whose_answer_was_lost_is_not_doubled() {
    let (server, agent) = ready().await;
    // No caller waits that long.
    let late = Fault::on("patch", "nodes/status").times(1).delay_answer(Duration::from_secs(20));
    server.fault(late);
    agent.handle.set_ready(Err("why".into()));
    agent.told().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(ready_is(&server).1, "why");
    assert!(server.count("patch", "nodes/status") <= 4);
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_was_lost_is_found_and_not_repeated() {
    let server = ApiServer::in_memory().unwrap();
    server.fault(Fault::on("create", "nodes").times(1).lose_answer());
    let _agent = Agent::ready(&server).await;
    assert_eq!((server.list("nodes").len(), server.count("create", "nodes")), (1, 1));
    assert_eq!(ready_is(&server).0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gets_through_while_the_server_refuses_conflicts_and_loses_answers() {
    let (server, agent) = ready().await;
    server.fault(Fault::on("patch", "nodes").times(1).status(409).reason("Conflict"));
    server.fault(Fault::on("patch", "nodes/status").times(1).status(500));
    server.fault(Fault::on("patch", "nodes/status").times(1).lose_answer());
    server.fault(Fault::on("patch", "nodes").times(1).close());
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(condition(&server, "GracefulNodeShutdownInProgress")["status"], "True");
    assert_eq!(condition(&server, "DrainInProgress")["status"], "True");
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
}

/// Its status, its lease and its cordon are a node's own affair, some labels are not.
#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_nodes_from_some_labels_gets_everything_else() {
    let server = ApiServer::in_memory().unwrap();
    let agent = Agent::start_as(restricted(&server), facts(), NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    agent.facts.send_modify(|facts| {
        facts.labels.insert("first".into(), "1".into());
        facts.labels.insert("node-restriction.kubernetes.io/a".into(), "1".into());
        facts.capacity.get_mut("cpu").unwrap().0 = "8".into();
    });
    agent.handle.set_ready(Err("why".into()));
    sleep(Duration::from_secs(10)).await;
    let node = there(&server);
    assert_eq!(node["metadata"]["labels"]["first"], "1");
    assert_eq!(node["status"]["capacity"]["cpu"], "8");
    assert_eq!(ready_is(&server).1, "why");
    assert!(server.get(LEASE).is_some());
    assert!(agent.handle.state().borrow().refused.is_some());
    agent.handle.set_shutting_down(true);
    agent.told().await;
    let spec = there(&server)["spec"].clone();
    assert_eq!((spec.get("taints"), &spec["unschedulable"]), (None, &json!(true)));
}

/// Mirror pods name the UID of the Node object as their owner's.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_that_others_create_again_is_known_by_its_new_uid() {
    let (server, agent) = ready().await;
    server.remove(NODE);
    sleep(Duration::from_secs(1)).await;
    let state = agent.handle.state();
    assert!(state.borrow().deleted && state.borrow().uid.is_none());
    apply(&server, json!({}));
    sleep(Duration::from_secs(1)).await;
    assert!(!state.borrow().deleted);
    assert_eq!(state.borrow().uid.as_deref(), there(&server)["metadata"]["uid"].as_str());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_stays_deleted_unless_it_is_wanted_again() {
    for (registration, comes_back) in [(Registration::AtStart, false), (Registration::Always, true)]
    {
        let server = ApiServer::in_memory().unwrap();
        let settings = NodeSettings { registration, ..NodeSettings::default() };
        let agent = Agent::start_with(&server, facts(), settings);
        agent.handle.set_ready(Ok(()));
        agent.told().await;
        let uid = there(&server)["metadata"]["uid"].clone();
        sleep(Duration::from_secs(1)).await;
        let lease = server.get(LEASE).unwrap()["metadata"]["uid"].clone();
        server.remove(NODE);
        sleep(Duration::from_secs(400)).await;
        assert_eq!(server.get(NODE).is_some(), comes_back);
        let state = agent.handle.state().borrow().clone();
        assert_eq!(state.deleted, !comes_back);
        assert_eq!(agent.handle.server_node().borrow().is_some(), comes_back);
        if comes_back {
            assert_eq!(state.registrations, 2);
            let new = there(&server)["metadata"]["uid"].clone();
            assert_ne!(new, uid);
            assert_eq!(ready_is(&server).0, "True");
            let new_lease = server.get(LEASE).unwrap();
            assert_eq!(new_lease["metadata"]["ownerReferences"][0]["uid"], new);
            assert_ne!(new_lease["metadata"]["uid"], lease, "a new lease");
        }
    }
}

/// Answers after a second, like a runtime that is asked which pods run.
struct Slow;

impl Ping for Slow {
    async fn ping(&self) -> Result<(), String> {
        sleep(Duration::from_secs(1)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_renews_the_lease_of_a_ready_node_without_a_complaint() {
    let server = ApiServer::in_memory().unwrap();
    Agent::ready(&server).await.stop.cancel();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) =
        NodeController::builder(client(&server), NAME, told, clock()).ping(Slow).build().unwrap();
    handle.set_ready(Ok(()));
    tokio::spawn(controller.run(CancellationToken::new()));
    let mut state = handle.state();
    let complaint = state.wait_for(|state| state.lease_problem.is_some());
    let complaint = timeout(Duration::from_secs(60), complaint).await;
    assert!(complaint.is_err(), "{complaint:?}");
    assert!(handle.state().borrow().lease_renewals >= 5);
}

/// After a restart of the agent, the watch lists the node before what runs the pods has answered.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_finds_first_is_registered_and_stays_deleted_when_it_is() {
    let server = ApiServer::in_memory().unwrap();
    Agent::ready(&server).await.stop.cancel();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) =
        NodeController::builder(client(&server), NAME, told, clock()).ping(Slow).build().unwrap();
    tokio::spawn(controller.run(CancellationToken::new()));
    sleep(Duration::from_secs(2)).await;
    let uid = handle.state().borrow().uid.clone();
    assert_eq!(uid.as_deref(), there(&server)["metadata"]["uid"].as_str());
    server.remove(NODE);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(server.get(NODE), None);
    let state = handle.state().borrow().clone();
    assert!(state.deleted && state.uid.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_is_not_registered() {
    let server = ApiServer::in_memory().unwrap();
    let settings = NodeSettings { registration: Registration::Always, ..NodeSettings::default() };
    let agent = Agent::start_with(&server, facts(), settings);
    agent.handle.set_shutting_down(true);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(server.get(NODE), None);
}

/// kubernetes/kubernetes#103086: silence alone would leave pods on a node that cannot run them.
#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_only_while_the_api_knows_how_things_are() {
    let (server, agent) = ready().await;
    server.fault(Fault::on("patch", "nodes/status").status(403));
    agent.handle.set_ready(Err("container runtime is down".into()));
    sleep(Duration::from_secs(15)).await;
    let renewals = server.count("update", "leases");
    sleep(Duration::from_secs(120)).await;
    assert_eq!(server.count("update", "leases"), renewals, "not renewed");
    assert!(agent.handle.state().borrow().lease_problem.is_some());
    server.lift_all();
    agent.told().await;
    sleep(Duration::from_secs(60)).await;
    assert!(server.count("update", "leases") > renewals + 4, "it says not ready, and lives");
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_refused_is_tried_again_and_not_faster_than_the_kubelet() {
    let (server, _agent) = ready().await;
    server.fault(Fault::on("*", "leases").status(500));
    sleep(Duration::from_secs(600)).await;
    let tries = server.count("get", "leases");
    assert!((60..300).contains(&tries), "{tries}");
    server.lift_all();
    let before = server.count("update", "leases");
    sleep(Duration::from_secs(11)).await;
    assert!(server.count("update", "leases") > before);
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
    let server = ApiServer::in_memory().unwrap();
    let runtime = Runtime::default();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) = NodeController::builder(client(&server), NAME, told, clock())
        .ping(runtime.clone())
        .build()
        .unwrap();
    handle.set_ready(Ok(()));
    tokio::spawn(controller.run(CancellationToken::new()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ready_is(&server), ("False".into(), "container runtime is down".into()));
    runtime.0.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(ready_is(&server).0, "True");
    runtime.0.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(ready_is(&server).0, "False");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_announced_although_what_runs_the_pods_has_not_answered_yet() {
    struct Silent;
    impl Ping for Silent {
        async fn ping(&self) -> Result<(), String> {
            std::future::pending().await
        }
    }
    let server = ApiServer::in_memory().unwrap();
    Agent::ready(&server).await.stop.cancel();
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) =
        NodeController::builder(client(&server), NAME, told, clock()).ping(Silent).build().unwrap();
    tokio::spawn(controller.run(CancellationToken::new()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ready_is(&server).0, "True", "an agent that knows nothing yet says nothing");
    handle.set_shutting_down(true);
    handle.flush(Instant::now() + Duration::from_secs(1)).await.unwrap();
    assert_eq!(condition(&server, "GracefulNodeShutdownInProgress")["status"], "True");
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
    let server = ApiServer::in_memory().unwrap();
    let pings = Counted::default();
    let (facts, told) = watch::channel(facts());
    let settings = NodeSettings { lease: None, ..NodeSettings::default() };
    let (controller, handle) = NodeController::builder(client(&server), NAME, told, clock())
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

/// Another client writes the lease, which belongs to the node of this UID.
fn apply_lease(server: &ApiServer, node_uid: &str) -> Arc<Value> {
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": NAME, "uid": node_uid });
    let metadata =
        json!({ "name": NAME, "namespace": "kube-node-lease", "ownerReferences": [owner] });
    let (version, kind) = ("coordination.k8s.io/v1", "Lease");
    server.apply(json!({ "apiVersion": version, "kind": kind, "metadata": metadata })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_took_the_place_of_an_earlier_nodes_is_not_deleted_for_it() {
    let server = ApiServer::in_memory().unwrap();
    apply_lease(&server, "earlier");
    let held = server.fault(Fault::on("delete", "leases").hold());
    let agent = Agent::ready(&server).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.count("delete", "leases"), 1);
    assert!(server.remove(LEASE));
    let node = there(&server)["metadata"]["uid"].as_str().unwrap().to_owned();
    let replaced = apply_lease(&server, &node)["metadata"]["uid"].clone();
    server.lift(held);
    sleep(Duration::from_secs(15)).await;
    assert_eq!(server.get(LEASE).unwrap()["metadata"]["uid"], replaced);
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_an_earlier_node_that_may_not_be_deleted_is_taken_over() {
    let server = ApiServer::in_memory().unwrap();
    apply_lease(&server, "earlier");
    server.fault(Fault::on("delete", "leases").status(403));
    let agent = Agent::ready(&server).await;
    sleep(Duration::from_secs(15)).await;
    let lease = server.get(LEASE).unwrap();
    let owners = lease["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["uid"], there(&server)["metadata"]["uid"]);
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_node_one_of_whose_labels_is_forbidden_gets_the_others_and_its_taints() {
    let server = ApiServer::in_memory().unwrap();
    let mut facts = NodeFacts { taints: vec![taint("a", "1")], ..facts() };
    facts.labels.insert("node-restriction.kubernetes.io/a".into(), "1".into());
    facts.labels.insert("example.com/rack".into(), "r1".into());
    facts.annotations.insert("example.com/note".into(), "n".into());
    let agent = Agent::start_as(restricted(&server), facts, NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(ready_is(&server).0, "True");
    assert_eq!(there(&server)["spec"]["taints"][0]["key"], "a");
    sleep(Duration::from_secs(10)).await;
    let metadata = there(&server)["metadata"].clone();
    let labels = json!({ "kubernetes.io/hostname": "n1", "example.com/rack": "r1" });
    assert_eq!(metadata["labels"], labels);
    assert_eq!(metadata["annotations"]["example.com/note"], "n");
    let refused = agent.handle.state().borrow().refused.clone().unwrap();
    for part in ["without the labels node-restriction.kubernetes.io/a: ", "not allowed to modify"] {
        assert!(refused.contains(part), "{refused}");
    }
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
    let server = ApiServer::in_memory().unwrap();
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
        NodeController::builder(client(&server), NAME, told, clock).build().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(controller.run(stop.clone()));
    handle.set_ready(Ok(()));
    handle.flush(Instant::now() + Duration::from_secs(20)).await.unwrap();
    handle.set_shutting_down(true);
    is_armed.store(true, Ordering::Relaxed);
    handle.flush(Instant::now() + Duration::from_secs(20)).await.unwrap();
    assert_eq!(ready_is(&server).0, "False");
    stop.cancel();
    running.await.unwrap();
}
