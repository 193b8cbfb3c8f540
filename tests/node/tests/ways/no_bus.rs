//! A machine without a D-Bus daemon, or without logind.

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

#[tokio::test]
async fn a_masked_logind_is_absent_and_has_a_lock_to_hold_once_it_is_started() -> TestResult {
    let test = "a_masked_logind_is_absent_and_has_a_lock_to_hold_once_it_is_started";
    let Some(scenario) = Scenario::installed_with(test, seven_pods()).await? else { return Ok(()) };
    let units = "systemd-logind.service dbus-org.freedesktop.login1.service";
    let mask = format!("systemctl mask --now {units}");
    scenario.node.run(&["sh", "-c", &mask]).await?;
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    let absent = async || {
        let status = scenario.status_from_outside().await;
        status.is_ok_and(|status| status["lock"]["state"] == "absent")
    };
    scenario.node.wait_until("logind to be absent", SOON, absent).await?;
    let start = format!("systemctl unmask {units}; systemctl start systemd-logind");
    scenario.node.run(&["sh", "-c", &start]).await?;
    scenario.lock_is_back().await?;
    // Five calls in 1.5 s, and no more since.
    let said = scenario.node.journal(&["--grep=org.freedesktop.login1"]).await?;
    let asked = said.lines().filter(|line| line.contains("Activating via systemd")).count();
    println!("asked for {asked} times");
    assert!(asked <= 10, "{said}");
    Ok(())
}
