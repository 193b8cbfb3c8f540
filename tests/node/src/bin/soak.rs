//! `make soak`: uses nodes for hours, one for each runtime, and prints what their agents take early on and at the end.
//!
//!     soak [HOURS] [--seed SEED] [--runtime process|systemd|cri]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use winddown_node_tests::restarts::{Deed, Runtime};
use winddown_node_tests::soak::{Times, soak};
use winddown_node_tests::{SeededRng, unless_interrupted};

const USAGE: &str = "usage: soak [HOURS] [--seed SEED] [--runtime process|systemd|cri]";
/// The first part of the time, up to ten minutes, is the agent's to settle.
const SETTLED: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match unless_interrupted(soaks()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Uses the nodes. Returns whether nothing was wrong with any.
async fn soaks() -> Result<bool, Box<dyn Error>> {
    let (mut hours, mut seed, mut runtimes) = (2.0, SeededRng::seed(), Runtime::ALL.to_vec());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--seed" => seed = value()?.parse().map_err(|_| USAGE)?,
            "--runtime" => {
                let name = value()?;
                runtimes.retain(|runtime| runtime.name() == name);
            }
            number => hours = number.parse().map_err(|_| USAGE)?,
        }
    }
    if runtimes.is_empty() {
        return Err(USAGE.into());
    }
    let long = Duration::try_from_secs_f64(hours * 3600.0).map_err(|_| USAGE)?;
    let times = Times { settled: SETTLED.min(long / 4), long };
    eprintln!("{hours} hours on each of {} nodes, seed {seed}", runtimes.len());
    let play = async |runtime: Runtime| {
        let mut number = 0;
        let told = |deed: Deed, differences: &[String]| {
            number += 1;
            if number % 50 == 0 || !differences.is_empty() {
                eprintln!("{} {number}: {deed}", runtime.name());
            }
            for difference in differences {
                eprintln!("   DIFFERS: {difference}");
            }
        };
        let soaked =
            soak("make soak", runtime, &Deed::ON_A_NODE_THAT_STAYS, times, seed, told).await;
        soaked.map(|soaked| (runtime, soaked)).map_err(|e| format!("{}: {e}", runtime.name()))
    };
    // One node per runtime at a time: they wait more than they compute.
    let mut is_well = true;
    for ended in join_all(runtimes.into_iter().map(play)).await {
        let (runtime, soaked) = ended?;
        let Some(soaked) = soaked else { return Ok(false) };
        println!("\n{}: {soaked}", runtime.name());
        for fault in soaked.faults() {
            println!("FAULT: {fault}");
            is_well = false;
        }
    }
    Ok(is_well)
}
