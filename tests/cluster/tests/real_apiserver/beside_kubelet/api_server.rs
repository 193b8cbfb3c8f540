//! An API server that is gone or hangs while pods end, and is back before they have.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;

use super::ends_in_order;
use super::machine::{Ends, Machine, Wanted};
use crate::RealApi;

/// A third of each group's time is more than the ten seconds after which an outage is not waited out.
const SECONDS: [u32; 3] = [60, 60, 60];
/// As long as an outage lasts until then, and what follows from it.
const WAITED_OUT: Duration = Duration::from_secs(15);
/// The server hangs for less: it is back before pods are ended without it.
const HANGS: Duration = Duration::from_secs(4);

/// A machine with an API server of its own.
async fn machine(test: &str) -> TestResult<Option<Machine>> {
    let Some(api) = RealApi::own(test).await else { return Ok(None) };
    let wanted = Wanted { seconds: SECONDS, ..Wanted::by(Ends::Winddown) };
    Machine::set_at(api, test, wanted).await
}

#[tokio::test]
async fn an_api_server_that_is_killed_and_started_again_changes_no_order_and_starts_nothing_again()
-> TestResult {
    let test =
        "an_api_server_that_is_killed_and_started_again_changes_no_order_and_starts_nothing_again";
    let Some(mut machine) = machine(test).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.api.kill_and_start_again().await;
    ends_in_order(&mut machine, test, asked, WAITED_OUT).await
}

#[tokio::test]
async fn an_api_server_that_hangs_for_a_while_is_waited_for_and_ends_the_pods() -> TestResult {
    let test = "an_api_server_that_hangs_for_a_while_is_waited_for_and_ends_the_pods";
    let Some(mut machine) = machine(test).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.api.hang_for(HANGS).await;
    ends_in_order(&mut machine, test, asked, WAITED_OUT).await?;
    let report = machine.scenario.newest_report()?;
    assert!(!report.to_string().contains("the API server is away"), "{report:#}");
    assert_eq!(report["outcome"], "clean");
    Ok(())
}
