//! A pod in a runtime's memory, and waiting for what becomes of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};
use winddown_shared::PodUid;

/// A pod whose state is `S`. All waiters look at the state after each change.
#[derive(Debug)]
pub struct Entry<S> {
    uid: PodUid,
    state: Mutex<S>,
    changed: watch::Sender<()>,
    changes: broadcast::Sender<PodUid>,
}

impl<S: Default> Entry<S> {
    /// A pod of which nothing is known yet. `changes` tells the pod workers of what happens by itself.
    pub fn new(uid: PodUid, changes: broadcast::Sender<PodUid>) -> Self {
        Self { uid, state: Mutex::default(), changed: watch::Sender::new(()), changes }
    }
}

impl<S> Entry<S> {
    /// The pod's.
    pub fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// The state. Never held across an await or a system call that can wait.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait within the runtime.
    pub fn bump(&self) {
        self.changed.send_replace(());
    }

    /// Wakes those who wait, and tells the pod workers that something changed by itself.
    pub fn announce(&self) {
        self.bump();
        // Fails only without receivers.
        let _ = self.changes.send(self.uid.clone());
    }

    /// Resolves when `found` gives something; it is asked again after every change. Cancel-safe.
    pub async fn wait_for<T>(&self, mut found: impl FnMut(&mut S) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(found) = found(&mut self.lock()) {
                return found;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
