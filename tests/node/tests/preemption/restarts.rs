//! The agent goes away while room is made, and comes back afterwards.

use std::collections::BTreeMap;

use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{PodLog, TestPod, read_pod_log};

use super::full::three_classes;
use super::room::{Asks, CRITICAL, pod_like, put, wait_running};

#[tokio::test]
async fn an_agent_killed_while_pods_end_for_another_makes_the_room_all_the_same() -> TestResult {
    let test = "an_agent_killed_while_pods_end_for_another_makes_the_room_all_the_same";
    let Some(scenario) = Scenario::installed_with(test, three_classes()).await? else {
        return Ok(());
    };
    let [_, burstable, guaranteed] = &scenario.pods[..] else { return Err("three pods".into()) };
    put(&scenario, burstable, Some(&Asks::little(false)))?;
    put(&scenario, guaranteed, Some(&Asks::little(true)))?;
    scenario.start().await?;
    scenario.all_pods_are("Running").await?;
    let old = scenario.status().await?["node"]["pid"].clone();

    let dns = pod_like(&scenario, "dns", CRITICAL);
    put(&scenario, &dns, Some(&Asks::everything()?))?;
    scenario.someone_is_asked().await?;
    let kill = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"];
    scenario.node.run(&kill).await?;
    scenario.another_agent_than(&old).await?;
    wait_running(&scenario, &dns).await?;
    the_room_was_made(&all_logs(&scenario, &dns))?;

    // Those that ended for it do not come back with the next agent: there is no room for them.
    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    scenario.another_agent_than(&old).await?;
    let refused = async || {
        let status = scenario.status().await.unwrap_or_default();
        status["rejected"].as_array().is_some_and(|rejected| rejected.len() == 2)
    };
    scenario.node.wait_until("both to be refused", SOON, refused).await?;
    wait_running(&scenario, &dns).await?;
    the_room_was_made(&all_logs(&scenario, &dns))
}

fn all_logs(scenario: &Scenario, dns: &TestPod) -> BTreeMap<String, PodLog> {
    let all = [&scenario.pods[..], std::slice::from_ref(dns)].concat();
    read_pod_log(&scenario.node, &all)
}

/// Nobody runs beside the critical pod but the one that asks for nothing.
fn the_room_was_made(logs: &BTreeMap<String, PodLog>) -> TestResult {
    let [(started, _)] = logs["dns"].starts[..] else { return Err(format!("{logs:?}").into()) };
    for name in ["burstable", "guaranteed"] {
        let log = &logs[name];
        // One that the new agent found gone by itself it may have started again, and ended again.
        assert_eq!(log.starts.len(), log.exits.len(), "{name} runs, or was killed: {logs:?}");
        assert!(log.exits.iter().all(|exit| *exit < started), "{name} ran beside it: {logs:?}");
        assert!(log.starts.iter().all(|(start, _)| *start < started), "{logs:?}");
    }
    let best = &logs["best-effort"];
    assert_eq!((best.starts.len(), best.terms.len()), (1, 0), "{logs:?}");
    assert!(logs["dns"].terms.is_empty(), "{logs:?}");
    Ok(())
}
