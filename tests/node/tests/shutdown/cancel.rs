//! A shutdown that was announced and does not come.
//!
//! logind takes its word back in two ways. Where its own job fails (here: `poweroff.target` was
//! masked meanwhile) it sends `PrepareForShutdown(false)`, though only once the last delay lock is
//! gone. Where it is restarted it forgets the shutdown, sends nothing, and is no longer preparing.

use std::time::Duration;

use winddown_node_tests::scenario::{GROUPS, SOON, Scenario, TestResult};

#[tokio::test]
async fn when_logind_fails_to_power_off_the_lock_is_taken_again_and_pods_are_let_in() -> TestResult
{
    let test = "when_logind_fails_to_power_off_the_lock_is_taken_again_and_pods_are_let_in";
    let Some(mut scenario) = Scenario::running(test).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&["systemctl", "mask", "--runtime", "poweroff.target"]).await?;
    let gave_up = async || {
        let said = scenario.node.journal(&["--unit=systemd-logind"]).await.unwrap_or_default();
        said.contains("poweroff.target is masked")
    };
    scenario.node.wait_until("logind to give up", SOON, gave_up).await?;
    scenario.lock_is_back().await?;
    let status = scenario.status().await?;
    assert_ne!(status["shutdown"]["phase"], "running", "{status}");
    // The node stays up, so its pods are wanted again.
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    scenario.node.wait_until("the pods to be back", SOON, again).await?;

    let late = winddown_node_tests::TestPod::new("late", 0, 100);
    winddown_node_tests::install_pods(&scenario.node, std::slice::from_ref(&late))?;
    scenario.pods = vec![late];
    let runs = async || scenario.logs().values().all(|log| log.starts.len() == 1);
    scenario.node.wait_until("a pod that came after the cancel to run", SOON, runs).await?;

    // And the next announcement counts again.
    scenario.node.run(&["systemctl", "unmask", "--runtime", "poweroff.target"]).await?;
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let log = &scenario.logs()["late"];
    assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{log:?}");
    Ok(())
}

#[tokio::test]
async fn when_logind_forgets_the_shutdown_midway_the_groups_not_yet_asked_are_spared() -> TestResult
{
    let test = "when_logind_forgets_the_shutdown_midway_the_groups_not_yet_asked_are_spared";
    let Some(scenario) = Scenario::running(test).await? else { return Ok(()) };
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    let ended = async || scenario.group(GROUPS[0]).iter().all(|log| log.exits.len() == 1);
    scenario.node.wait_until("the first group, which was asked, to end", SOON, ended).await?;
    scenario.lock_is_back().await?;
    let idle = async || {
        let status = scenario.status().await;
        status.is_ok_and(|status| status["shutdown"]["phase"] != "running")
    };
    scenario.node.wait_until("the run to end", SOON, idle).await?;
    for priority in &GROUPS[1..] {
        for log in scenario.group(*priority) {
            assert!(log.terms.is_empty(), "a pod of group {priority} was asked: {log:?}");
        }
    }
    Ok(())
}
