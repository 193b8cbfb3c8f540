//! The pods of docs/examples/termination-notice on each runtime: what they read, and what they make of it.

use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{IMAGE, Node};

const DATABASE: &str = include_str!("../../../../docs/examples/termination-notice/database.yaml");
const WEB_SERVER: &str =
    include_str!("../../../../docs/examples/termination-notice/web-server.yaml");

#[tokio::test]
async fn a_database_that_is_back_soon_keeps_its_replica() -> TestResult {
    let test = "a_database_that_is_back_soon_keeps_its_replica";
    let Some(scenario) = Scenario::installed_as(test, vec![], &setup()).await? else {
        return Ok(());
    };
    let [database, web] = said_by(scenario, "image: host", "reboot").await?;
    assert_eq!(
        database,
        ["ready for connections", "shutdown, back soon: keeping the replica as it is"]
    );
    closes_connections(&web)
}

#[tokio::test]
async fn a_database_that_goes_for_good_hands_over_as_a_service() -> TestResult {
    let test = "a_database_that_goes_for_good_hands_over_as_a_service";
    let Some(scenario) = Scenario::with_services_as(test, vec![], &setup()).await? else {
        return Ok(());
    };
    let [database, web] = said_by(scenario, "image: host", "poweroff").await?;
    assert_eq!(
        database,
        ["ready for connections", "shutdown for good: handing over to the replica"]
    );
    closes_connections(&web)
}

#[tokio::test]
async fn a_database_that_is_back_soon_keeps_its_replica_in_a_container() -> TestResult {
    let test = "a_database_that_is_back_soon_keeps_its_replica_in_a_container";
    let Some(scenario) = Scenario::with_containerd_as(test, vec![], &setup()).await? else {
        return Ok(());
    };
    let [database, web] = said_by(scenario, &format!("image: {IMAGE}"), "reboot").await?;
    assert_eq!(
        database,
        ["ready for connections", "shutdown, back soon: keeping the replica as it is"]
    );
    closes_connections(&web)
}

/// Pods are asked to end two seconds after the shutdown is announced.
fn setup() -> Setup {
    let more = "shutdownEndpointDrainPeriod: 2s\n".to_owned();
    Setup { more, ..Setup::default() }
}

/// It read of the shutdown before it was asked to end.
fn closes_connections(web: &[String]) -> TestResult {
    let [first, closed, last] = web else { return Err(format!("{web:?}").into()) };
    assert_eq!(first, "serving, connections are kept alive");
    // The three groups have 14 s, and begin 2 s later.
    let left = closed.strip_prefix("connections are closed after each answer: at most ");
    let left: u32 =
        left.and_then(|left| left.strip_suffix(" s are left")).ok_or(&**closed)?.parse()?;
    assert!((8..=16).contains(&left), "{closed}");
    assert_eq!(last, "finishing open requests");
    Ok(())
}

/// What both pods say until the node is down, or up again.
async fn said_by(
    mut scenario: Scenario,
    image: &str,
    action: &str,
) -> TestResult<[Vec<String>; 2]> {
    for (name, text) in [("database", DATABASE), ("web-server", WEB_SERVER)] {
        let path = format!("/etc/winddown/pods/{name}.yaml");
        scenario.node.write(&path, text.replace("image: host", image), 0o644)?;
    }
    scenario.start().await?;
    let are_up = async || {
        said(&scenario.node, "database").is_ok_and(|said| said.len() == 1)
            && said(&scenario.node, "web-server").is_ok_and(|said| said.len() == 1)
    };
    scenario.node.wait_until("both to be up", SOON, are_up).await?;
    scenario.node.run(&["systemctl", action]).await?;
    scenario.node.wait_off(SOON).await?;
    Ok([said(&scenario.node, "database")?, said(&scenario.node, "web-server")?])
}

/// The lines of a pod's log.
fn said(node: &Node, pod: &str) -> TestResult<Vec<String>> {
    let logs = node.host_path("/var/log/winddown");
    for entry in std::fs::read_dir(logs)? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&format!("default_{pod}")) {
            let container = if pod == "database" { "database" } else { "web" };
            let text = std::fs::read_to_string(folder.join(container).join("0.log"))?;
            // Time, stream and a letter come before what was said.
            let words = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
            return Ok(words.map(str::to_owned).collect());
        }
    }
    Err(format!("{pod} has no log").into())
}
