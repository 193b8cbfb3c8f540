//! The program `examples/agent.rs`, which README.md shows: its pods end for each reason that it has controllers for.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "example/bus.rs"]
mod bus;
#[path = "example/program.rs"]
mod program;

use std::time::Duration;

use bus::PrivateBus;
use program::{Agent, LIMIT, NO_BUS};
use winddown_control::api::{PodState, PodStatus, Status};
use winddown_shared::ShutdownKind;
use winddown_systemd::stand_in::StandIn;

/// Starts the example.
fn start(pods: &[(&str, i32)], options: &[&str]) -> Agent {
    Agent::start("agent", pods, options, NO_BUS)
}

async fn until_ready(agent: &Agent, count: usize) -> Status {
    let ready = |status: &Status| status.pods.iter().filter(|pod| pod.ready).count() == count;
    agent.until(&format!("{count} pods ready"), ready).await
}

fn pod<'a>(status: &'a Status, name: &str) -> Option<&'a PodStatus> {
    status.pods.iter().find(|pod| pod.name.starts_with(&format!("{name}-")))
}

fn ended(status: &Status, name: &str, reason: &str) -> bool {
    pod(status, name).is_some_and(|pod| pod.state == PodState::Finished && pod.reason == reason)
}

#[tokio::test]
async fn a_pod_of_a_manifest_is_evicted_where_memory_is_short() {
    let agent = start(&[("batch", 0), ("web", 1000)], &["1Pi"]);
    agent.until("the pod evicted", |status| ended(status, "batch", "Evicted")).await;
    let metrics = agent.metrics();
    let counted = "\nkubelet_evictions{eviction_signal=\"memory.available\"} ";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_pod_ends_for_a_critical_one_that_does_not_fit() {
    let pods = [("a", 0), ("b", 10), ("c", 10), ("d", 10)];
    let agent = start(&pods, &[]);
    until_ready(&agent, 4).await;
    agent.add("dns", 2_000_000_000);
    let status = agent.until("one preempted", |status| ended(status, "a", "Preempting")).await;
    assert_eq!(status.node.product.as_deref(), Some("example-agent"));
    agent
        .until("the critical pod ready", |status| pod(status, "dns").is_some_and(|dns| dns.ready))
        .await;
}

#[tokio::test]
async fn a_controller_of_its_own_ends_pods() {
    let agent = start(&[("web", 0)], &["100Mi", "1"]);
    agent.until("the pod too old", |status| ended(status, "web", "TooOld")).await;
    let metrics = agent.metrics();
    assert!(
        metrics.contains("\nexample_agent_plugin_terminations_total{plugin=\"max-age\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("\nkubelet_active_pods{"), "{metrics}");
    assert!(!metrics.contains("winddown"), "{metrics}");
}

#[tokio::test]
async fn its_pods_end_before_the_machine_goes_down() {
    let test = "its_pods_end_before_the_machine_goes_down";
    if !bus::is_there() {
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test}: dbus-daemon is missing");
        println!("SKIPPED: {test}: dbus-daemon is not installed (Debian package dbus)");
        return;
    }
    let bus = PrivateBus::start().await;
    let address = bus.address();
    let logind = StandIn::new(Duration::from_secs(60));
    let _on_bus = logind.serve_on(&address).await.unwrap();

    let agent = Agent::start("agent", &[("web", 0), ("db", 1000)], &[], &address);
    until_ready(&agent, 2).await;
    logind.until_locks(|locks| !locks.is_empty()).await;
    assert_eq!(logind.locks()[0].who, "example-agent");
    let outcome = tokio::time::timeout(LIMIT, logind.shutdown(ShutdownKind::PowerOff)).await;
    assert!(outcome.unwrap().late.is_empty(), "{}", agent.log());
    // The lock waits for the report as long as a disk needs that is not busy.
    let stored = async {
        loop {
            match agent.client().report("latest").await {
                Ok(report) => return report,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let report = tokio::time::timeout(LIMIT, stored).await.unwrap();
    assert_eq!(report["outcome"], "clean", "{report:#}");
    let groups = report["groups"].as_array().unwrap().iter();
    let pods = groups.flat_map(|group| group["pods"].as_array().unwrap());
    let ends: Vec<_> = pods.map(|pod| pod["outcome"].as_str().unwrap()).collect();
    assert_eq!(ends, ["exited", "exited"], "{report:#}");
}
