//! A power-off that logind announces.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, TestResult, seven_pods, twenty_pods};

#[tokio::test]
async fn a_power_off_ends_all_containers_in_order_then_releases_the_lock_and_leaves_a_report()
-> TestResult {
    let test =
        "a_power_off_ends_all_containers_in_order_then_releases_the_lock_and_leaves_a_report";
    let Some(mut scenario) = Scenario::with_containerd(test, twenty_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    // Each pod is a container and its sandbox.
    assert_eq!(scenario.node.containers().await?.len(), 40);

    let asked = scenario.power_off().await?;
    scenario.assert_clean_power_off(asked).await?;
    Ok(())
}

#[tokio::test]
async fn a_machine_that_goes_down_without_logind_still_ends_its_containers_in_order() -> TestResult
{
    let test = "a_machine_that_goes_down_without_logind_still_ends_its_containers_in_order";
    let Some(mut scenario) = Scenario::with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    scenario.node.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await
}
