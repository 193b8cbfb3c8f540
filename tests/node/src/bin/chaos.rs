//! `make chaos`: plays random faults in everything that a node does, and prints a table of the results.
//!
//!     chaos [SCHEDULES] [--seed SEED] [--at-once NODES | --in-a-row] [--into FILE] [--logs FOLDER]
//!
//! Plays the schedules of SEED and the seeds that follow it; with --in-a-row those that can be played on one node, which
//! boots again for each. With --into the table in that document is replaced. The
//! logs of schedules with violations go to FOLDER, by default target/chaos.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use winddown_node_tests::SeededRng;
use winddown_node_tests::chaos::{IN_A_ROW, MARKS, Nodes, Outcome, Schedule, run, table};
use winddown_node_tests::document::replace_between;

const USAGE: &str = "usage: chaos [SCHEDULES] [--seed SEED] [--at-once NODES | --in-a-row] [--into FILE] [--logs FOLDER]";
/// The number of concurrent nodes that leaves each enough time on two processors.
const AT_ONCE: usize = 6;

/// The arguments.
struct Asked {
    schedules: usize,
    seed: u64,
    nodes: Nodes,
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
    let Asked { schedules, seed, nodes, into, logs } = asked()?;
    eprintln!("{schedules} schedules from seed {seed} on, {nodes:?}");
    let (schedules, marks) = match nodes {
        Nodes::AtOnce(_) => ((seed..).map(Schedule::draw).take(schedules).collect(), MARKS),
        Nodes::InARow => (Schedule::in_a_row(seed, schedules), IN_A_ROW),
    };
    // Even after an interrupt, the nodes and their files are removed.
    let interrupted = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        if interrupted.block_on(tokio::signal::ctrl_c()).is_ok() {
            STOP.store(true, Ordering::Relaxed);
        }
    });
    let mut number = 0;
    let told = |outcome: &Outcome, journal: &str| {
        number += 1;
        tell(number, outcome, journal, &logs);
    };
    let outcomes = run("make chaos", &schedules, nodes, &STOP, told)?;
    let Some(outcomes) = outcomes else { return Ok(true) };
    if STOP.load(Ordering::Relaxed) {
        return Err("interrupted".into());
    }
    let table = table(&outcomes);
    print!("{table}");
    if let Some(into) = into {
        replace_between(&into, marks, &table)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.violations.is_empty()))
}

fn asked() -> Result<Asked, Box<dyn Error>> {
    let (mut schedules, mut seed, mut nodes, mut into) = (None, None, Nodes::AtOnce(AT_ONCE), None);
    let mut logs = PathBuf::from("target/chaos");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--seed" => seed = Some(value()?.parse().map_err(|_| USAGE)?),
            "--at-once" => nodes = Nodes::AtOnce(value()?.parse().map_err(|_| USAGE)?),
            "--in-a-row" => nodes = Nodes::InARow,
            "--into" => into = Some(value()?.into()),
            "--logs" => logs = value()?.into(),
            number => schedules = Some(number.parse().map_err(|_| USAGE)?),
        }
    }
    // A seed alone means that the user wants to see this one again.
    let schedules = schedules.unwrap_or(if seed.is_some() { 1 } else { 50 });
    Ok(Asked { schedules, seed: seed.unwrap_or_else(SeededRng::seed), nodes, into, logs })
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
