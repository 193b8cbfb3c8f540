//! An agent that is used for a long time takes no more than before; `make soak HOURS=2` is the long form.

use std::time::Duration;

use winddown_node_tests::restarts::{Deed, Runtime};
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::soak::{Times, soak};

/// Each is done twice, with a look at the agent after each time.
const DEEDS: [Deed; 3] = [Deed::Removal, Deed::Notice, Deed::Drain];

#[tokio::test]
async fn an_agent_takes_no_more_after_pods_have_come_and_gone() -> TestResult {
    let test = "an_agent_takes_no_more_after_pods_have_come_and_gone";
    let times = Times { settled: Duration::ZERO, long: Duration::ZERO };
    let told = |deed, differences: &[String]| println!("{deed}: {differences:?}");
    let soaked = soak(test, Runtime::Process, &DEEDS, times, 1, told).await?;
    let Some(soaked) = soaked else { return Ok(()) };
    println!("{soaked}");
    assert!(soaked.faults().is_empty(), "{:#?}", soaked.faults());
    assert_eq!(soaked.deeds, 2 * DEEDS.len());
    Ok(())
}
