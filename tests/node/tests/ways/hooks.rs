//! preStop hooks run on every way down, also on those that bypass logind: systemd then stops everything that was not
//! told to stay.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{Scenario, Setup, TestResult};
use winddown_node_tests::{Suite, TestPod, on_each_release};

/// Where the hook of the pod writes that it ran.
const RAN: &str = "/var/log/hook";

on_each_release!(a_hook_of_a_service_runs_when_logind_announces_the_shutdown: announced);
on_each_release!(a_hook_of_a_service_runs_on_a_way_down_past_logind: past_logind);
on_each_release!(a_hook_of_a_service_runs_when_the_first_process_is_told_to_power_off: by_signal);

async fn announced(test: &str, suite: Suite) -> TestResult {
    goes_down(test, suite, "systemctl poweroff").await
}

async fn past_logind(test: &str, suite: Suite) -> TestResult {
    goes_down(test, suite, "systemctl start --no-block poweroff.target").await
}

async fn by_signal(test: &str, suite: Suite) -> TestResult {
    goes_down(test, suite, "kill -RTMIN+4 1").await
}

async fn goes_down(test: &str, suite: Suite, way: &str) -> TestResult {
    let db = TestPod::new("db", 0, 100);
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::with_services_as(test, vec![db.clone()], &setup).await?
    else {
        return Ok(());
    };
    let mut manifest: Value = serde_json::from_str(&db.manifest())?;
    let hook = format!("echo before the signal >>{RAN}");
    manifest["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
    scenario.node.write("/etc/winddown/pods/db.json", manifest.to_string(), 0o644)?;
    scenario.start().await?;

    scenario.node.run(&["sh", "-c", way]).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    assert_eq!(scenario.node.read(RAN).unwrap_or_default(), "before the signal\n", "{way}");
    let log = scenario.logs()["db"].clone();
    assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{log:?}");
    Ok(())
}
