//! A machine without a D-Bus daemon, and so without logind.

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Suite, on_each_release};

on_each_release!(services_end_in_order_on_a_machine_without_a_bus: goes_down_without_a_bus);

async fn goes_down_without_a_bus(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::with_services_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    let without = "systemctl mask --now dbus.socket dbus.service systemd-logind.service";
    scenario.node.run(&["sh", "-c", without]).await?;
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.wait_started(scenario.pods.len()).await?;

    scenario.node.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
    scenario.node.wait_off(SOON).await?;
    scenario.assert_ended_in_order()?;
    let report: Value = scenario.newest_report()?;
    assert_eq!(report["trigger"], "unitStop", "{report}");
    assert_eq!(report["nodeAction"], "powerOff", "{report}");
    assert_eq!(report["outcome"], "clean", "{report}");
    scenario.assert_systemd_killed_nothing().await
}
