//! Reports containers that exited by themselves, once for each run.
//!
//! The back-off of the container bounds how often.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use winddown_host::OneThread;
use winddown_shared::{ContainerExit, Event, PodRef};
use winddown_shim::log;

use crate::container_plan::{ContainerRule, Restart};
use crate::driver::{Driver, Entry};
use crate::files;

/// How long the end of a log may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the last lines of logs, one at a time: a disk that hangs takes one thread, and a report lacks the line.
#[derive(Debug, Default)]
pub(crate) struct LastLines(OneThread);

/// An exit that has not been reported yet.
struct UnreportedExit {
    pod: PodRef,
    container: Arc<str>,
    exit: ContainerExit,
    log: PathBuf,
    again_in: Option<Duration>,
}

/// Reports the exits of the pod's containers, each with the last line of its output.
pub(crate) fn of_exits<D: Driver>(driver: &Arc<D>, entry: &Entry<D>, rules: &[ContainerRule]) {
    let exits = unreported(driver, entry, rules);
    let Some(recorder) = driver.pods().recorder().filter(|_| !exits.is_empty()) else { return };
    let driver = Arc::clone(driver);
    tokio::spawn(async move {
        for UnreportedExit { pod, container, exit, log, again_in } in exits {
            let last_line = match last_line(&exit.message) {
                Some(line) => Some(line),
                None => driver.pods().last_lines.of(log).await,
            };
            let exit = Box::new(exit);
            recorder.record(&Event::ContainerExited { pod, container, exit, last_line, again_in });
        }
    });
}

/// The exits of the pod's containers that were not reported yet. They are from now on.
fn unreported<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    rules: &[ContainerRule],
) -> Vec<UnreportedExit> {
    let now = Instant::now();
    let mut state = entry.lock();
    let pod = state.pod_ref(entry.uid());
    let logs = files::pod_logs(driver.pod_logs(), &pod.namespace, &pod.name, &pod.uid);
    let mut exits = Vec::new();
    for container in &mut state.containers {
        let Some(run) = container.run.as_mut().filter(|run| !run.undone) else { continue };
        let Some(end) = run.end.as_mut().filter(|end| !end.asked && !end.reported) else {
            continue;
        };
        end.reported = true;
        let rule = rules.iter().find(|rule| rule.name == container.name);
        let restart = rule.map_or(Restart::Never, |rule| rule.restart);
        let wait = end.restart_at.saturating_duration_since(now);
        exits.push(UnreportedExit {
            pod: pod.clone(),
            container: Arc::clone(&container.name),
            exit: end.exit.clone(),
            log: logs.join(files::run_log(&container.name, run.attempt)),
            again_in: restart.applies_to(end.exit.exit_code).then_some(wait),
        });
    }
    exits
}

impl LastLines {
    /// The last line of the log; none if it has none, or cannot be read in time.
    async fn of(&self, log: PathBuf) -> Option<Arc<str>> {
        let read = self.0.run(move |()| log::tail(&log).ok());
        let text = timeout(READ_TIMEOUT, read).await.ok()?.ok()??;
        last_line(&text)
    }
}

/// The longest line that is reported, in bytes.
const LONGEST_LINE: usize = 512;

/// The last line of `text` that is not blank, or the start of a long one.
fn last_line(text: &str) -> Option<Arc<str>> {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    if line.len() <= LONGEST_LINE {
        return Some(line.into());
    }
    let fits = |(at, letter): &(usize, char)| at + letter.len_utf8() <= LONGEST_LINE;
    let start: String = line.char_indices().take_while(fits).map(|(_, letter)| letter).collect();
    Some(format!("{start}…").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_that_says_anything_and_is_no_book() {
        assert_eq!(last_line(""), None);
        assert_eq!(last_line("\n \n"), None);
        assert_eq!(last_line("one\n two \n\n").as_deref(), Some("two"));
        let long = last_line(&"é".repeat(10_000)).unwrap();
        assert!(long.len() < LONGEST_LINE + 4 && long.ends_with("é…"), "{}", long.len());
    }
}
