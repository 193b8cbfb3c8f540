//! Waiting for the agent's answer.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use winddown_shared::display::seconds;

use super::{CommandError, Output};

/// How long a finished command waits for threads that are blocked on a disk.
pub(super) const LAST_THREADS: Duration = Duration::from_millis(500);

/// The interval at which a wait is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a command that talks to the agent on a single-threaded runtime.
pub(super) fn block_on<T>(
    command: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Waits for `answer`. After a second it prints what it waits for: every second on a terminal, once
/// elsewhere.
pub(super) async fn patiently<T>(
    out: &mut Output,
    waiting_for: &str,
    answer: impl Future<Output = T>,
) -> T {
    patiently_because(out, waiting_for, String::new, answer).await
}

/// The same, with the reason `why`: elsewhere than on a terminal it is printed each time that it changes.
pub(super) async fn patiently_because<T>(
    out: &mut Output,
    waiting_for: &str,
    why: impl Fn() -> String,
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = std::pin::pin!(answer);
    let start = Instant::now();
    let mut tick = interval_at(start + REPORT_INTERVAL, REPORT_INTERVAL);
    let mut told = None;
    loop {
        tokio::select! {
            answer = &mut answer => {
                out.progress_over("");
                return answer;
            }
            _ = tick.tick() => {
                let past = seconds(start.elapsed().as_secs_f64().floor());
                let why = why();
                let line = format!("{waiting_for}, {past}{why}");
                if out.progress_terminal {
                    out.progress_over(&line);
                } else if told.as_ref() != Some(&why) {
                    out.progress(&line);
                }
                told = Some(why);
            }
        }
    }
}
