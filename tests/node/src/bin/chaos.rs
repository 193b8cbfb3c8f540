//! `make chaos`: plays random faults in everything that a node does, and prints a table of the results.
//!
//!     chaos [SCHEDULES] [--seed SEED] [--at-once NODES] [--into FILE] [--logs FOLDER]
//!
//! Plays the schedules of SEED and the seeds that follow it. With --into the table in that document is replaced. The
//! logs of schedules with violations go to FOLDER, by default target/chaos.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use winddown_node_tests::chaos::{END_OF_TABLE, Outcome, START_OF_TABLE, run, table};
use winddown_node_tests::document::replace_between;
use winddown_node_tests::reboots::SeededRng;

const USAGE: &str =
    "usage: chaos [SCHEDULES] [--seed SEED] [--at-once NODES] [--into FILE] [--logs FOLDER]";
/// The number of concurrent nodes that leaves each enough time on two processors.
const AT_ONCE: usize = 6;

/// The arguments.
struct Asked {
    schedules: u64,
    seed: u64,
    at_once: usize,
    into: Option<PathBuf>,
    logs: PathBuf,
}

fn main() -> ExitCode {
    match chaos() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the schedules. Returns whether all went well.
fn chaos() -> Result<bool, Box<dyn Error>> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let Asked { schedules, seed, at_once, into, logs } = asked()?;
    eprintln!("{schedules} schedules from seed {seed} on, {at_once} at once");
    // Even after an interrupt, the nodes and their files are removed.
    let interrupted = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        if interrupted.block_on(tokio::signal::ctrl_c()).is_ok() {
            STOP.store(true, Ordering::Relaxed);
        }
    });
    let seeds: Vec<u64> = (seed..seed + schedules).collect();
    let mut number = 0;
    let told = |outcome: &Outcome, journal: &str| {
        number += 1;
        tell(number, outcome, journal, &logs);
    };
    let outcomes = run("make chaos", &seeds, at_once, &STOP, told)?;
    let Some(outcomes) = outcomes else { return Ok(true) };
    if STOP.load(Ordering::Relaxed) {
        return Err("interrupted".into());
    }
    let table = table(seed, &outcomes);
    print!("{table}");
    if let Some(into) = into {
        replace_between(&into, [START_OF_TABLE, END_OF_TABLE], &table)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.violations.is_empty()))
}

fn asked() -> Result<Asked, Box<dyn Error>> {
    let (mut schedules, mut seed, mut at_once, mut into) = (None, None, AT_ONCE, None);
    let mut logs = PathBuf::from("target/chaos");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--seed" => seed = Some(value()?.parse().map_err(|_| USAGE)?),
            "--at-once" => at_once = value()?.parse().map_err(|_| USAGE)?,
            "--into" => into = Some(value()?.into()),
            "--logs" => logs = value()?.into(),
            number => schedules = Some(number.parse().map_err(|_| USAGE)?),
        }
    }
    // A seed alone means that the user wants to see this one again.
    let schedules = schedules.unwrap_or(if seed.is_some() { 1 } else { 50 });
    Ok(Asked { schedules, seed: seed.unwrap_or_else(SeededRng::seed), at_once, into, logs })
}

fn tell(number: usize, outcome: &Outcome, journal: &str, logs: &Path) {
    let schedule = &outcome.schedule;
    let faults: Vec<String> =
        schedule.strikes.iter().map(|strike| strike.fault.to_string()).collect();
    let (seed, phase, faults) = (schedule.seed, schedule.phase, faults.join(", "));
    let on: Vec<String> = schedule.features.iter().map(ToString::to_string).collect();
    let on = if on.is_empty() { String::new() } else { format!(" [{}]", on.join("; ")) };
    let took = outcome.took.as_secs_f64();
    eprintln!(
        "{number}: seed {seed}, {phase}, {} pods: {faults}{on}: {took:.1} s",
        schedule.pods.len()
    );
    if outcome.violations.is_empty() {
        return;
    }
    for violation in &outcome.violations {
        let seen = violation.seen.lines().next().unwrap_or_default();
        eprintln!("   VIOLATED: {}: {seen}", violation.invariant);
    }
    let file = logs.join(format!("seed-{seed}.log"));
    let text = format!("{schedule:#?}\n{:#?}\n{journal}", outcome.violations);
    match std::fs::create_dir_all(logs).and_then(|()| std::fs::write(&file, text)) {
        Ok(()) => eprintln!("   see {}; `chaos --seed {seed}` plays it again", file.display()),
        Err(error) => eprintln!("   {}: {error}", file.display()),
    }
}
