//! Who decides how long logind waits, and what follows when it is not the agent.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, TestResult, twenty_pods};

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
    assert!((delay - logind_delay(&scenario).await?).abs() < f64::EPSILON, "{status}");
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
    assert!((delay - logind_delay(&scenario).await?).abs() < f64::EPSILON, "{status}");
    assert!(delay < 14.0, "{status}");
    assert!(status["shutdownPlan"]["availableSeconds"].as_f64().is_some_and(|s| s <= delay));
    Ok(())
}

/// The delay that logind itself says it grants, in seconds.
async fn logind_delay(scenario: &Scenario) -> TestResult<f64> {
    let said = scenario
        .node
        .run(&[
            "busctl",
            "get-property",
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            "InhibitDelayMaxUSec",
        ])
        .await?;
    let micros: u64 = said.trim().trim_start_matches("t ").parse()?;
    Ok(Duration::from_micros(micros).as_secs_f64())
}
