//! The agent restarts in the middle of what it does to pods; `make restarts N=300` is the long form.

use winddown_node_tests::SeededRng;
use winddown_node_tests::in_long_form;
use winddown_node_tests::restarts::{Deed, Round, Runtime, run};
use winddown_node_tests::scenario::TestResult;

/// What is tried where no other is asked for: a change is judged by the same rounds as the one before it.
const SEED: u64 = 4711;

#[tokio::test]
async fn a_restart_in_the_middle_of_any_deed_changes_nothing_for_processes() -> TestResult {
    let test = "a_restart_in_the_middle_of_any_deed_changes_nothing_for_processes";
    restarts(test, Runtime::Process, 9).await
}

#[tokio::test]
async fn a_restart_in_the_middle_of_any_deed_changes_nothing_for_services() -> TestResult {
    let test = "a_restart_in_the_middle_of_any_deed_changes_nothing_for_services";
    if !in_long_form(test, "the deeds are the same with processes, in the short form") {
        return Ok(());
    }
    restarts(test, Runtime::Systemd, 24).await
}

#[tokio::test]
async fn a_restart_in_the_middle_of_any_deed_changes_nothing_for_containers() -> TestResult {
    let test = "a_restart_in_the_middle_of_any_deed_changes_nothing_for_containers";
    if !in_long_form(test, "the deeds are the same with processes, in the short form") {
        return Ok(());
    }
    restarts(test, Runtime::Containerd, 24).await
}

async fn restarts(test: &str, runtime: Runtime, rounds: usize) -> TestResult {
    let seed = SeededRng::seed_of_run()?.unwrap_or(SEED);
    println!("seed {seed}; WINDDOWN_SEED={seed} repeats it");
    let mut differ = Vec::new();
    let told = |round: &Round, journal: &str| {
        println!("{round:?}");
        if !round.differences.is_empty() {
            println!("{journal}");
            differ.push(round.clone());
        }
    };
    let deeds = Deed::ON_A_NODE_THAT_STAYS;
    let Some(all) = run(test, runtime, &deeds, rounds, seed, told).await? else { return Ok(()) };
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(all.len(), rounds);
    Ok(())
}
