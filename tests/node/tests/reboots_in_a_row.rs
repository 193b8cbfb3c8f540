//! A few reboots in a row; `make reboots N=30` is the long form.

use winddown_node_tests::reboots::{Chance, run};
use winddown_node_tests::scenario::TestResult;

const ROUNDS: u32 = 3;

#[tokio::test]
async fn reboots_in_a_row_with_random_pods_and_faults_are_all_clean() -> TestResult {
    let test = "reboots_in_a_row_with_random_pods_and_faults_are_all_clean";
    let seed = match std::env::var("WINDDOWN_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => Chance::seed(),
    };
    println!("seed {seed}; WINDDOWN_SEED={seed} repeats it");
    run(test, ROUNDS, seed, |number, row| println!("{number}: {row:?}")).await?;
    Ok(())
}
