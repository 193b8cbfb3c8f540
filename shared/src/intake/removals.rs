//! The removal of what pods left behind. It holds up nothing else, however long the runtime takes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::ReusableBoxFuture;

use super::leftovers::patiently;
use crate::{Backoff, PodUid, Runtime, RuntimeError, error_chain};

/// The pods whose remains are to be removed, one after the other.
pub(super) struct Removals {
    /// The value: whether its source wants a pod of that UID again, which waits for the removal.
    pub(super) left: HashMap<PodUid, bool>,
    current: Option<Removal>,
    failed: HashSet<PodUid>,
    /// When those that failed are tried again.
    retry_at: Instant,
    backoff: Backoff,
}

struct Removal {
    uid: PodUid,
    call: ReusableBoxFuture<'static, Result<(), RuntimeError>>,
}

impl Removals {
    pub(super) fn none() -> Self {
        let backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
        let (left, failed) = (HashMap::new(), HashSet::new());
        Self { left, current: None, failed, retry_at: Instant::now(), backoff }
    }

    /// Whether the pod is being removed.
    pub(super) fn is_current(&self, uid: &PodUid) -> bool {
        self.current.as_ref().is_some_and(|current| current.uid == *uid)
    }

    /// Resolves when a removal is over; never while there is none. Returns the pod if it is removed or cannot wait for
    /// that, and whether its source wants it again. Cancel-safe.
    pub(super) async fn next<R: Runtime>(&mut self, runtime: &Arc<R>) -> (Option<PodUid>, bool) {
        loop {
            if let Some(current) = &mut self.current {
                let outcome = (&mut current.call).await;
                let uid = current.uid.clone();
                self.current = None;
                let is_wanted = self.left.get(&uid).copied().unwrap_or(true);
                let is_removed = self.note(&uid, outcome);
                return ((is_removed || is_wanted).then_some(uid), is_wanted);
            }
            self.failed.retain(|uid| self.left.contains_key(uid));
            let due = self.left.iter().filter(|(uid, _)| !self.failed.contains(*uid));
            match due.max_by_key(|(_, is_wanted)| **is_wanted).map(|(uid, _)| uid.clone()) {
                Some(uid) => {
                    let (runtime, gone) = (Arc::clone(runtime), uid.clone());
                    let call = ReusableBoxFuture::new(async move {
                        patiently("cleaning up a removed pod", runtime.forget_pod(&gone)).await
                    });
                    self.current = Some(Removal { uid, call });
                }
                None if self.failed.is_empty() => std::future::pending().await,
                None => {
                    tokio::time::sleep_until(self.retry_at).await;
                    self.failed.clear();
                }
            }
        }
    }

    fn note(&mut self, uid: &PodUid, outcome: Result<(), RuntimeError>) -> bool {
        let Err(error) = outcome else {
            self.left.remove(uid);
            if self.failed.is_empty() {
                self.backoff.reset();
            }
            return true;
        };
        let error = error_chain(&error);
        tracing::warn!(%uid, error, "cannot clean up a removed pod; retrying");
        if self.failed.is_empty() {
            self.retry_at = Instant::now() + self.backoff.next_delay();
        }
        self.failed.insert(uid.clone());
        false
    }
}
