//! Starts the next attempt of a container.

use std::sync::Arc;

use winddown_shared::{Pod, RuntimeError};

use super::pod::Starting;
use super::{Context, Driver, caused};

/// Resolves when the container runs; at once with nothing done if the pod is being stopped.
///
/// Dropping the future does not end a start that was begun: it is counted in `starting`, and a stop waits for it.
///
/// # Errors
/// As [`Driver::start`].
pub(super) async fn start<D: Driver>(
    context: &Arc<Context<D>>,
    starting: Starting,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let permit = Arc::clone(&context.starts).acquire_owned().await;
    let (context, pod, name) = (Arc::clone(context), pod.clone(), Arc::clone(name));
    let work = tokio::spawn(async move {
        let _permit = permit;
        let next = {
            let mut state = starting.entry().lock();
            let stopping = state.stopping;
            let is_due = state.container(&name).is_some_and(|c| !stopping && !c.is_running());
            state.next(&name, &context.config.backoff).filter(|_| is_due)
        };
        match next {
            Some(next) => D::start(&context, starting, &pod, &name, next).await,
            None => Ok(()),
        }
    });
    match work.await {
        Ok(outcome) => outcome,
        Err(error) => Err(caused("waiting for the start of a container".to_owned(), error)),
    }
}
