//! An agent that comes beside a containerd that does not answer: what runs is not known to it.

use std::time::Duration;

use winddown_node_tests::scenario::{Scenario, TestResult, seven_pods};

const STOP: [&str; 5] = ["systemctl", "kill", "--signal=STOP", "--kill-whom=main", "containerd"];
const KILL: [&str; 5] = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"];

#[tokio::test]
async fn pods_of_a_restarted_agent_end_in_order_by_signal_while_containerd_is_suspended()
-> TestResult {
    let test = "pods_of_a_restarted_agent_end_in_order_by_signal_while_containerd_is_suspended";
    let Some(mut scenario) = Scenario::with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    scenario.node.run(&STOP).await?;
    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&KILL).await?;
    scenario.another_agent_than(&old).await?;
    let said = scenario.text(&["status"]).await?;
    assert!(said.contains("running pods are not known yet"), "{said}");
    assert!(!said.contains("no pods"), "{said}");
    let said = scenario.text(&["plan", "shutdown"]).await?;
    assert!(!said.contains("no pods to terminate"), "{said}");

    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    let journal = scenario.node.journal(&["--unit=winddown"]).await?;
    let released = scenario.lock_released_at().await?;
    for (name, log) in scenario.logs() {
        assert_eq!(log.terms.len(), 1, "{name}: {log:?}\n{journal}");
        assert!(log.terms[0] < released, "{name} was asked by systemd: {log:?}\n{journal}");
    }
    let (_, last_exit) = scenario.assert_ended_within(Duration::from_secs(7))?;
    assert!(last_exit < released, "the lock was held until the last pod was gone");
    scenario.assert_logind_was_patient().await?;

    let report = scenario.report_after_next_boot().await?;
    assert_eq!(report["podsUnknown"], true, "{report}");
    assert_eq!(report["outcome"], "incomplete", "{report}");
    let groups = report["groups"].as_array().into_iter().flatten();
    let pods = groups.map(|group| group["pods"].as_array().map_or(0, Vec::len)).sum::<usize>();
    assert_eq!(pods, 7, "every pod is named: {report}");
    Ok(())
}
