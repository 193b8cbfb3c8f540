//! The node goes down.

use k8s_openapi::api::core::v1::NodeCondition;
use serde_json::json;

use super::*;
use crate::node::{DRAIN_IN_PROGRESS, DRAINED, DrainingNode, SHUTDOWN_IN_PROGRESS};

/// KEP-6249: both conditions in one request, before any pod is requested to stop.
#[tokio::test(start_paused = true)]
async fn the_start_of_a_shutdown_is_one_status_and_one_cordon_at_once() {
    let (server, agent) = ready().await;
    sleep(Duration::from_secs(100)).await;
    let before = server.count("patch", "nodes/status");
    let t0 = Instant::now();
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(t0.elapsed(), Duration::ZERO);
    let written = sent(&server, "patch", "nodes/status");
    assert_eq!(written.len(), before + 1, "one request");
    let conditions = written[before].body["status"]["conditions"].clone();
    let told: Vec<_> = conditions
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["status"] == "True" || one["type"] == "Ready")
        .map(|one| format!("{}={} {}", one["type"], one["status"], one["reason"]))
        .collect();
    assert_eq!(
        told,
        [
            r#""GracefulNodeShutdownInProgress"="True" "NodeShutdown""#,
            r#""DrainInProgress"="True" "NodeShutdown""#,
            r#""Ready"="False" "KubeletNotReady""#,
        ]
    );
    assert_eq!(ready_is(&server).1, "node is shutting down");
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_interrupts_a_write_that_hangs() {
    let (server, agent) = ready().await;
    server.fault(Fault::on("patch", "nodes/status").times(1).hang());
    agent.handle.set_pressure(vec![winddown_shared::PressureCondition::Memory]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(condition(&server, "MemoryPressure")["status"], "False", "it hangs");
    let t0 = Instant::now();
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(t0.elapsed(), Duration::ZERO);
    assert_eq!(condition(&server, "MemoryPressure")["status"], "True");
    assert_eq!(condition(&server, SHUTDOWN_IN_PROGRESS)["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_an_api_server_is_not_held_up() {
    let (server, agent) = ready().await;
    server.fault(Fault::on("*", "*").hang());
    let t0 = Instant::now();
    agent.handle.set_shutting_down(true);
    assert_eq!(t0.elapsed(), Duration::ZERO, "the kill path goes on");
    let told = agent.handle.flush(t0 + Duration::from_secs(3)).await;
    assert_eq!(
        told.unwrap_err().to_string(),
        "the API server does not know the node's conditions and cordon yet"
    );
    assert_eq!(t0.elapsed(), Duration::from_secs(3));
    // The server comes back while the node is still going down.
    sleep(Duration::from_secs(60)).await;
    server.lift_all();
    let back = Instant::now();
    agent.told().await;
    assert!(back.elapsed() <= Duration::from_secs(15), "{:?}", back.elapsed());
    assert_eq!(ready_is(&server).1, "node is shutting down");
}

/// A condition of the facts is the last write of a shutdown.
#[tokio::test(start_paused = true)]
async fn what_the_facts_say_is_written_before_a_flush_resolves() {
    let (server, agent) = ready().await;
    let clean = NodeCondition {
        type_: "winddown.dev/CleanShutdown".into(),
        status: "True".into(),
        ..NodeCondition::default()
    };
    agent.facts.send_modify(|facts| facts.conditions.push(clean));
    agent.told().await;
    assert_eq!(condition(&server, "winddown.dev/CleanShutdown")["status"], "True");
    agent.facts.send_modify(|facts| facts.conditions.clear());
    agent.told().await;
    assert_eq!(condition(&server, "winddown.dev/CleanShutdown"), Value::Null);
}

/// The API server comes back during the shutdown of a node that it does not know yet.
#[tokio::test(start_paused = true)]
async fn a_shutdown_before_the_node_is_registered_has_nothing_to_tell() {
    let server = ApiServer::in_memory().unwrap();
    server.fault(Fault::on("*", "*").hang());
    let agent = Agent::start(&server);
    sleep(Duration::from_secs(1)).await;
    agent.handle.set_shutting_down(true);
    sleep(Duration::from_secs(1)).await;
    server.lift_all();
    let back = Instant::now();
    agent.told().await;
    assert!(back.elapsed() <= Duration::from_secs(6), "{:?}", back.elapsed());
    assert_eq!(server.get(NODE), None, "no node is registered that goes down");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_takes_everything_back() {
    let (server, agent) = ready().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    agent.handle.set_shutting_down(false);
    agent.told().await;
    assert_eq!(ready_is(&server).0, "True");
    assert_eq!(condition(&server, SHUTDOWN_IN_PROGRESS)["status"], "False");
    assert_eq!(condition(&server, DRAIN_IN_PROGRESS)["status"], "False");
    assert_eq!(there(&server)["spec"]["unschedulable"], json!(null));
    assert_eq!(there(&server)["metadata"]["annotations"].get(crate::node::CORDONED_BY), None);
}

/// The next agent clears what a shutdown left, in the write that says Ready.
#[tokio::test(start_paused = true)]
async fn after_the_boot_the_conditions_of_the_shutdown_are_cleared_before_the_node_is_ready() {
    let (server, agent) = ready().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    agent.stop.cancel();
    let mut facts = facts();
    facts.info.boot_id = "boot-2".into();
    let agent = Agent::start_with(&server, facts, NodeSettings::default());
    agent.told().await;
    assert_eq!(condition(&server, SHUTDOWN_IN_PROGRESS)["status"], "False");
    assert_eq!(condition(&server, DRAIN_IN_PROGRESS)["status"], "False");
    assert_eq!(ready_is(&server).0, "False");
    assert_eq!(there(&server)["spec"]["unschedulable"], true, "not ready yet");
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(there(&server)["spec"]["unschedulable"], json!(null));
}

/// kubernetes/kubernetes#122674: an agent that is restarted in the middle of a shutdown.
#[tokio::test(start_paused = true)]
async fn a_restart_in_mid_shutdown_neither_clears_nor_uncordons() {
    let (server, agent) = ready().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    agent.stop.cancel();
    let mark = there(&server)["metadata"]["annotations"].clone();
    let agent = Agent::start(&server);
    agent.handle.set_shutting_down(true);
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(condition(&server, SHUTDOWN_IN_PROGRESS)["status"], "True");
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
    assert_eq!(there(&server)["metadata"]["annotations"], mark);
}

#[tokio::test(start_paused = true)]
async fn a_drain_leaves_the_node_ready_and_says_how_far_it_is() {
    let (server, agent) = ready().await;
    agent.handle.set_draining(DrainingNode::InProgress);
    agent.told().await;
    assert_eq!(ready_is(&server).0, "True");
    assert_eq!(condition(&server, DRAIN_IN_PROGRESS)["status"], "True");
    assert_ne!(condition(&server, DRAINED)["status"], "True", "pods still run");
    assert_eq!(there(&server)["spec"]["unschedulable"], true);
    agent.handle.set_draining(DrainingNode::Done);
    agent.told().await;
    assert_eq!(condition(&server, DRAIN_IN_PROGRESS)["status"], "False");
    assert_eq!(condition(&server, DRAINED)["status"], "True");
    assert_eq!(there(&server)["spec"]["unschedulable"], true, "it is kept empty");
    agent.handle.set_draining(DrainingNode::No);
    agent.told().await;
    assert_eq!(condition(&server, DRAINED)["status"], "False");
    assert_eq!(there(&server)["spec"]["unschedulable"], json!(null));
}
