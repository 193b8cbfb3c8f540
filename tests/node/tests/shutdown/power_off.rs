//! A power-off that logind announces.

use winddown_node_tests::scenario::{Scenario, TestResult};

#[tokio::test]
async fn a_power_off_ends_all_pods_in_order_then_releases_the_lock_and_leaves_a_report()
-> TestResult {
    let test = "a_power_off_ends_all_pods_in_order_then_releases_the_lock_and_leaves_a_report";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    let asked = scenario.power_off().await?;
    scenario.assert_clean_power_off(asked).await?;
    let text = scenario.text(&["report"]).await?;
    for pod in &scenario.pods {
        assert!(text.contains(&pod.name), "{} is missing in:\n{text}", pod.name);
    }
    Ok(())
}
