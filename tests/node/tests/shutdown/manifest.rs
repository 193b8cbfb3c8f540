//! A manifest that is broken across a restart of the agent: its pod still runs.

use std::time::Duration;

use winddown_node_tests::scenario::{SOON, Scenario, TestResult, seven_pods};

const KILL: [&str; 5] = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"];
const BROKEN: &str = "queue-0";

/// A node with an agent that cannot read the manifest of a pod that runs.
async fn broken(test: &str) -> TestResult<Option<Scenario>> {
    let Some(scenario) = Scenario::installed_with(test, seven_pods()).await? else {
        return Ok(None);
    };
    scenario.start().await?;
    let manifest = format!("/etc/winddown/pods/{BROKEN}.json");
    scenario.node.write(&manifest, "{\"kind\": \"Pod\", ", 0o644)?;
    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&KILL).await?;
    scenario.another_agent_than(&old).await?;
    let planned = async || {
        let said = scenario.text(&["plan", "shutdown"]).await;
        said.is_ok_and(|said| said.contains("pods without a manifest"))
    };
    scenario.node.wait_until("the plan to have the pod", SOON, planned).await?;
    scenario.assert_nothing_was_asked()?;
    Ok(Some(scenario))
}

/// The pod was asked once, after all others had ended, and ended by itself; the report has it in a
/// group of its own.
async fn ended_in_its_own_group(scenario: &mut Scenario) -> TestResult {
    let logs = scenario.logs();
    for (name, log) in &logs {
        assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{name}: {log:?}");
    }
    let others = logs.iter().filter(|(name, _)| *name != BROKEN);
    let last = others.filter_map(|(_, log)| log.exits.first()).max();
    assert!(logs[BROKEN].terms.first() > last, "{logs:?}");
    scenario
        .assert_systemd_killed_nothing_but(&["on client request", "Failed with result 'signal'"])
        .await?;
    let report = scenario.report_after_next_boot().await?;
    assert_eq!(report["outcome"], "clean", "{report}");
    let groups = report["groups"].as_array().ok_or("groups")?;
    let own = groups.iter().find(|group| group["name"] == "pods without a manifest");
    let pods = own.and_then(|group| group["pods"].as_array()).ok_or("a group of its own")?;
    assert_eq!(pods.len(), 1, "{report}");
    let name = pods[0]["name"].as_str().unwrap_or_default();
    assert!(name.starts_with(BROKEN), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_pod_whose_manifest_was_broken_across_a_restart_is_ended_by_a_power_off() -> TestResult {
    let test = "a_pod_whose_manifest_was_broken_across_a_restart_is_ended_by_a_power_off";
    let Some(mut scenario) = broken(test).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    ended_in_its_own_group(&mut scenario).await
}

#[tokio::test]
async fn a_pod_whose_manifest_was_broken_is_ended_on_a_way_down_past_logind_too() -> TestResult {
    let test = "a_pod_whose_manifest_was_broken_is_ended_on_a_way_down_past_logind_too";
    let Some(mut scenario) = broken(test).await? else { return Ok(()) };
    scenario.node.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    ended_in_its_own_group(&mut scenario).await
}
