//! Reports containers that exited by themselves, once for each run.
//!
//! The back-off of the container bounds how often.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::status::Restart;
use winddown_shared::{ContainerExit, EndCause, Event, PodRef};

use crate::container_plan::ContainerRule;
use crate::driver::{Driver, Entry};
use crate::files;
use crate::last_line::last_line;

/// An exit that has not been reported yet.
struct UnreportedExit {
    pod: PodRef,
    container: Arc<str>,
    exit: ContainerExit,
    log: PathBuf,
    /// The probe or the hook that failed, so that the container was stopped, and why it failed.
    failure: Option<(EndCause, Option<Arc<str>>)>,
    again_in: Option<Duration>,
}

/// Reports the exits of the pod's containers, each with the last line of its output.
pub(crate) fn of_exits<D: Driver>(driver: &Arc<D>, entry: &Entry<D>, rules: &[ContainerRule]) {
    let exits = unreported(driver, entry, rules);
    let Some(recorder) = driver.pods().recorder().filter(|_| !exits.is_empty()) else { return };
    let driver = Arc::clone(driver);
    tokio::spawn(async move {
        for UnreportedExit { pod, container, exit, log, failure, again_in } in exits {
            let (failed, last_line) = match (failure, last_line(&exit.message)) {
                (Some((failed, output)), _) => (Some(failed), output),
                (None, None) => (None, driver.pods().last_lines.of(log).await),
                (None, line) => (None, line),
            };
            recorder.record(&Event::ContainerExited {
                pod,
                container,
                exit: Box::new(exit),
                failed,
                last_line,
                again_in,
            });
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
        let exit_code = run.deciding_code(container.kind).unwrap_or_default();
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
            failure: run.probe_state.failure(),
            again_in: restart.applies_to(exit_code).then_some(wait),
        });
    }
    exits
}
