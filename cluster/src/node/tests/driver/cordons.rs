//! Who owns the cordon, against a server that others write to as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::*;
use crate::node::CORDONED_BY;
use crate::node::ping::Ping;

#[tokio::test(start_paused = true)]
async fn a_persons_cordon_is_there_after_the_shutdown_was_called_off() {
    let (server, agent) = ready().await;
    server.patch(NODE, &json!({ "spec": { "unschedulable": true } })).unwrap();
    agent.handle.set_shutting_down(true);
    agent.told().await;
    let written = sent(&server, "patch", "nodes");
    assert_eq!(written.len(), 0, "the answer to the status has told that a person was first");
    agent.handle.set_shutting_down(false);
    agent.told().await;
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
    assert_eq!(there(&server)["metadata"]["annotations"].get(CORDONED_BY), None);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_cordons_and_uncordons_while_the_node_goes_down_has_the_last_word() {
    let (server, agent) = ready().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    let mark = || there(&server)["metadata"]["annotations"][CORDONED_BY].clone();
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
    assert!(mark().as_str().unwrap().contains("boot-1"));
    server.patch(NODE, &json!({ "spec": { "unschedulable": null } })).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(mark().as_str().unwrap().contains("released"));
    server.patch(NODE, &json!({ "spec": { "unschedulable": true } })).unwrap();
    agent.handle.set_shutting_down(false);
    agent.told().await;
    assert_eq!(there(&server)["spec"]["unschedulable"], true, "the person's cordon stays");
    assert_eq!(mark(), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_cordon_of_ours_whose_mark_a_person_removed_is_theirs() {
    let (server, agent) = ready().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    server.patch(NODE, &json!({ "metadata": { "annotations": { CORDONED_BY: null } } })).unwrap();
    agent.handle.set_shutting_down(false);
    agent.told().await;
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn a_node_may_be_left_uncordoned_by_the_settings() {
    let server = ApiServer::in_memory().unwrap();
    let settings = NodeSettings { cordon_on_shutdown: false, ..NodeSettings::default() };
    let agent = Agent::start_with(&server, facts(), settings);
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(there(&server)["spec"]["unschedulable"], json!(null));
    assert_eq!(ready_is(&server).1, "node is shutting down");
}

#[tokio::test(start_paused = true)]
async fn a_cordon_that_the_server_forbids_is_not_awaited() {
    let (server, agent) = ready().await;
    server.fault(Fault::on("patch", "nodes").status(403));
    let t0 = Instant::now();
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(t0.elapsed(), Duration::ZERO);
    assert_eq!(condition(&server, "Ready")["status"], "False");
    assert_eq!(agent.handle.state().borrow().refused.as_deref(), Some("scripted failure 403"));
}

/// At the boot the agent is there before the container runtime is, and the kubelet says how that fares.
#[tokio::test(start_paused = true)]
async fn beside_a_kubelet_that_is_ready_the_cordon_goes_whatever_the_runtime_first_answered() {
    struct Unreachable;

    impl Ping for Unreachable {
        async fn ping(&self) -> Result<(), String> {
            Err("container runtime: nothing listens".into())
        }
    }

    let server = cordoned_in("boot-0");
    let (_facts, told) = watch::channel(facts());
    let (controller, handle) = NodeController::builder(client(&server), NAME, told, clock())
        .settings(NodeSettings::beside_kubelet())
        .ping(Unreachable)
        .build()
        .unwrap();
    tokio::spawn(controller.run(CancellationToken::new()));
    handle.set_ready(Ok(()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(there(&server)["spec"]["unschedulable"], true, "no kubelet of this boot reports");
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let kubelets = json!({ "nodeInfo": { "bootID": BOOT }, "conditions": ready });
    server.patch(NODE, &json!({ "status": kubelets })).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(there(&server)["spec"].get("unschedulable"), None);
    assert_eq!(there(&server)["metadata"]["annotations"].get(CORDONED_BY), None);
}

/// A soft-reboot keeps the boot id, and what the last kubelet reported stays for a while.
#[tokio::test(start_paused = true)]
async fn beside_a_kubelet_that_has_not_reported_since_a_soft_reboot_the_cordon_stays() {
    for ahead in [0, 3600] {
        let server = cordoned_in(BOOT);
        let reports = |at: i64| {
            let at = time(at);
            let ready = json!([{ "type": "Ready", "status": "True", "lastHeartbeatTime": at }]);
            let kubelets = json!({ "nodeInfo": { "bootID": BOOT }, "conditions": ready });
            server.patch(NODE, &json!({ "status": kubelets })).unwrap();
        };
        let (right, offset) = (clock(), Arc::new(AtomicU64::new(ahead)));
        let wall = {
            let offset = Arc::clone(&offset);
            let ahead = move || Duration::from_secs(offset.load(Ordering::Relaxed));
            WallClock::new(move || right.now().checked_add(ahead()).unwrap())
        };
        sleep(Duration::from_millis(10_500)).await;
        let up_since = Some(Instant::now());
        sleep(Duration::from_secs(5)).await;
        reports(9);
        let (_facts, told) = watch::channel(facts());
        let (controller, handle) = NodeController::builder(client(&server), NAME, told, wall)
            .settings(NodeSettings { up_since, ..NodeSettings::beside_kubelet() })
            .build()
            .unwrap();
        tokio::spawn(controller.run(CancellationToken::new()));
        handle.set_ready(Ok(()));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(there(&server)["spec"]["unschedulable"], true, "{ahead}");
        // NTP sets a clock that was ahead when the agent started.
        offset.store(0, Ordering::Relaxed);
        // A kubelet's times have no fractions.
        reports(10);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(there(&server)["spec"].get("unschedulable"), None, "{ahead}");
    }
}

/// A server with the node that a shutdown in `boot` has cordoned.
fn cordoned_in(boot: &str) -> ApiServer {
    let server = ApiServer::in_memory().unwrap();
    let mark = json!({ "boot": boot, "since": "2026-01-01T00:00:00Z", "reason": "shutdown" });
    apply(&server, json!({ "annotations": { CORDONED_BY: mark.to_string() } }));
    server.patch(NODE, &json!({ "spec": { "unschedulable": true } })).unwrap();
    server
}
