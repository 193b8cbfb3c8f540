//! The agent loses one of its tasks in the middle of a shutdown. That the panic of any of them ends it with this exit code
//! is a test of `winddown-daemon`; what ships cannot be made to panic, so here its process exits with the code.

use std::time::Duration;

use rustix::process::Signal;
use winddown_node_tests::scenario::{GROUPS, SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{TestPod, preload};

/// Long enough for the next agent in each group.
fn slow_pods() -> Vec<TestPod> {
    let ordinary = (0..2).map(|n| TestPod::new(format!("web-{n}"), GROUPS[0], 5000));
    let queues = (0..2).map(|n| TestPod::new(format!("queue-{n}"), GROUPS[1], 4000));
    let critical = [TestPod::new("agent-0", GROUPS[2], 3000)];
    ordinary.chain(queues).chain(critical).collect()
}

#[tokio::test]
async fn an_agent_that_loses_a_task_in_each_group_of_a_shutdown_costs_no_pod_its_turn() -> TestResult
{
    let test = "an_agent_that_loses_a_task_in_each_group_of_a_shutdown_costs_no_pod_its_turn";
    let setup = Setup { seconds: [20, 20, 12], ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, slow_pods(), &setup).await? else {
        return Ok(());
    };
    preload::into_agent(&scenario.node).await?;
    scenario.start().await?;

    scenario.power_off().await?;
    for priority in GROUPS {
        let asked = async || scenario.group(priority).iter().all(|log| !log.terms.is_empty());
        let what = format!("the pods of priority {priority} to be asked");
        scenario.node.wait_until(&what, SOON, asked).await?;
        let before = scenario.status_from_outside().await?["node"]["pid"].clone();
        scenario.agent().await?.send(Signal::USR2)?;
        let another = async || {
            let status = scenario.status_from_outside().await.unwrap_or_default();
            status["node"]["pid"].is_u64() && status["node"]["pid"] != before
        };
        let took = scenario.node.wait_until("another agent", SOON, another).await?;
        println!("{priority}: another agent after {took:?}");
        assert!(scenario.node.is_on(), "the lock was let go");
    }
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    let said = scenario.node.journal(&["--unit=winddown"]).await?;
    let exits = said.matches("code=exited, status=9").count();
    assert_eq!(exits, GROUPS.len(), "{said}");
    let (_, last) = scenario.assert_ended_within(Duration::from_secs(5))?;
    let held = scenario.lock_outlived(last).await?;
    println!("the lock outlived the last pod by {held:?}");
    scenario.assert_logind_was_patient().await?;
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report}");
    assert_eq!(report["resumedMs"].as_array().map(Vec::len), Some(GROUPS.len()), "{report}");
    Ok(())
}
