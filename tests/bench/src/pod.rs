//! What runs in each pod: it writes down when it was started, asked to stop, and gone.
//!
//! The bench binary itself rather than a shell: eighty shells that start a `date` each at the same
//! moment would mostly measure themselves.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::clock;

/// What one pod wrote down. Times are the monotonic clock's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodTimes {
    /// Its process, once it runs.
    pub(crate) pid: Option<i32>,
    /// When it ran.
    pub(crate) started: Option<Duration>,
    /// SIGTERM.
    pub(crate) asked: Option<Duration>,
    /// Just before its exit.
    pub(crate) gone: Option<Duration>,
}

/// Runs until SIGTERM and then for `stop_ms` milliseconds more.
pub(crate) async fn run(log: &Path, stop_ms: u64) -> ExitCode {
    match write_down(log, stop_ms).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", log.display());
            ExitCode::FAILURE
        }
    }
}

async fn write_down(log: &Path, stop_ms: u64) -> std::io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut log = File::create(log)?;
    let (pid, started) = (std::process::id(), clock::now().as_nanos());
    write!(log, "started {started}\npid {pid}\n")?;
    term.recv().await;
    writeln!(log, "asked {}", clock::now().as_nanos())?;
    tokio::time::sleep(Duration::from_millis(stop_ms)).await;
    writeln!(log, "gone {}", clock::now().as_nanos())
}

impl PodTimes {
    /// Reads what the pod has written so far; a pod that does not run yet has written nothing.
    pub(crate) fn read(log: &Path) -> Self {
        Self::parse(&std::fs::read_to_string(log).unwrap_or_default())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        Self {
            pid: field("pid ").and_then(|pid| i32::try_from(pid).ok()),
            started: field("started ").map(Duration::from_nanos),
            asked: field("asked ").map(Duration::from_nanos),
            gone: field("gone ").map(Duration::from_nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::PodTimes;

    #[test]
    fn a_log_is_read_as_far_as_it_was_written() {
        let times = PodTimes::parse("started 900\npid 7\nasked 1500\n");
        let [started, asked] = [900, 1500].map(|at| Some(Duration::from_nanos(at)));
        assert_eq!(times, PodTimes { pid: Some(7), started, asked, gone: None });
    }
}
