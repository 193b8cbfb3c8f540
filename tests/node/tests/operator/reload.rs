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
    // A preview of what was written would be another than it seems.
    let plan = ["winddown", "plan", "shutdown", "-f", "/etc/winddown/pods"];
    let planned = scenario.node.exec(&plan, Duration::from_secs(30)).await?;
    assert!(planned.stderr.contains("using the last configuration in effect"), "{planned:?}");
    scenario.node.write(CONFIG, good, 0o644)?;
    scenario.node.run(&reload).await?;
    scenario.said_after(0, "reload: ").await?;
    assert_eq!(scenario.node.run(&unit).await?, before);
    scenario.lock_is_back().await?;
    Ok(())
}

/// The next start would have failed: it cost the node its lock.
#[tokio::test]
async fn a_configuration_with_which_no_agent_starts_here_is_not_called_valid() -> TestResult {
    let test = "a_configuration_with_which_no_agent_starts_here_is_not_called_valid";
    let pods = vec![TestPod::new("web", 0, 100)];
    let Some(scenario) = Scenario::with_services(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    let good = scenario.node.read(CONFIG)?;
    scenario.node.run(&["mkdir", "-p", "/srv/there"]).await?;
    for (wrong, why) in [
        ("controlSocketGroup: nobody-has-it", "there is no group nobody-has-it"),
        ("podLogsDir: /home/logs", "does not see /home/logs"),
        ("stateDirectory: /srv/winddown", "may not write to /srv/winddown"),
        ("stateDirectory: /srv/there", "may not write to /srv/there"),
        ("controlSocket: /home/w/w.sock", "does not see /home/w"),
    ] {
        let field = wrong.split_once(':').map_or(wrong, |(field, _)| field);
        let others = good.lines().filter(|line| !line.starts_with(field));
        let config = others.chain([wrong, ""]).collect::<Vec<_>>().join("\n");
        scenario.node.write(CONFIG, config, 0o644)?;
        let check = ["winddown", "config", "check"];
        let checked = scenario.node.exec(&check, Duration::from_secs(30)).await?;
        assert_eq!(checked.status.code(), Some(3), "{wrong}: {checked:?}");
        assert!(checked.stderr.contains(why), "{wrong}: {checked:?}");
        let reload = ["systemctl", "reload", "winddown"];
        let failed = scenario.node.exec(&reload, Duration::from_secs(30)).await?;
        assert!(!failed.status.success(), "{wrong}: {failed:?}");
        scenario
            .node
            .run(&["systemctl", "kill", "--signal=HUP", "--kill-whom=main", "winddown"])
            .await?;
        scenario.said_after(0, why).await?;
        scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
        scenario.lock_is_back().await?;
        let status = scenario.node.run(&["winddown", "status", "-o", "json"]).await?;
        assert!(status.contains("using the last configuration in effect"), "{wrong}: {status}");
    }
    Ok(())
}
