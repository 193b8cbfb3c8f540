//! The interface to the pod controller.

use std::sync::Arc;

use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;
use winddown_host::PodFiles;
use winddown_shared::{Pod, PodUid, WallClock, error_chain};

use super::downward::NodeAmounts;
use super::fresh::Freshener;
use super::problem::ReferenceProblem;
use super::room::MemoryRoom;
use super::shared::ResolverShared;
use super::{ResolverConfig, needs};
use winddown_cluster::events::Events;
use winddown_cluster::pods::{Prepare, PrepareError};

/// Resolves what pods refer to. Clones share everything.
#[derive(Clone)]
pub struct Resolver(Arc<ResolverShared>);

/// The current numbers of a [`Resolver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolveCounts {
    /// Known pods.
    pub pods: usize,
    /// Pods whose volumes are refreshed from time to time.
    pub kept_fresh: usize,
    /// Objects that are watched because pods wait for them.
    pub watched: usize,
}

// === impl Resolver ===

impl Resolver {
    /// Creates a resolver that knows no pod, and its [`Freshener`]. What pods lack is sent to `events`.
    pub fn new(
        client: Client,
        config: ResolverConfig,
        events: Events,
        wall: WallClock,
    ) -> (Self, Freshener) {
        let shared = Arc::new(ResolverShared::new(client, config, events, wall));
        (Self(Arc::clone(&shared)), Freshener::new(shared))
    }

    /// Sets what containers without limits may use. Variables that pods already have do not change;
    /// volumes do.
    pub fn set_node(&self, amounts: NodeAmounts) {
        *self.0.node.lock() = Some(amounts);
    }

    /// Removes the volumes of unknown pods, such as those that were removed while no agent ran.
    /// Blocking. Returns how many directories were removed.
    pub fn remove_unknown(&self, is_known: impl Fn(&str) -> bool) -> usize {
        self.0.places.remove_unknown(|uid| is_known(uid) || self.0.knows(&PodUid::new(uid)))
    }

    /// The room of the pods' volumes in memory, which their records have to share.
    pub fn memory_room(&self) -> MemoryRoom {
        self.0.places.room.clone()
    }

    /// The current numbers.
    pub fn counts(&self) -> ResolveCounts {
        let state = self.0.lock();
        ResolveCounts {
            pods: state.pods.len(),
            kept_fresh: state.timetable.len(),
            watched: self.0.waiting.watched(),
        }
    }
}

impl Prepare for Resolver {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        let shared = &self.0;
        let outcome = shared.resolve_pod(pod).await;
        match &outcome {
            Ok(_) => shared.waiting.stop(pod.uid()),
            Err(ReferenceProblem::Missing { key, version, .. }) if shared.knows(pod.uid()) => {
                shared.waiting.wait(pod.uid(), key.clone(), version.clone());
            }
            Err(_) => {}
        }
        outcome.map_err(PrepareError::from)
    }

    fn adopt(&self, given: &Pod) {
        self.0.adopt(given);
        self.refresh(given);
    }

    fn refresh(&self, pod: &Pod) {
        self.0.remember(pod);
        if needs::made_here(pod).next().is_some() || self.0.places.are_in(pod) {
            self.0.look_at(pod.uid(), Instant::now());
        }
    }

    async fn forget(&self, uid: &PodUid) {
        let shared = &self.0;
        shared.waiting.stop(uid);
        let kept = {
            let mut state = shared.lock();
            state.timetable.remove(uid);
            state.pods.remove(uid)
        };
        let (places, uid) = (shared.places.clone(), uid.clone());
        let work = move || {
            let volume_lock = kept.map(|kept| kept.volume_lock);
            let guard = volume_lock.as_ref().map(|s| s.lock());
            if let Some(mut stands) = guard {
                *stands = false;
            }
            places.remove(uid.as_str()).map_err(|error| (uid, error))
        };
        if let Ok(Err((uid, error))) = PodFiles::Remove.work(work).await {
            tracing::warn!(%uid, error = error_chain(&error), "volumes of a pod that is gone cannot be removed");
        }
    }

    fn arrivals(&self) -> Option<mpsc::Receiver<PodUid>> {
        self.0.arrivals.lock().take()
    }
}

#[cfg(test)]
mod tests;
