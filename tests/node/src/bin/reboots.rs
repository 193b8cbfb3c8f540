//! `make reboots`: many reboots in a row, and the table of them.
//!
//!     reboots ROUNDS [SEED] [--into FILE]
//!
//! With --into the table of that document is replaced by the new one, if all rounds were clean.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use winddown_node_tests::reboots::{Chance, END_OF_TABLE, START_OF_TABLE, run, table};

const USAGE: &str = "usage: reboots ROUNDS [SEED] [--into FILE]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Interrupted or not, the node and its files are gone afterwards.
    let ended = tokio::select! {
        ended = reboots() => ended,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reboots: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn reboots() -> Result<(), Box<dyn Error>> {
    let (numbers, into) = arguments()?;
    let (rounds, seed) = match numbers[..] {
        [rounds] => (rounds, Chance::seed()),
        [rounds, seed] => (rounds, seed),
        _ => return Err(USAGE.into()),
    };
    eprintln!("{rounds} reboots in a row, seed {seed}");
    let told = |number, row: &winddown_node_tests::reboots::Row| {
        let (pods, fault) = (row.round.pods.len(), row.round.fault);
        eprintln!("{number}: {pods} pods, fault: {fault}, {:.2} s, {}", row.took, row.outcome);
    };
    let rows = run("make reboots", u32::try_from(rounds)?, seed, told).await?;
    let Some(rows) = rows else { return Ok(()) };
    let table = table(seed, &rows);
    print!("{table}");
    into.map_or(Ok(()), |into| replace(&into, &table))
}

fn arguments() -> Result<(Vec<u64>, Option<PathBuf>), Box<dyn Error>> {
    let (mut numbers, mut into) = (Vec::new(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--into" => into = Some(arguments.next().ok_or(USAGE)?.into()),
            number => numbers.push(number.parse().map_err(|_| USAGE)?),
        }
    }
    Ok((numbers, into))
}

fn replace(path: &Path, table: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let place = text
        .split_once(START_OF_TABLE)
        .and_then(|(before, rest)| rest.split_once(END_OF_TABLE).map(|(_, after)| (before, after)));
    let (before, after) = place.ok_or_else(|| format!("{} has no table", path.display()))?;
    std::fs::write(path, format!("{before}{START_OF_TABLE}\n{table}{END_OF_TABLE}{after}"))?;
    Ok(())
}
