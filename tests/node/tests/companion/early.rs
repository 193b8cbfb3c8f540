//! A node on which nothing is there yet.

use std::time::Duration;

use winddown_apiserver::ApiServer;
use winddown_node_tests::Bridge;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};

use super::{CERTIFICATE, CONFIGURATION, KUBECONFIG, configuration, kubeconfig};

/// How long the certificate is valid.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The most lines of the agent from its start to the connection, however long that takes.
const FEW: usize = 30;

/// A node with an agent beside a kubelet, and without a kubelet.
async fn begin(test: &str) -> TestResult<Option<Scenario>> {
    let Some(scenario) = Scenario::installed_with(test, Vec::new()).await? else { return Ok(None) };
    scenario.node.write(CONFIGURATION, configuration(), 0o600)?;
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.lock_is_back().await?;
    Ok(Some(scenario))
}

/// Waits until both the agent's status and systemd's contain this.
async fn says(scenario: &Scenario, what: &str) -> TestResult {
    let both = async || {
        let status = scenario.text(&["status"]).await.unwrap_or_default();
        let show = ["systemctl", "show", "--property=StatusText", "winddown"];
        let unit = scenario.node.run(&show).await.unwrap_or_default();
        // Lines of the status are wrapped.
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        flat(&status).contains(what) && flat(&unit).contains(what)
    };
    let waited = scenario.node.wait_until(&format!("to hear {what:?}"), SOON, both).await;
    if let Err(error) = waited {
        let status = scenario.text(&["status"]).await.unwrap_or_else(|error| error.to_string());
        return Err(format!("{error}\n{status}").into());
    }
    Ok(())
}

#[tokio::test]
async fn the_lock_is_held_before_the_node_joins_and_credentials_are_read_as_they_come() -> TestResult
{
    let test = "the_lock_is_held_before_the_node_joins_and_credentials_are_read_as_they_come";
    let Some(scenario) = begin(test).await? else { return Ok(()) };
    let node = &scenario.node;
    says(&scenario, &format!("kubeconfig {KUBECONFIG} does not exist")).await?;

    let server = ApiServer::start().await?;
    let name = node.run(&["hostname"]).await?;
    let name = name.trim().to_owned();
    server.apply(serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
    }))?;
    let _bridge = Bridge::open(node, server.address()).await?;
    node.write(KUBECONFIG, kubeconfig(&server), 0o600)?;
    says(&scenario, &format!("client certificate {CERTIFICATE} does not exist")).await?;

    let user = format!("system:node:{name}");
    let identity = server.new_identity(&user, &["system:nodes"], DAY)?;
    node.write(CERTIFICATE, identity.pem(), 0o600)?;
    let is_connected = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["cluster"]["api"]["state"] == "connected" && server.count("list", "pods") >= 1
    };
    node.wait_until("the API server to be asked", SOON, is_connected).await?;

    let restarts = node.run(&["systemctl", "show", "--property=NRestarts", "winddown"]).await?;
    assert_eq!(restarts.trim(), "NRestarts=0");
    let lines = node.journal(&["--unit=winddown", "--output=cat"]).await?;
    assert!(lines.lines().count() < FEW, "{lines}");
    for file in [KUBECONFIG, CERTIFICATE] {
        let says = |line: &&str| line.starts_with("no credentials for") && line.contains(file);
        assert_eq!(lines.lines().filter(says).count(), 1, "{file}:\n{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn a_node_that_never_joined_and_runs_nothing_goes_down_at_once() -> TestResult {
    let test = "a_node_that_never_joined_and_runs_nothing_goes_down_at_once";
    let Some(mut scenario) = begin(test).await? else { return Ok(()) };
    let known = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["podsUnknown"] != true && !status["node"].is_null()
    };
    scenario.node.wait_until("it to be known that nothing runs", SOON, known).await?;
    let asked = scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(30)).await?;
    let held = Duration::from_nanos(scenario.lock_released_at().await? - asked);
    assert!(held < Duration::from_secs(3), "the lock was held for {held:?}");
    assert_eq!(scenario.newest_report()?["outcome"], "clean");
    scenario.assert_systemd_killed_nothing().await
}
