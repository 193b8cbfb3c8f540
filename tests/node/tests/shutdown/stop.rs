//! The unit is stopped: on a machine that stays up, and on one that goes down without logind.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, Setup, TestResult, twenty_pods};
use winddown_node_tests::{Suite, on_each_release};

on_each_release!(
    stopping_the_unit_on_a_running_machine_leaves_the_pods_and_a_start_finds_them: leaves_the_pods
);

async fn leaves_the_pods(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, twenty_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.untouched_pids().await?;
    scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    assert_eq!(scenario.untouched_pids().await?, before);
    assert!(!scenario.lock_is_listed().await, "nobody is left who would release the lock");
    scenario.start().await?;
    assert_eq!(scenario.untouched_pids().await?, before);
    Ok(())
}

on_each_release!(since 257, a_lock_that_systemd_preserves_outlives_a_stopped_agent: outlives_a_stop);

/// Why the unit does not have it.
async fn outlives_a_stop(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, Vec::new(), &setup).await? else {
        return Ok(());
    };
    let drop_in = "[Service]\nFileDescriptorStorePreserve=yes\n";
    scenario.node.write("/etc/systemd/system/winddown.service.d/test.conf", drop_in, 0o644)?;
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    scenario.start().await?;
    scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    assert!(scenario.lock_is_listed().await, "systemd let go of it");
    Ok(())
}

#[tokio::test]
async fn a_machine_that_goes_down_without_logind_still_ends_its_pods_in_order() -> TestResult {
    let test = "a_machine_that_goes_down_without_logind_still_ends_its_pods_in_order";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    scenario.node.run(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await
}

#[tokio::test]
async fn an_agent_that_is_stopped_as_soon_as_it_was_started_passes_over_no_pod() -> TestResult {
    let test = "an_agent_that_is_stopped_as_soon_as_it_was_started_passes_over_no_pod";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    // It is ready when it has the lock, which is before it has found all that runs.
    let go = "systemctl restart winddown && systemctl start --no-block poweroff.target";
    scenario.node.run(&["sh", "-c", go]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await
}
