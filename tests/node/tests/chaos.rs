//! A few schedules of chaos; `make chaos N=500` is the long form.

use std::sync::atomic::AtomicBool;

use winddown_node_tests::SeededRng;
use winddown_node_tests::chaos::{Fault, Feature, Nodes, Outcome, Schedule, run};
use winddown_node_tests::scenario::TestResult;

/// Chosen so that every phase, every runtime (each also in a shutdown), both releases of Debian, all that is
/// switched on and every fault are there. A seed that failed is added. Those that take longest come first.
const SEEDS: [u64; 14] = [
    45443, 46963, 44990, 46810, 46985, 46991, 44706, 46987, 46968, 46992, 46155, 46994, 47029,
    710_077,
];
/// Other tests have the machine too.
const AT_ONCE: usize = 4;

#[test]
fn faults_at_random_times_violate_nothing() -> TestResult {
    let more = SeededRng::seed_of_run()?;
    if let Some(seed) = more {
        println!("one more seed, {seed}; WINDDOWN_SEED={seed} repeats it");
    }
    let mut violated = Vec::new();
    let told = |outcome: &Outcome, journal: &str| {
        let (seed, phase) = (outcome.schedule.seed, outcome.schedule.phase);
        println!("seed {seed}, {phase}: {:?}", outcome.violations);
        if !outcome.violations.is_empty() {
            println!("{:#?}\n{journal}", outcome.schedule);
            violated.push(seed);
        }
    };
    let schedules: Vec<_> = SEEDS.into_iter().chain(more).map(Schedule::draw).collect();
    let test = "faults_at_random_times_violate_nothing";
    run(test, &schedules, Nodes::AtOnce(AT_ONCE), &AtomicBool::new(false), told)?;
    assert!(violated.is_empty(), "play one alone with `chaos --seed S`: {violated:?}");
    Ok(())
}

#[test]
fn every_fault_and_everything_that_can_be_switched_on_is_in_one_of_them() {
    let schedules = SEEDS.map(Schedule::draw);
    for feature in Feature::ALL {
        assert!(schedules.iter().any(|schedule| schedule.is_on(feature)), "{feature}");
    }
    for fault in Fault::ALL {
        assert!(schedules.iter().any(|schedule| schedule.has(fault)), "{fault}");
    }
}
