//! From memory running short to SIGTERM in the pod that takes it. The test of it measures.

use std::process::Command;
use std::time::Duration;

use crate::figure::{median, millis};
use crate::node::programs;
use crate::table::Table;
use crate::targets;

/// How often the hog is let loose.
const RUNS: usize = 3;

/// Runs the test, and reads what it says.
pub(crate) fn measure() -> Result<Table, String> {
    let programs = programs().map_err(|error| error.to_string())?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo)
        .args(["test", "--quiet", "--package", "winddown-node-tests", "--test", "pressure"])
        .args(["a_memory_hog", "--", "--nocapture"])
        .env("WINDDOWN_PROGRAMS", programs)
        .env("WINDDOWN_PRESSURE_RUNS", RUNS.to_string())
        // How long it may take is judged here.
        .env("WINDDOWN_PRESSURE_MS", "60000")
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let runs = read(&said).ok_or_else(|| {
        let skipped = said.lines().find_map(|line| line.split_once("SKIPPED: "));
        let why = skipped.map(|(_, why)| why.to_owned());
        why.unwrap_or_else(|| String::from_utf8_lossy(&ran.stderr).trim().to_owned())
    })?;
    let title =
        "a node of 600 MiB, a hog that takes 150 MiB/s, evictionHard memory.available: 100Mi";
    let mut table = Table::titled(title.to_owned());
    let what = format!("pressure to SIGTERM, median of {}", runs.len());
    table.row(&what, millis(median(runs))).below(millis(targets::PRESSURE));
    Ok(table)
}

/// The runs of `…: crossing to SIGTERM in ms, 3 runs: [86, 90, 103]`.
fn read(said: &str) -> Option<Vec<Duration>> {
    let (_, runs) = said.split_once("crossing to SIGTERM in ms")?.1.split_once('[')?;
    let (runs, _) = runs.split_once(']')?;
    runs.split(',').map(|run| run.trim().parse().ok().map(Duration::from_millis)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::read;

    #[test]
    fn the_runs_are_found_in_what_the_test_says() {
        let said = "running 1 test\na_memory_hog: crossing to SIGTERM in ms, 2 runs: [86, 90]\n.\n";
        assert_eq!(read(said), Some(vec![Duration::from_millis(86), Duration::from_millis(90)]));
        assert_eq!(read("running 0 tests\n"), None);
    }
}
