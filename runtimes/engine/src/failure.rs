//! Helpers for blocking work and for runtime errors.

use std::sync::Arc;

use winddown_shared::RuntimeError;

/// Runs blocking work off the async threads. Cancel-safe, but the work continues.
///
/// # Errors
/// Errors of `work`.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(caused("waiting for a file operation", error)),
    }
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
