//! `make chaos KIND=reboots`: reboots a node many times in a row, and prints a table of the results.
//!
//!     reboots ROUNDS [SEED] [--into FILE]
//!
//! With --into the table in that document is replaced, if all rounds were clean.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use winddown_node_tests::document::replace_between;
use winddown_node_tests::reboots::{END_OF_TABLE, START_OF_TABLE, SeededRng, run, table};

const USAGE: &str = "usage: reboots ROUNDS [SEED] [--into FILE]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Even after an interrupt, the node and its files are removed.
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
        [rounds] => (rounds, SeededRng::seed()),
        [rounds, seed] => (rounds, seed),
        _ => return Err(USAGE.into()),
    };
    eprintln!("{rounds} reboots in a row, seed {seed}");
    let told = |number, row: &winddown_node_tests::reboots::Row| {
        let (pods, fault) = (row.round.pods.len(), row.round.fault);
        eprintln!("{number}: {pods} pods, fault: {fault}, {:.2} s, {}", row.took, row.outcome);
    };
    let rows = run("make chaos KIND=reboots", u32::try_from(rounds)?, seed, told).await?;
    let Some(rows) = rows else { return Ok(()) };
    let table = table(seed, &rows);
    print!("{table}");
    Ok(into.map_or(Ok(()), |into| replace_between(&into, [START_OF_TABLE, END_OF_TABLE], &table))?)
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
