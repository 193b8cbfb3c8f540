//! `make restarts`: restarts and kills the agent at random moments of all that it does to pods, with each runtime, and
//! prints a table of how many rounds ended as without.
//!
//!     restarts [ROUNDS] [--seed SEED] [--runtime process|systemd|cri] [--deed DEED]... [--logs FOLDER]
//!
//! The rounds are divided among the runtimes. The logs of rounds that differ go to FOLDER, by default target/restarts.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures_util::future::join_all;
use winddown_node_tests::restarts::{Deed, Round, Runtime, run, table};
use winddown_node_tests::{SeededRng, unless_interrupted};

const USAGE: &str = "usage: restarts [ROUNDS] [--seed SEED] [--runtime process|systemd|cri] [--deed DEED]... [--logs FOLDER]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match unless_interrupted(restarts()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("restarts: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the rounds. Returns whether all ended as without a restart.
async fn restarts() -> Result<bool, Box<dyn Error>> {
    let (mut rounds, mut seed, mut runtimes) = (300, None, Runtime::ALL.to_vec());
    let mut deeds = Vec::new();
    let mut logs = PathBuf::from("target/restarts");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--seed" => seed = Some(value()?.parse().map_err(|_| USAGE)?),
            "--logs" => logs = value()?.into(),
            "--runtime" => {
                let name = value()?;
                runtimes.retain(|runtime| runtime.name() == name);
            }
            "--deed" => {
                let name = value()?;
                let mut all = Deed::ON_A_NODE_THAT_STAYS.into_iter();
                deeds.push(all.find(|deed| deed.to_string() == name).ok_or(USAGE)?);
            }
            number => rounds = number.parse().map_err(|_| USAGE)?,
        }
    }
    if deeds.is_empty() {
        deeds.extend(Deed::ON_A_NODE_THAT_STAYS);
    }
    if runtimes.is_empty() {
        return Err(USAGE.into());
    }
    let seed = seed.unwrap_or_else(SeededRng::seed);
    let of_each = rounds / runtimes.len();
    eprintln!(
        "{of_each} restarts of the agent with each of {} runtimes, seed {seed}",
        runtimes.len()
    );
    let play = async |runtime: Runtime| {
        let mut number = 0;
        let told = |round: &Round, journal: &str| {
            number += 1;
            tell(runtime, number, round, journal, &logs);
        };
        let all = run("make restarts", runtime, &deeds, of_each, seed, told).await;
        all.map(|all| (runtime, all)).map_err(|error| format!("{}: {error}", runtime.name()))
    };
    // One node per runtime at a time: they wait more than they compute.
    let mut all = Vec::new();
    for result in join_all(runtimes.into_iter().map(play)).await {
        let (runtime, rounds) = result?;
        all.extend(rounds.map(|rounds| (runtime, rounds)));
    }
    print!("{}", table(&all));
    let played: usize = all.iter().map(|(_, rounds)| rounds.len()).sum();
    let mut rounds = all.iter().flat_map(|(_, rounds)| rounds);
    Ok(rounds.all(|round| round.differences.is_empty()) && played == of_each * all.len())
}

fn tell(runtime: Runtime, number: usize, round: &Round, journal: &str, logs: &Path) {
    let what = if round.strike.kills { "killed" } else { "restarted" };
    let (runtime, deed, at) = (runtime.name(), round.deed, round.strike.at / 10);
    eprintln!("{runtime} {number}: {deed}, {what} at {at} %");
    if round.differences.is_empty() {
        return;
    }
    for difference in &round.differences {
        eprintln!("   DIFFERS: {}", difference.lines().next().unwrap_or_default());
    }
    let file = logs.join(format!("{runtime}-{number}.log"));
    let text = format!("{round:#?}\n{}{journal}", load());
    match std::fs::create_dir_all(logs).and_then(|()| std::fs::write(&file, text)) {
        Ok(()) => eprintln!("   see {}", file.display()),
        Err(error) => eprintln!("   {}: {error}", file.display()),
    }
}

/// How busy this machine is: another program may have kept a round's agent, or its judge, waiting.
fn load() -> String {
    let files = ["loadavg", "pressure/cpu", "pressure/io", "pressure/memory"];
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{file}")).unwrap_or_default();
    files.map(|file| format!("{file}: {}", read(file))).concat()
}
