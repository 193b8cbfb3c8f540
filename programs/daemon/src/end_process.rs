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
}
