//! The unit is stopped: on a machine that stays up, and on one that goes down without logind.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, Setup, TestResult, twenty_pods};
use winddown_node_tests::{PodBehavior, Suite, TestPod, on_each_release};

on_each_release!(
    stopping_the_unit_on_a_running_machine_leaves_the_pods_and_a_start_finds_them: leaves_the_pods
);

async fn leaves_the_pods(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, twenty_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.untouched_pids().await?;
    scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    assert_eq!(scenario.untouched_pids().await?, before);
    assert!(!scenario.lock_is_listed().await, "nobody is left who would release the lock");
    scenario.start().await?;
    assert_eq!(scenario.untouched_pids().await?, before);
    Ok(())
}

on_each_release!(since 257, a_lock_that_systemd_preserves_outlives_a_stopped_agent: outlives_a_stop);

/// Why the unit does not have it.
async fn outlives_a_stop(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, Vec::new(), &setup).await? else {
        return Ok(());
    };
    let drop_in = "[Service]\nFileDescriptorStorePreserve=yes\n";
    scenario.node.write("/etc/systemd/system/winddown.service.d/test.conf", drop_in, 0o644)?;
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    scenario.start().await?;
    scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    assert!(scenario.lock_is_listed().await, "systemd let go of it");
    Ok(())
}

#[tokio::test]
async fn a_machine_that_goes_down_without_logind_still_ends_its_pods_in_order() -> TestResult {
    let test = "a_machine_that_goes_down_without_logind_still_ends_its_pods_in_order";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    scenario.node.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await
}

#[tokio::test]
async fn an_agent_that_is_stopped_as_soon_as_it_was_started_passes_over_no_pod() -> TestResult {
    let test = "an_agent_that_is_stopped_as_soon_as_it_was_started_passes_over_no_pod";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    // It is ready when it has the lock, which is before it has found all that runs.
    let go = "systemctl restart winddown && systemctl start --no-block poweroff.target";
    scenario.node.run(&["sh", "-c", go]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await
}

/// Process 1 is told to power off while the first group of a notice's run has ten minutes.
#[tokio::test]
async fn a_power_off_past_logind_shortens_the_run_of_a_notice_and_keeps_its_order() -> TestResult {
    let test = "a_power_off_past_logind_shortens_the_run_of_a_notice_and_keeps_its_order";
    let web = TestPod::new("web-0", 0, 100);
    let pods = vec![
        TestPod { grace_seconds: 300, behavior: PodBehavior::Deaf, ..web },
        TestPod::new("queue-0", 1000, 300),
        TestPod::new("agent-0", 2_000_000_000, 200),
    ];
    let Some(mut scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    let notice = ["systemd-run", "--collect", "winddown", "drain", "--deadline", "10m"];
    scenario.node.run(&notice).await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&["sh", "-c", "kill -RTMIN+4 1"]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    let logs = scenario.logs();
    let (queue, agent) = (&logs["queue-0"], &logs["agent-0"]);
    for log in [queue, agent] {
        assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{logs:?}");
    }
    assert!(queue.exits[0] < agent.terms[0], "{logs:?}");
    let report = scenario.newest_report()?;
    assert_eq!((&report["trigger"], &report["outcome"]), (&"notice".into(), &"forced".into()));
    Ok(())
}
