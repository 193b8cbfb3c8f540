//! A few schedules of chaos; `make chaos N=500` is the long form.

use std::sync::atomic::AtomicBool;

use winddown_node_tests::chaos::{Outcome, run};
use winddown_node_tests::reboots::Chance;
use winddown_node_tests::scenario::TestResult;

/// Chosen so that every phase, every runtime and most faults are there. A seed that failed is added. Those
/// that take longest come first.
const SEEDS: [u64; 11] =
    [31015, 31010, 31016, 31006, 31000, 31001, 31002, 31004, 31011, 31013, 31014];
/// Other tests have the machine too.
const AT_ONCE: usize = 4;

#[test]
fn faults_at_random_times_violate_nothing() -> TestResult {
    let random = match std::env::var("WINDDOWN_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => Chance::seed(),
    };
    println!("random seed {random}; WINDDOWN_SEED={random} repeats it");
    let mut violated = Vec::new();
    let told = |outcome: &Outcome, journal: &str| {
        let (seed, phase) = (outcome.schedule.seed, outcome.schedule.phase);
        println!("seed {seed}, {phase}: {:?}", outcome.violations);
        if !outcome.violations.is_empty() {
            println!("{:#?}\n{journal}", outcome.schedule);
            violated.push(seed);
        }
    };
    let seeds = [&SEEDS[..], &[random]].concat();
    let test = "faults_at_random_times_violate_nothing";
    run(test, &seeds, AT_ONCE, &AtomicBool::new(false), told)?;
    assert!(violated.is_empty(), "play one alone with `chaos --seed S`: {violated:?}");
    Ok(())
}
