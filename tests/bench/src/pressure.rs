//! From memory running short to SIGTERM in the pod that takes it. The tests of it measure.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::figure::{median, millis};
use crate::node::programs;
use crate::table::Table;
use crate::targets;

/// How often the hog is let loose.
const RUNS: usize = 5;

/// Runs the tests, and reads what they say.
pub(crate) fn measure() -> Result<Table, String> {
    let programs = programs().map_err(|error| error.to_string())?;
    let title = "a node of 600 MiB, a hog that takes 150 MiB/s; with containers 900 MiB, 100 MiB/s; evictionHard \
                 memory.available: 100Mi";
    let mut table = Table::titled(title.to_owned());
    let processes = said(&programs, "a_memory_hog", runs_of)?;
    let container = "a_container_that_takes_the_nodes_memory";
    let runs = (0..RUNS).map(|_| said(&programs, container, crossing_of));
    let (containers, floors): (Vec<_>, Vec<_>) = runs.collect::<Result<_, _>>()?;
    let floor = millis(median(floors));
    for (what, runs) in [("processes", processes), ("containers", containers)] {
        let what = format!("pressure to SIGTERM, {what}, median of {}", runs.len());
        let row = table.row(&what, millis(median(runs)));
        row.below(millis(targets::PRESSURE)).floor(Some(floor));
    }
    Ok(table)
}

/// What `read` finds in what the test says; why there is nothing, else.
fn said<T>(programs: &Path, test: &str, read: fn(&str) -> Option<T>) -> Result<T, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo)
        .args(["test", "--quiet", "--package", "winddown-node-tests", "--test", "pressure"])
        .args([test, "--", "--nocapture"])
        .env("WINDDOWN_PROGRAMS", programs)
        .env("WINDDOWN_PRESSURE_RUNS", RUNS.to_string())
        // How long it may take is judged here.
        .env("WINDDOWN_PRESSURE_MS", "60000")
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stdout);
    read(&said).ok_or_else(|| {
        let skipped = said.lines().find_map(|line| line.split_once("SKIPPED: "));
        let why = skipped.map(|(_, why)| why.to_owned());
        why.unwrap_or_else(|| String::from_utf8_lossy(&ran.stderr).trim().to_owned())
    })
}

/// The runs of `…: crossing to SIGTERM in ms, 3 runs: [86, 90, 103]`.
fn runs_of(said: &str) -> Option<Vec<Duration>> {
    let (_, runs) = said.split_once("crossing to SIGTERM in ms")?.1.split_once('[')?;
    let (runs, _) = runs.split_once(']')?;
    runs.split(',').map(|run| run.trim().parse().ok().map(Duration::from_millis)).collect()
}

/// The one run of `…: 86 ms from the crossing to SIGTERM, 900 us by a program that does nothing else`, and its floor.
fn crossing_of(said: &str) -> Option<(Duration, Duration)> {
    let last = |before: &str| before.rsplit(' ').next()?.parse().ok();
    let (before, after) = said.split_once(" ms from the crossing to SIGTERM, ")?;
    let (floor, _) = after.split_once(" us by")?;
    Some((last(before).map(Duration::from_millis)?, last(floor).map(Duration::from_micros)?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{crossing_of, runs_of};

    #[test]
    fn the_runs_are_found_in_what_the_test_says() {
        let said = "running 1 test\na_memory_hog: crossing to SIGTERM in ms, 2 runs: [86, 90]\n.\n";
        assert_eq!(runs_of(said), Some(vec![Duration::from_millis(86), Duration::from_millis(90)]));
        assert_eq!(runs_of("running 0 tests\n"), None);
    }
    #[test]
    fn the_one_run_is_found_in_what_the_test_says() {
        let said = "running 1 test\na_container: 86 ms from the crossing to SIGTERM, 900 us by a program\n.\n";
        let both = (Duration::from_millis(86), Duration::from_micros(900));
        assert_eq!(crossing_of(said), Some(both));
        assert_eq!(crossing_of("running 0 tests\n"), None);
    }
}
