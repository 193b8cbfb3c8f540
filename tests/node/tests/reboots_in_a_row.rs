//! A few reboots in a row; `make chaos KIND=reboots` is the long form.

use std::sync::atomic::AtomicBool;

use winddown_node_tests::SeededRng;
use winddown_node_tests::chaos::{Nodes, Outcome, Schedule, run};
use winddown_node_tests::scenario::TestResult;

const ROUNDS: usize = 3;
/// What is tried where no other is asked for: a change is judged by the same rounds as the one before it.
const SEED: u64 = 4711;

#[test]
fn reboots_in_a_row_with_random_pods_and_faults_are_all_clean() -> TestResult {
    let test = "reboots_in_a_row_with_random_pods_and_faults_are_all_clean";
    let seed = SeededRng::seed_of_run()?.unwrap_or(SEED);
    println!("seed {seed}; WINDDOWN_SEED={seed} repeats it");
    let mut violated = Vec::new();
    let told = |outcome: &Outcome, journal: &str| {
        println!("{outcome:?}\n{journal}");
        violated.extend(outcome.violations.clone());
    };
    let schedules = Schedule::in_a_row(seed, ROUNDS);
    run(test, &schedules, Nodes::InARow, &AtomicBool::new(false), told)?;
    assert_eq!(violated, []);
    Ok(())
}
