//! Waits for the agent's answer.

use super::{CommandError, Exit};

/// Runs a command that talks to the agent on a runtime of one thread.
pub(super) fn block_on(
    command: impl Future<Output = Result<Exit, CommandError>>,
) -> Result<Exit, CommandError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
