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
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let (first_term, last_exit) = scenario.assert_ended_in_order()?;
    scenario.assert_first_term_soon(asked, first_term);
    scenario.assert_lock_released_soon(last_exit).await?;
    scenario.assert_systemd_killed_nothing().await?;

    let report = scenario.report_after_next_boot().await?;
    assert_eq!(report["outcome"], "clean", "{report}");
    assert_eq!(report["trigger"], "loginManager");
    let pods = report["groups"].as_array().into_iter().flatten();
    let pods = pods.map(|group| group["pods"].as_array().map_or(0, Vec::len));
    assert_eq!(pods.collect::<Vec<_>>(), [10, 6, 4], "{report}");
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
