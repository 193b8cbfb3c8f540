//! Tasks of the agent panic in the middle of a shutdown, one after the other.

use std::time::Duration;

use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};

const FAULTS: &str = "/run/winddown-faults";

/// There are more, and each is tried.
const LEAST: [&str; 9] = [
    "changes of the runtime",
    "control server",
    "eviction",
    "intake",
    "login manager",
    "manifests",
    "shutdown controller",
    "timer of the pod workers",
    "watcher of a container",
];

/// Three groups of 25, 8 and 4 seconds: time enough for a dozen agents.
fn slow_pods() -> Vec<TestPod> {
    let ordinary = (0..2).map(|n| TestPod::new(format!("web-{n}"), 0, 25_000));
    let queues = (0..2).map(|n| TestPod::new(format!("queue-{n}"), 1000, 8000));
    let critical = [TestPod::new("agent-0", 2_000_000_000, 4000)];
    ordinary.chain(queues).chain(critical).collect()
}

#[tokio::test]
async fn a_panic_of_any_task_in_the_middle_of_a_shutdown_costs_no_pod_its_turn() -> TestResult {
    let test = "a_panic_of_any_task_in_the_middle_of_a_shutdown_costs_no_pod_its_turn";
    let setup = Setup { seconds: [40, 20, 12], ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, slow_pods(), &setup).await? else {
        return Ok(());
    };
    let drop_in =
        format!("[Service]\nEnvironment=WINDDOWN_FAULTS={FAULTS}\nReadWritePaths={FAULTS}\n");
    let make = format!("mkdir -p {FAULTS}/tasks {FAULTS}/panics && chmod -R 777 {FAULTS}");
    scenario.node.run(&["sh", "-c", &make]).await?;
    scenario.node.run(&["mkdir", "-p", "/etc/systemd/system/winddown.service.d"]).await?;
    scenario.node.write("/etc/systemd/system/winddown.service.d/99-faults.conf", drop_in, 0o644)?;
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    scenario.start().await?;
    let tasks = scenario.node.run(&["ls", "-1", &format!("{FAULTS}/tasks")]).await?;
    let tasks: Vec<String> = tasks.lines().map(str::to_owned).collect();
    println!("tasks: {tasks:?}");
    for task in LEAST {
        assert!(tasks.iter().any(|found| found == task), "{task} is not among {tasks:?}");
    }

    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    for task in &tasks {
        let before = scenario.status_from_outside().await?["node"]["pid"].clone();
        scenario.node.write(&format!("{FAULTS}/panics/{task}"), "", 0o666)?;
        let another = async || {
            let status = scenario.status_from_outside().await.unwrap_or_default();
            status["node"]["pid"].is_u64() && status["node"]["pid"] != before
        };
        let what = format!("another agent after the end of `{task}`");
        let took = scenario.node.wait_until(&what, SOON, another).await?;
        println!("{task}: another agent after {took:?}");
        assert!(scenario.node.is_on(), "the lock was let go");
    }
    scenario.node.wait_off(Duration::from_secs(120)).await?;
    let said = scenario.node.journal(&["--unit=winddown"]).await?;
    // One of them may be told of by the one that it fed, which ends with it: whichever is first.
    let told = said.matches("which is a bug; the agent ends and is started again").count();
    assert!(told >= tasks.len(), "{told} of {tasks:?}:\n{said}");
    let (_, last) = scenario.assert_ended_within(Duration::from_secs(5))?;
    let held = scenario.lock_outlived(last).await?;
    println!("the lock outlived the last pod by {held:?}");
    scenario.assert_logind_was_patient().await?;
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report}");
    assert!(report["resumedMs"].as_array().is_some_and(|r| r.len() > 2), "{report}");
    Ok(())
}
