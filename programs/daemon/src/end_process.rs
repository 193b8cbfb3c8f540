//! Terminates the agent's process when a critical task fails.

use winddown_shared::critical::{OnTaskFailure, TaskFailure};

use crate::logging::Log;

#[cfg(test)]
mod tests;

/// The exit code of an agent that has lost a critical task.
pub const TASK_LOST: u8 = 9;

/// Exits the process, which its unit restarts at once. Meanwhile the service manager keeps the inhibitor lock and the
/// pods keep running; the next agent resumes a shutdown.
pub(super) struct EndProcess(pub(super) Log);

impl OnTaskFailure for EndProcess {
    fn failed(&self, failure: &TaskFailure) {
        tracing::error!("{failure}, which is a bug; the agent ends and is started again");
        self.0.flush();
        std::process::exit(TASK_LOST.into());
    }

    #[cfg(debug_assertions)]
    fn fault(&self, task: &'static str) -> Option<futures_util::future::BoxFuture<'static, ()>> {
        fault::of(task)
    }
}

/// Fault injection for the tests on a node, which run debug builds; release builds do not contain it.
///
/// In the directory that `WINDDOWN_FAULTS` names, each task creates a file in `tasks` when it starts. A
/// file of the task's name in `panics` makes it panic; the file is removed first, because the next agent
/// would fail as well.
#[cfg(debug_assertions)]
mod fault {
    use std::path::PathBuf;
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(20);

    pub(super) fn of(task: &'static str) -> Option<BoxFuture<'static, ()>> {
        let directory = PathBuf::from(std::env::var_os("WINDDOWN_FAULTS")?);
        // A directory that does not exist injects no faults.
        let _ = std::fs::write(directory.join("tasks").join(task), "");
        let wanted = directory.join("panics").join(task);
        let told = async move {
            while std::fs::remove_file(&wanted).is_err() {
                tokio::time::sleep(EXIT_CHECK_INTERVAL).await;
            }
        };
        Some(told.boxed())
    }
}
