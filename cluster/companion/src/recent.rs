//! A recent answer of the API server, shared by all pods that are stopped at about the same time.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use winddown_api_client::node_pods::RefusedRequest;

/// How long an answer is reused.
const ANSWER_MAX_AGE: Duration = Duration::from_secs(10);
/// How long to wait for an answer; after that it counts as unknown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// One answer, requested once for many callers.
#[derive(Debug, Default)]
pub(super) struct Recent<T>(Mutex<Option<(Instant, Option<T>)>>);

// === impl Recent ===

impl<T> Recent<T> {
    /// Passes the newest answer to `with`, or `None` if the API server did not give one. `note` is called if it was asked
    /// now, and answered or refused. A slow answer is not reported as a failure: other requests may well be answered.
    /// Cancel-safe.
    pub(super) async fn with_cached<R>(
        &self,
        ask: impl Future<Output = Result<T, RefusedRequest>>,
        note: impl FnOnce(Result<(), &RefusedRequest>),
        with: impl FnOnce(Option<&T>) -> R,
    ) -> R {
        let mut read = self.0.lock().await;
        if read.as_ref().is_none_or(|(at, _)| at.elapsed() >= ANSWER_MAX_AGE) {
            let answer = timeout(ANSWER_TIMEOUT, ask).await.ok();
            if let Some(answer) = &answer {
                note(answer.as_ref().map(drop));
            }
            let answer = answer.and_then(Result::ok);
            *read = Some((Instant::now(), answer));
        }
        with(read.as_ref().and_then(|(_, answer)| answer.as_ref()))
    }
}
