//! Work that blocks, and errors of a runtime.

use std::sync::Arc;

use winddown_shared::RuntimeError;

/// Runs blocking work off the async threads. Cancel-safe, but the work goes on.
///
/// # Errors
/// Those of the work.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(caused("waiting for a file operation", error)),
    }
}

/// What failed, for no reason beside that.
pub fn failed(what: impl Into<String>) -> RuntimeError {
    RuntimeError::Failed { what: what.into(), source: None }
}

/// What failed, and why.
pub fn caused(
    what: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
) -> RuntimeError {
    RuntimeError::Failed { what: what.into(), source: Some(Arc::new(source)) }
}
