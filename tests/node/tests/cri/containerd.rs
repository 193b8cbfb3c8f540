//! A containerd that is killed, restarted or suspended, with pods running and in a shutdown.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{IMAGE_WITH_ODD_SIGNAL, TestPod, hold_pods, install_pods, let_pods_end};

const KILL: [&str; 5] = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "containerd"];
const STOP: [&str; 5] = ["systemctl", "kill", "--signal=STOP", "--kill-whom=main", "containerd"];
const START: [&str; 3] = ["systemctl", "start", "containerd"];
/// What systemd says because this test killed containerd.
const EXPECTED: [&str; 2] = ["on client request", "Failed with result 'signal'"];

#[tokio::test]
async fn containers_outlive_a_killed_containerd_and_the_agent_goes_on_with_the_next() -> TestResult
{
    let test = "containers_outlive_a_killed_containerd_and_the_agent_goes_on_with_the_next";
    let Some(mut scenario) = Scenario::with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let boot = scenario.node.run(&["cat", "/proc/sys/kernel/random/boot_id"]).await?;
    assert_eq!(scenario.status().await?["node"]["bootId"], boot.trim(), "not that of the host");
    let before = scenario.node.containers().await?;
    scenario.node.run(&KILL).await?;
    scenario.node.run(&START).await?;
    scenario.node.containerd_answers().await?;
    assert_eq!(scenario.node.containers().await?, before);

    // Away for longer, and needed meanwhile.
    scenario.node.run(&["systemctl", "stop", "containerd"]).await?;
    let late = TestPod::new("late", 0, 100).in_container();
    install_pods(&scenario.node, std::slice::from_ref(&late))?;
    scenario.pods.push(late);
    let noticed = async || {
        let status = scenario.text(&["status"]).await;
        status.is_ok_and(|text| text.contains("does not answer"))
    };
    let took = scenario.node.wait_until("status to say so", SOON, noticed).await?;
    println!("containerd missed after {took:?}");
    scenario.node.run(&START).await?;
    let took = scenario.wait_started(scenario.pods.len()).await?;
    println!("the late pod runs {took:?} after containerd came back");
    scenario.all_pods_are("Running").await?;
    scenario.assert_nothing_was_asked()?;
    let after = scenario.node.containers().await?;
    assert_eq!(after.len(), before.len() + 2, "{after:?}");
    assert!(before.iter().all(|(id, pid)| after.get(id) == Some(pid)), "{before:?}\n{after:?}");

    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing_but(&EXPECTED).await
}

#[tokio::test]
async fn a_containerd_killed_and_restarted_in_the_middle_of_a_shutdown_changes_no_order()
-> TestResult {
    let test = "a_containerd_killed_and_restarted_in_the_middle_of_a_shutdown_changes_no_order";
    // containerd comes back while the first pods are still ending, however long that takes it.
    let setup = Setup { seconds: [30, 4, 4], ..Setup::default() };
    let Some(mut scenario) = Scenario::with_containerd_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    hold_pods(&scenario.node)?;
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&KILL).await?;
    scenario.node.run(&START).await?;
    let_pods_end(&scenario.node).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    // An exit code that the kernel does not tell is asked of the runtime, which is away: for 2 s at most.
    let (_, last_exit) = scenario.assert_ended_within(Duration::from_secs(3))?;
    for (name, log) in scenario.logs() {
        assert_eq!(log.terms.len(), 1, "{name}: {log:?}");
    }
    scenario.assert_lock_released_soon(last_exit).await?;
    scenario.assert_systemd_killed_nothing_but(&EXPECTED).await?;
    assert_eq!(scenario.report_after_next_boot().await?["outcome"], "clean");
    Ok(())
}

#[tokio::test]
async fn a_suspended_containerd_costs_only_the_pods_that_nobody_else_can_end() -> TestResult {
    let test = "a_suspended_containerd_costs_only_the_pods_that_nobody_else_can_end";
    let mut pods = seven_pods();
    for pod in &mut pods[..2] {
        pod.image = Some(IMAGE_WITH_ODD_SIGNAL.to_owned());
    }
    // Neither root's pods nor anyone else's need containerd to end.
    pods[2].user = Some(65534);
    let stuck: Vec<String> = pods[..2].iter().map(|pod| pod.name.clone()).collect();
    let Some(mut scenario) = Scenario::with_containerd(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    // A start that containerd has not answered is another story.
    scenario.all_pods_are("Running").await?;
    scenario.node.run(&STOP).await?;
    let asked = scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;

    // The budget is 14 s, and logind was told to wait for 16.
    let released = scenario.lock_released_at().await?;
    let heard = scenario.said_after(asked, "the node goes down").await?;
    let held = Duration::from_nanos(released - heard);
    println!("lock released {held:?} after the power-off was announced");
    assert!(held < Duration::from_secs(16), "the lock was held for {held:?}");
    let said = scenario.node.journal(&["--unit=systemd-logind"]).await?;
    assert!(!said.contains("timeout is reached"), "logind lost its patience:\n{said}");

    // systemd asks the two at the very end, when the lock is long gone.
    let everyone = std::mem::take(&mut scenario.pods);
    let (left, ended): (Vec<_>, Vec<_>) =
        everyone.into_iter().partition(|pod| stuck.contains(&pod.name));
    scenario.pods = left;
    for (name, log) in scenario.logs() {
        assert!(log.exits.iter().all(|exit| *exit > released), "{name}: {log:?}");
    }
    scenario.pods = ended;
    // The second group's turn comes when the first one's 6 s are over.
    scenario.assert_ended_within(Duration::from_secs(7))?;

    let report = scenario.report_after_next_boot().await?;
    assert_eq!(report["outcome"], "incomplete", "{report}");
    let mut named = not_ended(&report);
    named.sort();
    let stuck: Vec<String> = stuck.iter().map(|name| format!("{name}-winddown-node")).collect();
    assert_eq!(named, stuck, "{report}");
    Ok(())
}

/// The pods that a report says were left running.
fn not_ended(report: &Value) -> Vec<String> {
    let groups = report["groups"].as_array().into_iter().flatten();
    let pods = groups.flat_map(|group| group["pods"].as_array().into_iter().flatten());
    let left = pods.filter(|pod| pod["outcome"] == "stillRunning");
    left.filter_map(|pod| pod["name"].as_str().map(str::to_owned)).collect()
}
