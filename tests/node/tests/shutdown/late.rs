//! A lock that is asked for when the shutdown has been announced.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Suite, on_each_release};

on_each_release!(a_late_lock_is_refused_and_changes_nothing: refuses_a_late_lock);

async fn refuses_a_late_lock(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, seconds: [30, 4, 4], ..Setup::default() };
    // The first group leaves time to ask, on a busy machine too.
    let mut pods = seven_pods();
    pods[0].stop_ms = 10_000;
    let Some(mut scenario) = Scenario::installed_as(test, pods, &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    // What the stand-in for logind does, and every lock of winddown's counts on.
    for mode in ["delay", "block"] {
        let late = "busctl call org.freedesktop.login1 /org/freedesktop/login1 \
                    org.freedesktop.login1.Manager Inhibit ssss shutdown late why";
        let refused = scenario.node.exec(&["sh", "-c", &format!("{late} {mode}")], LIMIT).await?;
        assert!(!refused.status.success(), "{mode}: {}", refused.stdout);
        assert!(refused.stderr.contains("already running"), "{mode}: {}", refused.stderr);
    }
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    let (_, last_exit) = scenario.assert_ended_in_order()?;
    scenario.lock_outlived(last_exit).await?;
    scenario.assert_systemd_killed_nothing().await
}

const LIMIT: Duration = Duration::from_secs(10);
