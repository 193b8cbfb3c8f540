//! An API server that is gone or hangs while pods end, and is back before they have.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine, Wanted};
use super::{LOST, ends_in_order};
use crate::RealApi;

/// Longer than an API server may be silent.
const HANGS: Duration = Duration::from_secs(2);

/// A machine with an API server of its own.
async fn machine(test: &str) -> TestResult<Option<Machine>> {
    let Some(api) = RealApi::own(test).await else { return Ok(None) };
    Machine::set_at(api, test, Wanted::by(Ends::Winddown)).await
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
    ends_in_order(&mut machine, test, asked, LOST).await
}

#[tokio::test]
async fn an_api_server_that_hangs_for_a_while_is_not_waited_for_and_its_pods_end_in_order()
-> TestResult {
    let test = "an_api_server_that_hangs_for_a_while_is_not_waited_for_and_its_pods_end_in_order";
    let Some(mut machine) = machine(test).await? else { return Ok(()) };
    let asked = machine.scenario.power_off().await?;
    machine.scenario.someone_is_asked().await?;
    machine.api.hang_for(HANGS).await;
    ends_in_order(&mut machine, test, asked, LOST).await?;
    assert_eq!(machine.scenario.newest_report()?["outcome"], "clean");
    Ok(())
}
