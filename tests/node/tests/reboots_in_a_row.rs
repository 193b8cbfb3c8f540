//! A few reboots in a row; `make chaos KIND=reboots` is the long form.

use winddown_node_tests::reboots::{SeededRng, run};
use winddown_node_tests::scenario::TestResult;

const ROUNDS: u32 = 3;
/// What is tried where no other is asked for: a change is judged by the same rounds as the one before it.
const SEED: u64 = 4711;

#[tokio::test]
async fn reboots_in_a_row_with_random_pods_and_faults_are_all_clean() -> TestResult {
    let test = "reboots_in_a_row_with_random_pods_and_faults_are_all_clean";
    let seed = SeededRng::seed_of_run()?.unwrap_or(SEED);
    println!("seed {seed}; WINDDOWN_SEED={seed} repeats it");
    run(test, ROUNDS, seed, |number, row| println!("{number}: {row:?}")).await?;
    Ok(())
}
