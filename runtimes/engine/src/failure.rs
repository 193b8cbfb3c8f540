//! Helpers for blocking work and for runtime errors.

use std::sync::Arc;

use tokio::task::JoinError;
use winddown_host::PodFiles;
use winddown_shared::RuntimeError;

/// Runs blocking work on the agent's own files off the async threads. Cancel-safe, but the work continues.
///
/// # Errors
/// Errors of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    settle(tokio::task::spawn_blocking(work).await)
}

/// The same for work on files of pods, which waits for a thread of its kind.
///
/// # Errors
/// Errors of `work`.
pub async fn blocking_on<T: Send + 'static>(
    files: PodFiles,
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    settle(files.work(work).await)
}

fn settle<T>(done: Result<Result<T, RuntimeError>, JoinError>) -> Result<T, RuntimeError> {
    done.unwrap_or_else(|error| Err(caused("waiting for a file operation", error)))
}

/// An error without a cause.
pub fn failed(what: impl Into<String>) -> RuntimeError {
    RuntimeError::Failed { what: what.into(), source: None }
}

/// An error with its cause.
pub fn caused(
    what: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
) -> RuntimeError {
    RuntimeError::Failed { what: what.into(), source: Some(Arc::new(source)) }
}
