//! A shutdown that was announced and does not come.
//!
//! logind takes its word back in three ways. Where its own job fails (here: `poweroff.target` was
//! masked meanwhile) it sends `PrepareForShutdown(false)`, though only once the last delay lock is
//! gone. Where it is restarted it forgets the shutdown, sends nothing, and is no longer preparing.
//! And `shutdown -c` does nothing to a shutdown that has begun on systemd 252, while since systemd 256
//! it calls it off at once and sends no signal either.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{
    GROUPS, SOON, Scenario, Setup, TestResult, not_well, twenty_pods,
};
use winddown_node_tests::{Suite, TestPod, on_each_release};

on_each_release!(
    when_logind_fails_to_power_off_the_lock_is_taken_again_and_pods_are_let_in: fails_to_power_off
);

async fn fails_to_power_off(test: &str, suite: Suite) -> TestResult {
    let Some(mut scenario) = running(test, suite).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&["systemctl", "mask", "--runtime", "poweroff.target"]).await?;
    let gave_up = async || {
        let said = scenario.node.journal(&["--unit=systemd-logind"]).await.unwrap_or_default();
        said.contains("poweroff.target is masked")
    };
    scenario.node.wait_until("logind to give up", SOON, gave_up).await?;
    scenario.lock_is_back().await?;
    let status = scenario.status().await?;
    assert_ne!(status["shutdown"]["phase"], "running", "{status}");
    // The node stays up, so its pods are wanted again.
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    scenario.node.wait_until("the pods to be back", SOON, again).await?;

    let late = TestPod::new("late", 0, 100);
    winddown_node_tests::install_pods(&scenario.node, std::slice::from_ref(&late))?;
    scenario.pods = vec![late];
    let runs = async || scenario.logs().values().all(|log| log.starts.len() == 1);
    scenario.node.wait_until("a pod that came after the cancel to run", SOON, runs).await?;

    // And the next announcement counts again.
    scenario.node.run(&["systemctl", "unmask", "--runtime", "poweroff.target"]).await?;
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let log = &scenario.logs()["late"];
    assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{log:?}");
    Ok(())
}

on_each_release!(
    when_logind_forgets_the_shutdown_midway_the_groups_not_yet_asked_are_spared: forgets_it
);

async fn forgets_it(test: &str, suite: Suite) -> TestResult {
    // The first group must outlast logind's restart, also on a busy machine.
    let mut pods = twenty_pods();
    for pod in pods.iter_mut().filter(|pod| pod.priority == GROUPS[0]) {
        pod.stop_ms *= 3;
    }
    let Some(scenario) = running_pods(test, suite, pods).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    let ended = async || scenario.group(GROUPS[0]).iter().all(|log| log.exits.len() == 1);
    scenario.node.wait_until("the first group, which was asked, to end", SOON, ended).await?;
    scenario.lock_is_back().await?;
    let idle = async || {
        let status = scenario.status().await;
        status.is_ok_and(|status| status["shutdown"]["phase"] != "running")
    };
    scenario.node.wait_until("the run to end", SOON, idle).await?;
    for priority in &GROUPS[1..] {
        for log in scenario.group(*priority) {
            assert!(log.terms.is_empty(), "a pod of group {priority} was asked: {log:?}");
        }
    }
    Ok(())
}

on_each_release!(
    since 257,
    shutdown_c_is_followed_within_a_second_and_the_node_is_as_before: follows_shutdown_c
);

async fn follows_shutdown_c(test: &str, suite: Suite) -> TestResult {
    let Some(mut scenario) = running(test, suite).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    let cancel = "date +%s%N && shutdown -c";
    let cancelled: u64 = scenario.node.run(&["sh", "-c", cancel]).await?.trim().parse()?;
    let heard = scenario.said_after(cancelled, "the shutdown was cancelled").await?;
    assert!(heard - cancelled < 1_000_000_000, "{} ms", (heard - cancelled) / 1_000_000);
    let held = scenario.said_after(cancelled, "holding logind's delay lock").await?;
    assert!(held - cancelled < 1_000_000_000, "{} ms", (held - cancelled) / 1_000_000);
    scenario.lock_is_back().await?;

    let again = async || scenario.group(GROUPS[0]).iter().all(|log| log.starts.len() == 2);
    scenario.node.wait_until("the pods that were terminated to be back", SOON, again).await?;
    for priority in &GROUPS[1..] {
        for log in scenario.group(*priority) {
            assert!(log.terms.is_empty(), "a pod of group {priority} was asked: {log:?}");
        }
    }
    // Past the look that comes once a minute nothing was waited for.
    let status = scenario.status().await?;
    assert_ne!(status["shutdown"]["phase"], "running", "{status}");
    assert_eq!(status["lock"]["state"], "held", "{status}");
    // A Debian 13 in a container has no controllers, and the doctor says that limits are not enforced.
    let doctor = scenario.node.exec(&["winddown", "doctor", "-o", "json"], SOON).await?;
    let said: Value = serde_json::from_str(&doctor.stdout)?;
    let bad: Vec<&Value> = not_well(&said).filter(|finding| finding["id"] != "limits").collect();
    assert!(bad.is_empty(), "{bad:?}");

    // And the next announcement counts again.
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    for log in scenario.logs().values() {
        assert_eq!(log.terms.len(), log.starts.len(), "{log:?}");
        assert_eq!(log.exits.len(), log.starts.len(), "{log:?}");
    }
    Ok(())
}

#[tokio::test]
async fn shutdown_c_of_systemd_252_changes_nothing_once_the_shutdown_has_begun() -> TestResult {
    let test = "shutdown_c_of_systemd_252_changes_nothing_once_the_shutdown_has_begun";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&["shutdown", "-c"]).await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await
}

/// A node of this release with all pods running and the lock held.
async fn running(test: &str, suite: Suite) -> TestResult<Option<Scenario>> {
    running_pods(test, suite, twenty_pods()).await
}

async fn running_pods(
    test: &str,
    suite: Suite,
    pods: Vec<TestPod>,
) -> TestResult<Option<Scenario>> {
    let setup = Setup { suite, ..Setup::default() };
    let scenario = Scenario::installed_as(test, pods, &setup).await?;
    if let Some(scenario) = &scenario {
        scenario.start().await?;
    }
    Ok(scenario)
}
