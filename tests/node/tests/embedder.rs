//! An agent of an embedder on a real node: the example of `winddown-node`, in the unit of its README.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{
    Flavour, Node, Process, Suite, TestPod, base_or_skip, example_agent, install_pods,
};

const README: &str = include_str!("../../../node/README.md");
const COMMAND: [&str; 2] = ["/usr/bin/example-agent", "/var/lib/my-agent"];
const REPORTS: &str = "/var/lib/my-agent/state/reports";

/// The unit of the README, for this command.
fn unit() -> TestResult<String> {
    let (_, rest) = README.split_once("```ini\n").ok_or("the README has no unit")?;
    let (unit, _) = rest.split_once("```").ok_or("the unit does not end")?;
    let unit =
        unit.replace("ExecStart=/usr/bin/my-agent", &format!("ExecStart={}", COMMAND.join(" ")));
    assert!(unit.contains(COMMAND[0]), "{unit}");
    Ok(unit)
}

/// Three ordinary pods and one of the node itself: the example allows four.
fn pods() -> Vec<TestPod> {
    let ordinary = [500, 1000, 2500].into_iter().enumerate();
    let ordinary =
        ordinary.map(|(n, ms)| TestPod::new(format!("web-{n}"), 1000 * i32::from(n == 2), ms));
    ordinary.chain([TestPod::new("agent-0", 2_000_000_000, 300)]).collect()
}

fn process(node: &Node) -> Option<Process> {
    node.process(&COMMAND)
}

#[tokio::test]
async fn the_example_agent_killed_in_a_shutdown_is_started_again_and_finishes_it() -> TestResult {
    let test = "the_example_agent_killed_in_a_shutdown_is_started_again_and_finishes_it";
    let Some(base) = base_or_skip(test, Suite::Bookworm.with(Flavour::Plain)).await? else {
        return Ok(());
    };
    let mut node = Node::create(&base).await?;
    node.install(&example_agent().await?, COMMAND[0])?;
    let pods = pods();
    install_pods(&node, &pods)?;
    for pod in &pods {
        let path = format!("{}/pods/{}.json", COMMAND[1], pod.name);
        node.write(&path, pod.manifest(), 0o644)?;
    }
    node.write("/etc/systemd/system/my-agent.service", unit()?, 0o644)?;
    node.start().await?;
    let mut scenario = Scenario { node, pods };

    // It is ready when it holds the lock.
    scenario.node.run(&["systemctl", "start", "my-agent"]).await?;
    scenario.wait_started(4).await?;
    let locks = scenario.node.run(&["systemd-inhibit", "--list", "--no-legend"]).await?;
    assert!(locks.lines().any(|line| line.contains("example-agent")), "{locks}");
    let drop_in = scenario.node.read("/etc/systemd/logind.conf.d/zz-example-agent.conf")?;
    assert!(drop_in.starts_with("# Written by example-agent's agent."), "{drop_in}");

    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    process(&scenario.node).ok_or("the agent has no process")?.kill()?;
    scenario.node.wait_off(2 * SOON).await?;

    let logs = scenario.logs();
    for (name, log) in &logs {
        assert_eq!((log.starts.len(), log.exits.len()), (1, 1), "{name}: {log:?}");
    }
    let last = &logs["agent-0"];
    let ordinary = logs.iter().filter(|(name, _)| *name != "agent-0");
    let exits = ordinary.flat_map(|(_, log)| &log.exits).max().ok_or("no pod exited")?;
    assert!(last.terms[0] >= *exits, "the node's own pod was asked too early: {logs:?}");
    scenario.lock_outlived(last.exits[0]).await?;
    scenario.assert_logind_was_patient().await?;
    scenario
        .assert_systemd_killed_nothing_but(&["status=9/KILL", "Failed with result 'signal'"])
        .await?;
    let reports = std::fs::read_dir(scenario.node.host_path(REPORTS))?;
    let reports: Vec<_> = reports.collect::<Result<_, _>>()?;
    assert_eq!(reports.len(), 1, "one shutdown, one report: {reports:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(reports[0].path())?)?;
    assert_eq!(report["outcome"], "clean", "{report:#}");
    assert_eq!(report["trigger"], "loginManager", "{report:#}");
    assert_eq!(report["resumedMs"].as_array().map(Vec::len), Some(1), "{report:#}");
    Ok(())
}
