//! What the runtime holds, listed no more often than needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use winddown_shared::{RuntimeError, RuntimePod};

#[cfg(test)]
mod tests;

/// Keeps the last list of the runtime's pods.
///
/// `list` is called by one caller at a time; the others wait for it and share its answer, so a slow
/// runtime sees one call and not a stampede. An answer is stamped with the time *before* the call:
/// it is at least as new as its stamp. Times are tokio's, so a wall clock that jumps changes
/// nothing.
///
/// ```
/// # use std::sync::Arc;
/// # use winddown_runtime_cache::RuntimeCache;
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
    /// How many calls of `list` have ended, to tell who waited for which.
    ended: AtomicU64,
}

#[derive(Default)]
struct Last {
    listed: Option<Listed>,
    /// Set while the newest call is one that failed.
    failed: Option<RuntimeError>,
}

struct Listed {
    pods: Arc<[RuntimePod]>,
    stamp: Instant,
}

impl RuntimeCache<()> {
    /// How old a list may be that is still handed out: one pass of housekeeping and a second.
    pub const PERIOD: Duration = Duration::from_secs(3);
}

impl<L, F> RuntimeCache<L>
where
    L: Fn() -> F + Send + Sync,
    F: Future<Output = Result<Vec<RuntimePod>, RuntimeError>> + Send,
{
    /// A cache that has listed nothing yet; `list` is called when a list older than `period` would
    /// be handed out.
    pub fn new(period: Duration, list: L) -> Self {
        Self { list, period, last: Mutex::default(), ended: AtomicU64::new(0) }
    }

    /// The runtime's pods, listed at most one period before this call.
    ///
    /// Cancel-safe: a caller that goes away in the middle of a call leaves it to the next one.
    ///
    /// # Errors
    /// The list was too old and the runtime did not give a new one. The old one is kept, with its
    /// age, and is not handed out.
    pub async fn get(&self) -> Result<Arc<[RuntimePod]>, RuntimeError> {
        let period = self.period;
        let now = Instant::now();
        // Measured from here and not from the end of the wait: what a slow call brings is new enough
        // for all who waited for it and had come within a period of its begin.
        self.at_least(|stamp| now.saturating_duration_since(stamp) <= period).await
    }

    /// Lists anew unless the last list was stamped at `time` or later.
    ///
    /// Cancel-safe, as [`get`](Self::get) is.
    ///
    /// # Errors
    /// The runtime did not answer. The old list is kept, with its age.
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
        // A call that failed while this caller waited is an answer to it too: without this, a
        // runtime that hangs is asked by every waiter in turn, each waiting for its own time-out.
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
