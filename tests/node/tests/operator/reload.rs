//! `systemctl reload`, typed by an operator.

use std::time::Duration;

use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{Scenario, TestResult};

const CONFIG: &str = "/etc/winddown/config.yaml";

#[tokio::test]
async fn a_reload_fails_where_the_configuration_is_invalid_and_the_agent_runs_on() -> TestResult {
    let test = "a_reload_fails_where_the_configuration_is_invalid_and_the_agent_runs_on";
    let pods = vec![TestPod::new("web", 0, 100)];
    let Some(scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    let unit = ["systemctl", "show", "winddown", "--property=ActiveState,MainPID,NRestarts"];
    let before = scenario.node.run(&unit).await?;
    let good = scenario.node.read(CONFIG)?;
    scenario.node.write(CONFIG, format!("{good}shutdownReserve: often\n"), 0o644)?;
    let reload = ["systemctl", "reload", "winddown"];
    let failed = scenario.node.exec(&reload, Duration::from_secs(30)).await?;
    assert!(!failed.status.success() && failed.stderr.contains("winddown.service"), "{failed:?}");
    scenario.said_after(0, "the configuration stays as it was").await?;
    scenario.node.write(CONFIG, good, 0o644)?;
    scenario.node.run(&reload).await?;
    scenario.said_after(0, "reload: ").await?;
    assert_eq!(scenario.node.run(&unit).await?, before);
    scenario.lock_is_back().await?;
    Ok(())
}
