//! All pods of a runtime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use winddown_shared::{PodUid, PodUidMap, RuntimePod};

use crate::pod::{Boundary, PodEntry};

/// UIDs of changed pods that a slow reader may fall behind before it has to look at all pods.
const CHANGES: usize = 1024;

/// The pods that a runtime knows, and what changes of them by itself.
#[derive(Debug)]
pub struct Pods<B: Boundary> {
    known: Mutex<PodUidMap<Arc<PodEntry<B>>>>,
    changes: broadcast::Sender<PodUid>,
}

impl<B: Boundary> Default for Pods<B> {
    fn default() -> Self {
        Self { known: Mutex::default(), changes: broadcast::Sender::new(CHANGES) }
    }
}

impl<B: Boundary> Pods<B> {
    /// All of them, by UID. Never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, PodUidMap<Arc<PodEntry<B>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, as they are now.
    pub fn all(&self) -> Vec<Arc<PodEntry<B>>> {
        self.lock().values().cloned().collect()
    }

    /// All of them, for a listing.
    pub fn list(&self) -> Vec<RuntimePod> {
        self.lock().values().map(|entry| entry.lock().summary(entry.uid())).collect()
    }

    /// The pod, if it is known.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodEntry<B>>> {
        self.lock().get(uid).cloned()
    }

    /// The pod; from now on it is known.
    pub fn get_or_new(&self, uid: &PodUid) -> Arc<PodEntry<B>> {
        let fresh = || Arc::new(PodEntry::new(uid.clone(), self.changes.clone()));
        Arc::clone(self.lock().entry(uid.clone()).or_insert_with(fresh))
    }

    /// The pod is known no more.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// Tells the pod workers to look at the pod.
    pub fn announce(&self, uid: PodUid) {
        // Fails only without receivers.
        let _ = self.changes.send(uid);
    }

    /// The UIDs of pods of which something changed by itself.
    pub fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.changes.subscribe()
    }
}
