//! The removal of what pods left behind. It holds up nothing else, however long the runtime takes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::ReusableBoxFuture;

use super::leftovers::patiently;
use crate::{Backoff, PodUid, Runtime, RuntimeError, error_chain};

/// The pods whose remains are to be removed, one after the other.
pub(super) struct Removals {
    pub(super) left: HashSet<PodUid>,
    current: Option<Removal>,
    failed: HashSet<PodUid>,
    /// When those that failed are tried again.
    retry_at: Instant,
    backoff: Backoff,
}

struct Removal {
    uid: PodUid,
    call: ReusableBoxFuture<'static, Result<(), RuntimeError>>,
    /// Whether its source wants the pod again.
    is_wanted: bool,
}

impl Removals {
    pub(super) fn none() -> Self {
        let backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
        let (left, failed) = (HashSet::new(), HashSet::new());
        Self { left, current: None, failed, retry_at: Instant::now(), backoff }
    }

    /// Whether a pod that its source wants has to wait, because it is being removed.
    pub(super) fn holds_back(&mut self, uid: &PodUid) -> bool {
        let current = self.current.as_mut().filter(|current| current.uid == *uid);
        current.map(|current| current.is_wanted = true).is_some()
    }

    /// Resolves when a removal is over; never while there is none. Returns the pod if it is removed, and whether it was
    /// held back. Cancel-safe.
    pub(super) async fn next<R: Runtime>(&mut self, runtime: &Arc<R>) -> (Option<PodUid>, bool) {
        loop {
            if let Some(current) = &mut self.current {
                let outcome = (&mut current.call).await;
                let (uid, is_wanted) = (current.uid.clone(), current.is_wanted);
                self.current = None;
                return (self.note(uid, outcome), is_wanted);
            }
            self.failed.retain(|uid| self.left.contains(uid));
            let next = self.left.iter().find(|uid| !self.failed.contains(*uid)).cloned();
            match next {
                Some(uid) => {
                    let (runtime, gone) = (Arc::clone(runtime), uid.clone());
                    let call = ReusableBoxFuture::new(async move {
                        patiently("cleaning up a removed pod", runtime.forget_pod(&gone)).await
                    });
                    self.current = Some(Removal { uid, call, is_wanted: false });
                }
                None if self.failed.is_empty() => std::future::pending().await,
                None => {
                    tokio::time::sleep_until(self.retry_at).await;
                    self.failed.clear();
                }
            }
        }
    }

    fn note(&mut self, uid: PodUid, outcome: Result<(), RuntimeError>) -> Option<PodUid> {
        let Err(error) = outcome else {
            self.left.remove(&uid);
            if self.failed.is_empty() {
                self.backoff.reset();
            }
            return Some(uid);
        };
        let error = error_chain(&error);
        tracing::warn!(%uid, error, "cannot clean up a removed pod; retrying");
        if self.failed.is_empty() {
            self.retry_at = Instant::now() + self.backoff.next_delay();
        }
        self.failed.insert(uid);
        None
    }
}
