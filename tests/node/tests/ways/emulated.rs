//! What takes a machine, if only an emulated one: a power key, and a kernel that starts another one.

use std::time::Duration;

use winddown_node_tests::scenario::{GROUPS, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Need, Suite, on_each_release};

/// Starting a program takes a second there, and pods write down what happens with several.
const GAP: Duration = Duration::from_secs(10);
/// More than a boot takes.
const LONG: Duration = Duration::from_secs(300);

on_each_release!(since 257, the_power_key_ends_all_pods_in_order: is_switched_off);
on_each_release!(
    since 257,
    a_kexec_ends_all_pods_in_order_and_the_next_kernel_has_them_again: starts_another_kernel
);

async fn is_switched_off(test: &str, suite: Suite) -> TestResult {
    let Some(mut scenario) = emulated(test, suite).await? else { return Ok(()) };
    scenario.node.press_power_key()?;
    scenario.node.wait_off(LONG).await?;
    let (_, last_exit) = scenario.assert_ended_within(GAP)?;
    scenario.lock_outlived(last_exit).await?;
    scenario.assert_logind_was_patient().await?;
    scenario.assert_systemd_killed_nothing().await?;
    let said = scenario.node.journal(&["--unit=systemd-logind"]).await?;
    assert!(said.contains("Power key pressed"), "{said}");
    let report = scenario.newest_report()?;
    assert_eq!(report["trigger"], "loginManager", "{report}");
    assert_eq!(report["nodeAction"], "powerOff", "{report}");
    assert_eq!(report["outcome"], "clean", "{report}");
    Ok(())
}

async fn starts_another_kernel(test: &str, suite: Suite) -> TestResult {
    let Some(mut scenario) = emulated(test, suite).await? else { return Ok(()) };
    scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
    let boot = boot_id(&scenario).await?;
    scenario.node.run(&["sh", "-c", "kexec --load /boot/vmlinuz-* --reuse-cmdline"]).await?;
    scenario.node.shut_down(&["systemctl", "kexec"]).await?;

    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    if let Err(error) = scenario.node.wait_until("the pods to be back", LONG, again).await {
        return Err(format!("{error}\n{}", scenario.node.console()).into());
    }
    assert_ne!(boot_id(&scenario).await?, boot);
    let mut last = 0;
    for priority in GROUPS {
        for log in scenario.group(priority) {
            assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{log:?}");
            assert!(log.terms[0] > last, "asked before the group before had terminated: {log:?}");
        }
        last = scenario.group(priority).iter().map(|log| log.exits[0]).max().unwrap_or(last);
    }
    let report = scenario.newest_report()?;
    assert_eq!(report["trigger"], "loginManager", "{report}");
    assert_eq!(report["nodeAction"], "kexec", "{report}");
    assert_eq!(report["outcome"], "clean", "{report}");
    let status = scenario.status().await?;
    assert_eq!(status["lastBoot"]["graceful"], true, "{status}");
    scenario.power_off().await?;
    scenario.node.wait_off(LONG).await?;
    Ok(())
}

/// A node that has both, on which all pods run and the lock is held.
async fn emulated(test: &str, suite: Suite) -> TestResult<Option<Scenario>> {
    let needs = &[Need::PowerKey, Need::Kexec];
    let setup = Setup { suite, needs, seconds: [20, 20, 20], ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(None);
    };
    scenario.start().await?;
    Ok(Some(scenario))
}

async fn boot_id(scenario: &Scenario) -> TestResult<String> {
    Ok(scenario.node.run(&["cat", "/proc/sys/kernel/random/boot_id"]).await?)
}
