//! Serializes the controllers that choose pods to terminate.

use std::sync::Arc;

use crate::base::lock::Mutex;

/// Lets one controller at a time choose victims, so that two never choose the same pod, and neither
/// terminates a pod for room that the other's victims will leave. Clones share one lock.
///
/// The lock is held while victims are chosen and requested to terminate, never while they terminate: from then on the
/// others see that these pods are terminating: [`non_terminating_pods`](crate::PodKiller::non_terminating_pods) leaves
/// them out. A pod with a grace period of half an hour does not delay an eviction.
///
/// A node shutdown does not take it: it terminates everything, whatever else was requested.
#[derive(Clone, Debug, Default)]
pub struct VictimLock(Arc<Mutex<()>>);

impl VictimLock {
    /// Creates an unlocked lock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `choose` while no other controller does. It inspects the pods, decides, and requests the terminations with
    /// [`begin_kill`](crate::PodKiller::begin_kill). Blocks while another choice is in progress; `choose` must not call this.
    pub fn choose<T>(&self, choose: impl FnOnce() -> T) -> T {
        // The lock holds no data, so a choice that panicked leaves nothing half done.
        let _turn = self.0.lock();
        choose()
    }
}
