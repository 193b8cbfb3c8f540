//! A power-off that logind announces.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, TestResult};

#[tokio::test]
async fn a_power_off_ends_all_pods_in_order_then_releases_the_lock_and_leaves_a_report()
-> TestResult {
    let test = "a_power_off_ends_all_pods_in_order_then_releases_the_lock_and_leaves_a_report";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
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
    let text = scenario.text(&["report"]).await?;
    for pod in &scenario.pods {
        assert!(text.contains(&pod.name), "{} is missing in:\n{text}", pod.name);
    }
    Ok(())
}
