//! Who decides how long logind waits, and what follows when it is not the agent.

use std::time::Duration;

use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods, twenty_pods};

const OURS: &str = "/etc/systemd/logind.conf.d/zz-winddown.conf";

#[tokio::test]
async fn a_foreign_drop_in_that_allows_three_seconds_shrinks_the_plan_and_is_named() -> TestResult {
    let test = "a_foreign_drop_in_that_allows_three_seconds_shrinks_the_plan_and_is_named";
    // Pods that can make it in the little time there is: 0.4 s at most.
    let mut pods = twenty_pods();
    for pod in &mut pods {
        pod.stop_ms /= 3;
    }
    let Some(mut scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    let foreign = "/etc/systemd/logind.conf.d/zzz-site.conf";
    scenario.node.write(foreign, "[Login]\nInhibitDelayMaxSec=3\n", 0o644)?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    scenario.start().await?;

    let status = scenario.status().await?;
    assert_eq!(status["lock"]["delaySeconds"], 3.0, "{status}");
    assert_eq!(status["lock"]["setBy"], foreign, "{status}");
    let plan = &status["shutdownPlan"];
    assert_eq!(plan["requestedSeconds"], 14.0, "{status}");
    assert!(plan["availableSeconds"].as_f64().is_some_and(|s| s < 3.0), "{status}");
    let text = scenario.text(&["status"]).await?;
    assert!(text.contains("zzz-site.conf"), "{text}");

    let asked = scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(20)).await?;
    let (_, last_exit) = scenario.assert_ended_in_order()?;
    assert!(last_exit - asked < 3_000_000_000, "pods were still running when logind went on");
    scenario.assert_systemd_killed_nothing().await
}

/// systemd stops the agent's unit at once then, and waits for it.
#[tokio::test]
async fn with_a_delay_of_zero_pods_keep_their_grace_and_order() -> TestResult {
    let test = "with_a_delay_of_zero_pods_keep_their_grace_and_order";
    let mut pods = seven_pods();
    (pods[0].stop_ms, pods[0].grace_seconds) = (8_000, 20);
    let setup = Setup { seconds: [20, 4, 4], ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, pods, &setup).await? else {
        return Ok(());
    };
    let foreign = "/etc/systemd/logind.conf.d/zzz-site.conf";
    scenario.node.write(foreign, "[Login]\nInhibitDelayMaxSec=0\n", 0o644)?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    scenario.start().await?;
    let status = scenario.status().await?;
    assert_eq!(status["lock"]["delaySeconds"], 0.0, "{status}");

    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(30)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await?;
    // The stop of the unit may be there before logind's word.
    let report = scenario.newest_report()?;
    let told = report["warnings"].to_string().contains("did not wait for this agent");
    assert!(told || report["trigger"] == "unitStop", "{report}");
    Ok(())
}

#[tokio::test]
async fn where_etc_is_read_only_the_delay_is_set_in_run() -> TestResult {
    let test = "where_etc_is_read_only_the_delay_is_set_in_run";
    let Some(scenario) = Scenario::installed(test).await? else { return Ok(()) };
    let freeze = "rm -f /etc/systemd/logind.conf.d/*winddown* \
                  && mount --bind /etc/systemd/logind.conf.d /etc/systemd/logind.conf.d \
                  && mount -o remount,bind,ro /etc/systemd/logind.conf.d \
                  && systemctl restart systemd-logind";
    scenario.node.run(&["sh", "-c", freeze]).await?;
    scenario.start().await?;
    let status = scenario.status().await?;
    let delay = status["lock"]["delaySeconds"].as_f64().ok_or("no delay in status")?;
    assert!((delay - scenario.logind_delay().await?).abs() < f64::EPSILON, "{status}");
    assert!(delay >= 14.0, "{status}");
    Ok(())
}

#[tokio::test]
async fn a_masked_drop_in_is_left_masked_and_status_tells_the_truth() -> TestResult {
    let test = "a_masked_drop_in_is_left_masked_and_status_tells_the_truth";
    let Some(scenario) = Scenario::installed(test).await? else { return Ok(()) };
    let mask = "ln -sf /dev/null /etc/systemd/logind.conf.d/zz-winddown.conf \
                && systemctl restart systemd-logind";
    scenario.node.run(&["sh", "-c", mask]).await?;
    scenario.start().await?;
    let link =
        scenario.node.run(&["readlink", "/etc/systemd/logind.conf.d/zz-winddown.conf"]).await?;
    assert_eq!(link.trim(), "/dev/null");
    let status = scenario.status().await?;
    let delay = status["lock"]["delaySeconds"].as_f64().ok_or("no delay in status")?;
    assert!((delay - scenario.logind_delay().await?).abs() < f64::EPSILON, "{status}");
    assert!(delay < 14.0, "{status}");
    assert!(status["shutdownPlan"]["availableSeconds"].as_f64().is_some_and(|s| s <= delay));
    Ok(())
}

#[tokio::test]
async fn another_packages_longer_delay_stays_with_winddown_on_and_with_winddown_switched_off()
-> TestResult {
    let test =
        "another_packages_longer_delay_stays_with_winddown_on_and_with_winddown_switched_off";
    let Some(scenario) = Scenario::installed_with(test, seven_pods()).await? else { return Ok(()) };
    // Another package's minute, and our file as versions before this one left it.
    let other = "/usr/lib/systemd/logind.conf.d/another-package.conf";
    scenario.node.write(other, "[Login]\nInhibitDelayMaxSec=60\n", 0o644)?;
    let left_behind = "# Installed by winddown.\n[Login]\nInhibitDelayMaxSec=22\n";
    scenario.node.write(OURS, left_behind, 0o644)?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    assert!((scenario.logind_delay().await? - 22.0).abs() < f64::EPSILON);
    scenario.start().await?;
    becomes(&scenario, 60.0).await?;
    assert!(!scenario.node.host_path(OURS).exists());
    let status = scenario.status().await?;
    assert_eq!(status["lock"]["delaySeconds"], 60.0, "{status}");

    // The other package goes: what the configuration asks for is given all the same.
    std::fs::remove_file(scenario.node.host_path(other))?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    let ours =
        async || scenario.logind_delay().await.is_ok_and(|delay| (14.0..40.0).contains(&delay));
    scenario.node.wait_until("the agent's own file to count", SOON, ours).await?;

    // Switched off, winddown leaves no trace in logind, whoever else is there.
    scenario.node.write(other, "[Login]\nInhibitDelayMaxSec=60\n", 0o644)?;
    let off = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\n\
               shutdownGracePeriod: 0s\n";
    scenario.node.write("/etc/winddown/config.yaml", off, 0o644)?;
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    becomes(&scenario, 60.0).await?;
    assert!(!scenario.node.host_path(OURS).exists());
    std::fs::remove_file(scenario.node.host_path(other))?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind", "winddown"]).await?;
    becomes(&scenario, 5.0).await?;
    assert!(!scenario.node.host_path(OURS).exists());
    Ok(())
}

/// Waits until logind gives so many seconds.
async fn becomes(scenario: &Scenario, seconds: f64) -> TestResult {
    let there = async || {
        let delay = scenario.logind_delay().await;
        delay.is_ok_and(|delay| (delay - seconds).abs() < f64::EPSILON)
    };
    scenario.node.wait_until(&format!("logind to give {seconds} s"), SOON, there).await?;
    Ok(())
}
