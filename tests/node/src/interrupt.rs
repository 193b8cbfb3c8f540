//! Programs that a user interrupts.

use std::error::Error;

/// Runs `work`, and drops it when the user interrupts the program: its nodes and their files are removed then, too.
///
/// # Errors
/// Those of `work`, or that it was interrupted.
pub async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, Box<dyn Error>>>,
) -> Result<T, Box<dyn Error>> {
    tokio::select! {
        ended = work => ended,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    }
}
