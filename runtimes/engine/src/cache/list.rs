//! The list of the runtime's pods, refreshed no more often than needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use winddown_shared::{RuntimeError, RuntimePod};

#[cfg(test)]
mod tests;

/// Caches the last list of the runtime's pods.
///
/// Only one caller at a time calls `list`; the others wait for it and share its result, so a slow
/// runtime sees one call rather than a stampede. A result is stamped with the time *before* the
/// call: it is at least as new as its stamp. Times are tokio's, so a wall clock that jumps has no
/// effect.
///
/// ```
/// # use std::sync::Arc;
/// # use winddown_engine::cache::RuntimeCache;
/// use winddown_shared::Runtime;
/// # async fn example<R: Runtime>(runtime: Arc<R>) {
/// let cache = RuntimeCache::new(RuntimeCache::PERIOD, move || {
///     let runtime = runtime.clone();
///     async move { runtime.list_pods().await }
/// });
/// let running = cache.get().await.map(|pods| pods.iter().filter(|pod| pod.running).count());
/// # }
/// ```
pub struct RuntimeCache<L> {
    list: L,
    period: Duration,
    last: Mutex<Last>,
    /// The number of finished calls of `list`, by which a caller detects one that finished while it waited.
    ended: AtomicU64,
}

#[derive(Default)]
struct Last {
    listed: Option<Listed>,
    /// Set while the newest call has failed.
    failed: Option<RuntimeError>,
}

struct Listed {
    pods: Arc<[RuntimePod]>,
    stamp: Instant,
}

impl RuntimeCache<()> {
    /// Recommended maximum age of a list: one pass of housekeeping and a second.
    pub const PERIOD: Duration = Duration::from_secs(3);
}

impl<L, F> RuntimeCache<L>
where
    L: Fn() -> F + Send + Sync,
    F: Future<Output = Result<Vec<RuntimePod>, RuntimeError>> + Send,
{
    /// Creates an empty cache; `list` is called whenever the cached list is older than `period`.
    pub fn new(period: Duration, list: L) -> Self {
        Self { list, period, last: Mutex::default(), ended: AtomicU64::new(0) }
    }

    /// The runtime's pods, listed at most one period before this call.
    ///
    /// Cancel-safe: if a caller is dropped in the middle of a call, the next one repeats it.
    ///
    /// # Errors
    /// The list was too old and the runtime did not return a new one. The old list is kept with its
    /// age, but not returned.
    pub async fn get(&self) -> Result<Arc<[RuntimePod]>, RuntimeError> {
        let period = self.period;
        let now = Instant::now();
        // Measured from here and not from the end of the wait: the result of a slow call is new
        // enough for all callers that waited for it and arrived within a period of its start.
        self.at_least(|stamp| now.saturating_duration_since(stamp) <= period).await
    }

    /// Refreshes the list unless it is stamped at `time` or later.
    ///
    /// Cancel-safe, like [`get`](Self::get).
    ///
    /// # Errors
    /// The runtime did not answer. The old list is kept with its age.
    pub async fn force_update_if_older(&self, time: Instant) -> Result<(), RuntimeError> {
        self.at_least(|stamp| stamp >= time).await.map(drop)
    }

    async fn at_least(
        &self,
        is_new_enough: impl Fn(Instant) -> bool + Send,
    ) -> Result<Arc<[RuntimePod]>, RuntimeError> {
        let seen = self.ended.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if let Some(listed) = last.listed.as_ref().filter(|listed| is_new_enough(listed.stamp)) {
            return Ok(listed.pods.clone());
        }
        // A call that failed while this caller waited counts for it too: otherwise every waiter in
        // turn would query a hung runtime, each waiting for its own timeout.
        if let Some(error) = &last.failed
            && self.ended.load(Ordering::Acquire) != seen
        {
            return Err(error.clone());
        }
        let stamp = Instant::now();
        let answer = (self.list)().await;
        self.ended.fetch_add(1, Ordering::AcqRel);
        match answer {
            Ok(pods) => {
                let pods: Arc<[RuntimePod]> = pods.into();
                *last = Last { listed: Some(Listed { pods: pods.clone(), stamp }), failed: None };
                Ok(pods)
            }
            Err(error) => {
                last.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl<L> std::fmt::Debug for RuntimeCache<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeCache").field("period", &self.period).finish_non_exhaustive()
    }
}
