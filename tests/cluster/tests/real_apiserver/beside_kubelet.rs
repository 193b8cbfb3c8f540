//! Beside a real kubelet, on a node with containerd: what ends when, and what is started again.

mod api_server;
mod budget;
mod daemon_set;
mod embedded;
mod in_a_pod;
mod installed;
pub(crate) mod machine;
mod recorded;
mod shown;
pub(crate) mod table;
mod typed;
mod volumes;

use std::time::Duration;

use serde_json::json;

use winddown_node_tests::scenario::{Scenario, TestResult};

use machine::{Ends, Machine};

/// The kubelet's own graceful shutdown needs seconds between two groups.
const DOWN: Duration = Duration::from_secs(120);

/// Between two groups when something was lost on the way.
const LOST: Duration = Duration::from_secs(3);

/// Seconds, for people.
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// From the power-off to the first SIGTERM, also where the API server is silent.
const ASKED: Duration = Duration::from_secs(2);

/// After the last exit, for what an API server is told that answers nothing.
const TOLD: Duration = Duration::from_secs(3);

/// How much later systemd starts containerd again.
const RUNTIME_AWAY: Duration = Duration::from_secs(5);

/// Waits for the power-off that was asked for, and fails unless all pods ended in order, each once, with no more than
/// `gap` between two groups, and the static one last, and the lock went soon after that.
async fn ends_in_order(machine: &mut Machine, test: &str, asked: u64, gap: Duration) -> TestResult {
    ends_in_order_within(machine, test, asked, gap, TOLD).await
}

/// The same, with the time until the lock goes.
async fn ends_in_order_within(
    machine: &mut Machine,
    test: &str,
    asked: u64,
    gap: Duration,
    lock: Duration,
) -> TestResult {
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, machine);
    let (first, _) = machine.scenario.assert_ended_within(gap)?;
    let first = Duration::from_nanos(first.saturating_sub(asked));
    assert!(
        first < ASKED,
        "no pod was asked for {first:?}: {:#}",
        machine.scenario.newest_report()?
    );
    machine.assert_static_pod_was_last()?;
    let last = machine.log_of_static_pod()?.exits[0];
    let held = machine.scenario.lock_outlived(last).await?;
    assert!(held < lock, "the lock was held for {held:?} after the last exit");
    Ok(())
}

/// The first request and the last exit of each group since `asked`, static pods last.
fn say(what: &str, asked: u64, scenario: &Scenario, machine: &Machine) {
    println!("{what}: seconds since the power-off was asked for");
    for (group, pods) in machine.groups() {
        let logs = scenario.logs();
        let logs: Vec<_> = pods.iter().map(|pod| &logs[*pod]).collect();
        let first = logs.iter().flat_map(|log| &log.terms).min().copied();
        let last = logs.iter().flat_map(|log| &log.exits).max().copied();
        let starts: usize = logs.iter().map(|log| log.starts.len()).sum();
        let since = |at: Option<u64>| at.map(|at| seconds(at.saturating_sub(asked)));
        println!("  {group:9} {:?} to {:?}, {starts} starts", since(first), since(last));
    }
}

#[tokio::test]
async fn pods_end_in_order_each_once_and_static_ones_last() -> TestResult {
    let test = "pods_end_in_order_each_once_and_static_ones_last";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    machine.scenario.assert_ended_in_order()?;
    machine.assert_static_pod_was_last()?;
    assert_eq!(machine.scenario.newest_report()?["outcome"], "clean");
    Ok(())
}

#[tokio::test]
async fn without_the_api_server_pods_end_in_order_each_once() -> TestResult {
    let test = "without_the_api_server_pods_end_in_order_each_once";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    machine.cut_off().await;
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    machine.scenario.assert_ended_in_order()?;
    machine.assert_static_pod_was_last()?;
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_goes_away_in_the_middle_changes_no_order_and_starts_nothing_again()
-> TestResult {
    let test =
        "an_api_server_that_goes_away_in_the_middle_changes_no_order_and_starts_nothing_again";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.cut_off().await;
    ends_in_order(&mut machine, test, asked, LOST).await
}

#[tokio::test]
async fn with_a_silent_api_server_pods_end_in_order_each_once() -> TestResult {
    let test = "with_a_silent_api_server_pods_end_in_order_each_once";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    machine.silence();
    let asked = machine.scenario.power_off().await?;
    ends_in_order(&mut machine, test, asked, LOST).await
}

#[tokio::test]
async fn an_api_server_that_falls_silent_in_the_middle_changes_no_order_and_starts_nothing_again()
-> TestResult {
    let test =
        "an_api_server_that_falls_silent_in_the_middle_changes_no_order_and_starts_nothing_again";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.silence();
    ends_in_order(&mut machine, test, asked, LOST).await
}

#[tokio::test]
async fn a_kubelet_that_is_killed_in_the_middle_changes_no_order_and_starts_nothing_again()
-> TestResult {
    let test = "a_kubelet_that_is_killed_in_the_middle_changes_no_order_and_starts_nothing_again";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.kubelet()?.kill()?;
    ends_in_order(&mut machine, test, asked, LOST).await
}

/// Neither the kubelet nor winddown can have it ask a pod to exit, or kill one.
#[tokio::test]
async fn a_container_runtime_that_is_killed_at_the_beginning_changes_no_order_and_starts_nothing_again()
-> TestResult {
    let test = "a_container_runtime_that_is_killed_at_the_beginning_changes_no_order_and_starts_nothing_again";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    let containerd = machine.scenario.node.process(&["/usr/bin/containerd"]);
    let asked = machine.scenario.power_off().await?;
    containerd.ok_or("containerd has no process")?.kill()?;
    // Without it the kubelet frees no volume.
    ends_in_order_within(&mut machine, test, asked, LOST, RUNTIME_AWAY + TOLD).await
}

#[tokio::test]
async fn an_agent_that_is_killed_in_the_middle_goes_on_and_the_kubelet_starts_nothing_again()
-> TestResult {
    let test = "an_agent_that_is_killed_in_the_middle_goes_on_and_the_kubelet_starts_nothing_again";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.scenario.agent().await?.kill()?;
    ends_in_order(&mut machine, test, asked, LOST).await
}

/// The same pods by the kubelet's own graceful shutdown, for the figures beside ours.
#[tokio::test]
async fn the_kubelets_own_shutdown_of_the_same_pods() -> TestResult {
    let test = "the_kubelets_own_shutdown_of_the_same_pods";
    let Some(mut machine) = Machine::set(test, Ends::Kubelet).await? else { return Ok(()) };
    machine.assert_doctor_says(&json!("ok"), "kubelet delay").await?;
    machine.give_logind(5).await?;
    machine.assert_doctor_says(&json!("problem"), "/etc/systemd/logind.conf.d/zz.conf").await?;
    machine.give_logind(60).await?;
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    for (name, log) in machine.scenario.logs() {
        assert_eq!(log.exits.len(), 1, "{name}: {log:?}");
    }
    Ok(())
}
