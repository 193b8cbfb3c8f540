//! Requests while a node goes down: two replicas on two nodes, a proxy that follows their readiness
//! before them, and clients that never stop.
//!
//! Proxy and clients run in the test itself. The replicas are pods that SIGTERM ends on the spot, so
//! whatever still reaches one of them then is lost. Nothing is ever tried twice.

mod balancer;
mod load;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use balancer::{Balancer, Replica};
use load::Load;
use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};

/// Where a replica listens on its node, which has this address to itself.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

#[tokio::test]
async fn with_an_endpoint_drain_no_request_fails_when_one_of_two_nodes_goes_down() -> TestResult {
    let test = "with_an_endpoint_drain_no_request_fails_when_one_of_two_nodes_goes_down";
    let Some(told) = one_of_two_goes_down(test, Duration::from_secs(4)).await? else {
        return Ok(());
    };
    println!("{} answered, {} failed", told.answered, told.failed.len());
    assert_eq!(told.failed, Vec::<String>::new());
    assert_eq!(told.report["endpointDrainSeconds"], 4.0, "{}", told.report);
    Ok(())
}

#[tokio::test]
async fn without_an_endpoint_drain_requests_reach_the_replica_that_was_ended() -> TestResult {
    let test = "without_an_endpoint_drain_requests_reach_the_replica_that_was_ended";
    let Some(told) = one_of_two_goes_down(test, Duration::ZERO).await? else { return Ok(()) };
    println!("{} answered, {} failed", told.answered, told.failed.len());
    // What the drain is good for, and that the test above can fail.
    assert!(!told.failed.is_empty(), "nothing failed");
    Ok(())
}

/// What became of the requests.
#[derive(Debug)]
struct Told {
    answered: usize,
    failed: Vec<String>,
    report: Value,
}

async fn one_of_two_goes_down(test: &str, drain: Duration) -> TestResult<Option<Told>> {
    let (Some(mut first), Some(second)) =
        tokio::try_join!(replica(test, drain), replica(test, drain))?
    else {
        return Ok(None);
    };
    let replicas = [Replica::follow(&first.node)?, Replica::follow(&second.node)?];
    let balancer = Balancer::start(replicas).await?;
    let ready = async || balancer.ready() == 2;
    first.node.wait_until("both replicas to be ready", SOON, ready).await?;

    let load = Load::start(balancer.address());
    load.goes_on(&first.node, 200).await?;
    first.power_off().await?;
    first.node.wait_off(SOON).await?;
    // The other one carries on alone.
    load.goes_on(&second.node, 100).await?;
    let (answered, failed) = load.stop().await;
    let served = balancer.served();
    assert!(served.iter().all(|served| *served > 50), "not both were used: {served:?}");
    Ok(Some(Told { answered, failed, report: first.newest_report()? }))
}

/// A node with winddown and one replica.
async fn replica(test: &str, drain: Duration) -> TestResult<Option<Scenario>> {
    let more = format!("shutdownEndpointDrainPeriod: {}s\n", drain.as_secs());
    let setup = Setup { more, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, Vec::new(), &setup).await? else {
        return Ok(None);
    };
    let program = "/usr/local/bin/replica";
    scenario.node.install(env!("CARGO_BIN_EXE_replica").as_ref(), program)?;
    let manifest = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "replica" },
        "spec": {
            "hostNetwork": true,
            "containers": [{ "name": "main", "image": "host", "command": [program, ADDRESS.to_string()] }],
        },
    });
    scenario.node.write("/etc/winddown/pods/replica.json", manifest.to_string(), 0o644)?;
    scenario.start().await?;
    Ok(Some(scenario))
}
