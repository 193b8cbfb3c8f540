//! `winddown doctor`: a healthy node, and the same node after somebody did it harm.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult, not_well, seven_pods};

const HEALTHY: i32 = 0;
const WARNING: i32 = 7;
const PROBLEM: i32 = 8;

/// A kubelet that is set up to run at the next boot.
const KUBELET_UNIT: &str =
    "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n";

#[tokio::test]
async fn a_healthy_node_is_well_and_each_harm_is_named_and_mended_as_the_doctor_says() -> TestResult
{
    let test = "a_healthy_node_is_well_and_each_harm_is_named_and_mended_as_the_doctor_says";
    let Some(scenario) = Scenario::installed_with(test, seven_pods()).await? else { return Ok(()) };
    scenario.start().await?;
    assert_eq!(ask(&scenario).await?.0, HEALTHY, "{}", read_aloud(&scenario).await?);

    let drop_in = "/etc/systemd/logind.conf.d/zzz-site.conf";
    scenario.node.write(drop_in, "[Login]\nInhibitDelayMaxSec=3\n", 0o644)?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    let delay = becomes(&scenario, WARNING, "delay").await?;
    assert!(delay["evidence"].to_string().contains(drop_in), "{delay}");
    fix(&scenario, &delay).await?;
    becomes_well(&scenario).await?;

    let unit = "/etc/systemd/system/kubelet.service";
    scenario.node.write(unit, KUBELET_UNIT, 0o644)?;
    scenario.node.run(&["systemctl", "enable", "kubelet"]).await?;
    let finding = becomes(&scenario, PROBLEM, "kubelet").await?;
    assert!(finding["evidence"].to_string().contains("kubelet.service"), "{finding}");
    assert!(finding["fix"].to_string().contains("install --companion"), "{finding}");
    scenario.node.run(&["systemctl", "disable", "kubelet"]).await?;
    becomes_well(&scenario).await?;

    scenario.node.run(&["systemctl", "disable", "winddown"]).await?;
    let finding = becomes(&scenario, WARNING, "boot").await?;
    fix(&scenario, &finding).await?;
    becomes_well(&scenario).await?;

    scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    let finding = becomes(&scenario, PROBLEM, "agent").await?;
    fix(&scenario, &finding).await?;
    becomes_well(&scenario).await?;

    let mask = "systemctl mask --now systemd-logind dbus-org.freedesktop.login1";
    scenario.node.run(&["sh", "-c", mask]).await?;
    let finding = becomes(&scenario, PROBLEM, "logind").await?;
    fix(&scenario, &finding).await?;
    becomes_well(&scenario).await
}

/// Waits until the doctor's worst finding is of that exit code and `id` is among those that are
/// not well. Returns it.
async fn becomes(scenario: &Scenario, code: i32, id: &str) -> TestResult<Value> {
    let mut found = None;
    let there = async || {
        let Ok((ended, said)) = ask(scenario).await else { return false };
        found = not_well(&said).find(|finding| finding["id"] == id).cloned();
        ended == code && found.is_some()
    };
    if let Err(error) = scenario.node.wait_until(&format!("a finding on {id}"), SOON, there).await {
        return Err(format!("{error}\n{}", read_aloud(scenario).await?).into());
    }
    println!("{}", read_aloud(scenario).await?);
    Ok(found.ok_or("no finding")?)
}

async fn becomes_well(scenario: &Scenario) -> TestResult {
    let well = async || ask(scenario).await.is_ok_and(|(ended, _)| ended == HEALTHY);
    match scenario.node.wait_until("the node to be well again", SOON, well).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}\n{}", read_aloud(scenario).await?).into()),
    }
}

/// Types what the doctor says, word for word.
async fn fix(scenario: &Scenario, finding: &Value) -> TestResult {
    for command in finding["fix"].as_array().into_iter().flatten() {
        let command = command.as_str().ok_or("a fix is not a text")?;
        scenario.node.run(&["sh", "-c", command]).await?;
    }
    Ok(())
}

/// The exit code and the answer.
async fn ask(scenario: &Scenario) -> TestResult<(i32, Value)> {
    let limit = Duration::from_secs(30);
    let output = scenario.node.exec(&["winddown", "doctor", "-o", "json"], limit).await?;
    let code = output.status.code().ok_or("the doctor was killed")?;
    Ok((code, serde_json::from_str(&output.stdout)?))
}

async fn read_aloud(scenario: &Scenario) -> TestResult<String> {
    let limit = Duration::from_secs(30);
    Ok(scenario.node.exec(&["winddown", "doctor"], limit).await?.stdout)
}
