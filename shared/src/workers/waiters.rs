//! How everyone who waits for a pod's end learns of it.

use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use crate::kill::PodStopped;
use crate::lock::{Mutex, MutexGuard};

/// The record's end. Dropping it resolves the wait as well: the record is gone, nothing runs, and no
/// path through the code can forget a caller.
#[derive(Debug)]
pub(super) struct EndTeller(Arc<Shared>);

/// A caller's end. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct EndWaiter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<Option<Arc<PodStopped>>>,
    told: Notify,
}

// === impl EndTeller ===

impl EndTeller {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn waiter(&self) -> EndWaiter {
        EndWaiter(Arc::clone(&self.0))
    }

    /// How the pod ended, once it has.
    pub(super) fn stopped(&self) -> Option<Arc<PodStopped>> {
        self.0.lock().clone()
    }

    /// Tells everyone. The first word stands.
    pub(super) fn tell(&self, stopped: Arc<PodStopped>) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = Some(stopped);
            drop(slot);
            self.0.told.notify_waiters();
        }
    }
}

impl Drop for EndTeller {
    fn drop(&mut self) {
        self.tell(Arc::default());
    }
}

// === impl EndWaiter ===

impl EndWaiter {
    /// Resolves when the pod has ended. Cancel-safe.
    pub(super) async fn wait(self) -> Arc<PodStopped> {
        loop {
            let told = self.0.told.notified();
            tokio::pin!(told);
            // From here on no word is missed, also one between the look and the wait.
            told.as_mut().enable();
            if let Some(stopped) = self.0.lock().clone() {
                return stopped;
            }
            told.await;
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<PodStopped>>> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
