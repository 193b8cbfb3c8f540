//! The removal of what pods left behind. It holds up nothing else, however long the runtime takes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::ReusableBoxFuture;

use super::leftovers::patiently;
use crate::{PodUid, Runtime, RuntimeError, error_chain};

/// Delay before the first retry of failed removals; it doubles with every further failure.
const RETRY_FIRST: Duration = Duration::from_secs(2);

/// Upper limit of that delay.
const RETRY_MOST: Duration = Duration::from_secs(60);

/// The pods whose remains are to be removed, one after the other.
#[derive(Default)]
pub(super) struct Removals {
    left: HashSet<PodUid>,
    current: Option<Removal>,
    /// Those of `left` that failed since the last retry.
    failed: HashSet<PodUid>,
    /// When they are tried again, and the delay that ends then.
    retry: Option<(Instant, Duration)>,
}

struct Removal {
    uid: PodUid,
    call: ReusableBoxFuture<'static, Result<(), RuntimeError>>,
    /// Whether its source wants the pod again.
    is_wanted: bool,
}

// === impl Removals ===

impl Removals {
    /// Replaces the pods whose remains are to be removed. A removal that has begun continues.
    pub(super) fn replace(&mut self, left: HashSet<PodUid>) {
        self.failed.retain(|uid| left.contains(uid));
        self.left = left;
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
                self.note(&uid, &outcome);
                return (outcome.is_ok().then_some(uid), is_wanted);
            }
            let next = self.left.iter().find(|uid| !self.failed.contains(*uid)).cloned();
            match (next, self.retry) {
                (Some(uid), _) => {
                    let (runtime, gone) = (Arc::clone(runtime), uid.clone());
                    let call = async move {
                        patiently("removing a pod's remains", runtime.forget_pod(&gone)).await
                    };
                    let call = ReusableBoxFuture::new(call);
                    self.current = Some(Removal { uid, call, is_wanted: false });
                }
                (None, Some((at, _))) if !self.failed.is_empty() => {
                    tokio::time::sleep_until(at).await;
                    self.failed.clear();
                }
                (None, _) => std::future::pending().await,
            }
        }
    }

    fn note(&mut self, uid: &PodUid, outcome: &Result<(), RuntimeError>) {
        let now = Instant::now();
        match outcome {
            Ok(()) => {
                self.left.remove(uid);
                self.retry = self.retry.filter(|_| !self.left.is_empty());
            }
            Err(error) => {
                tracing::warn!(
                    %uid, error = error_chain(error), "could not remove a pod's remains; will retry"
                );
                let delay = match self.retry {
                    None => Some(RETRY_FIRST),
                    Some((at, last)) => (at <= now).then_some((last * 2).min(RETRY_MOST)),
                };
                self.retry = delay.map(|delay| (now + delay, delay)).or(self.retry);
                self.failed.insert(uid.clone());
            }
        }
    }
}
