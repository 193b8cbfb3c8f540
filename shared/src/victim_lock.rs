//! Controllers that choose pods to end do so one after the other.

use std::sync::{Arc, Mutex, PoisonError};

/// Lets one controller at a time choose whom to end, so that two never choose the same pod, and
/// neither ends a pod for room that the other's victims will leave. Clones are one lock.
///
/// It is held for as long as it takes to choose and to ask for the ends, never while pods end: from
/// then on the others see that they are ending ([`staying_pods`](crate::PodKiller::staying_pods)
/// leaves them out). A pod that needs half an hour for its end does not keep an eviction waiting.
///
/// A node shutdown does not take it: it ends everything, whatever else was asked.
#[derive(Clone, Debug, Default)]
pub struct VictimLock(Arc<Mutex<()>>);

impl VictimLock {
    /// No controller is choosing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `choose`, which looks at the pods, decides, and asks for the ends with
    /// [`begin_kill`](crate::PodKiller::begin_kill), while no other controller does. Blocks for as
    /// long as another's choice takes; `choose` must not choose again inside.
    pub fn choose<T>(&self, choose: impl FnOnce() -> T) -> T {
        // Nothing is kept inside, so a choice that panicked has left nothing half done.
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        choose()
    }
}
