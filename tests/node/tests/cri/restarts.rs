//! Restarts of the agent while its containers run.

use std::time::Duration;

use winddown_node_tests::scenario::{LOCK_BACK, SOON, Scenario, TestResult, twenty_pods};

const KILL: [&str; 5] = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"];

#[tokio::test]
async fn an_agent_that_is_restarted_or_killed_finds_its_containers_and_makes_none_twice()
-> TestResult {
    let test = "an_agent_that_is_restarted_or_killed_finds_its_containers_and_makes_none_twice";
    let Some(mut scenario) = Scenario::with_containerd(test, twenty_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.node.containers().await?;
    assert_eq!(before.len(), 40, "a container and a sandbox for each pod: {before:?}");

    let restart: &[&str] = &["systemctl", "restart", "winddown"];
    for how in [restart, &KILL] {
        let old = scenario.status().await?["node"]["pid"].clone();
        scenario.node.run(how).await?;
        let took = scenario.another_agent_than(&old).await?;
        println!("lock back after {how:?}: {took:?}");
        assert!(took < LOCK_BACK, "the lock was away for {took:?}");
        scenario.all_pods_are("Running").await?;
        assert_eq!(scenario.node.containers().await?, before);
    }
    scenario.assert_nothing_was_asked()?;

    // What was adopted ends like what was started.
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario.assert_ended_in_order()?;
    let expected = ["on client request", "Failed with result 'signal'"];
    scenario.assert_systemd_killed_nothing_but(&expected).await
}

#[tokio::test]
async fn an_agent_killed_while_its_pods_start_makes_no_container_twice() -> TestResult {
    let test = "an_agent_killed_while_its_pods_start_makes_no_container_twice";
    let Some(scenario) = Scenario::with_containerd(test, twenty_pods()).await? else {
        return Ok(());
    };
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    for started in [0, 5, 10] {
        let took = scenario.wait_started(started).await?;
        println!("{started} pods run after {took:?}");
        let old = scenario.status().await?["node"]["pid"].clone();
        scenario.node.run(&KILL).await?;
        scenario.another_agent_than(&old).await?;
    }
    let took = scenario.wait_started(scenario.pods.len()).await?;
    println!("all pods run {took:?} after the last agent came");
    scenario.all_pods_are("Running").await?;
    // containerd gives a start up when whoever asked for it goes away, and kills what it had begun:
    // such a container is started anew. Two at the same time there may not be.
    for (name, log) in scenario.logs() {
        assert!(log.terms.is_empty(), "{name} was asked to terminate: {log:?}");
        if log.starts.len() > 1 {
            println!("{name} was started {} times", log.starts.len());
        }
    }
    // A start that containerd is just giving up leaves a pod without its container for a moment.
    let wanted = 2 * scenario.pods.len();
    let mut most = 0;
    let whole = async || {
        let running = scenario.node.containers().await.unwrap_or_default().len();
        most = most.max(running);
        running == wanted
    };
    scenario.node.wait_until("every pod to have its container", SOON, whole).await?;
    assert!(most <= wanted, "{most} containers and sandboxes ran at a time");
    Ok(())
}
