//! A pod in a runtime's memory, and waiting for changes of its state.

use std::sync::MutexGuard;

use tokio::sync::{broadcast, watch};
use winddown_shared::{Mutex, PodUid};

/// A pod whose state is `S`. All waiters check the state after each change.
#[derive(Debug)]
pub struct StateEntry<S> {
    uid: PodUid,
    state: Mutex<S>,
    changed: watch::Sender<()>,
    changes: broadcast::Sender<PodUid>,
}

impl<S: Default> StateEntry<S> {
    /// Creates a pod about which nothing is known yet. `changes` reports spontaneous changes to the pod workers.
    pub fn new(uid: PodUid, changes: broadcast::Sender<PodUid>) -> Self {
        Self { uid, state: Mutex::default(), changed: watch::Sender::new(()), changes }
    }
}

impl<S> StateEntry<S> {
    /// The UID of the pod.
    pub fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// Locks the state. The lock must not be held across an await or a system call that can wait.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// Wakes waiters within the runtime.
    pub fn bump(&self) {
        self.changed.send_replace(());
    }

    /// Wakes waiters, and tells the pod workers about a spontaneous change.
    pub fn announce(&self) {
        self.bump();
        // Fails only without receivers.
        let _ = self.changes.send(self.uid.clone());
    }

    /// Resolves when `found` returns something; it is called again after every change. Cancel-safe.
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
