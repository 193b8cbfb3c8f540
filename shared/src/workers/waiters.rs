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
    word: Mutex<Option<Word>>,
    told: Notify,
}

/// What those who wait are told.
#[derive(Clone, Debug)]
enum Word {
    Stopped(Arc<PodStopped>),
    /// The workers are gone, and nobody will ever know.
    Gone,
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
        match &*self.0.lock() {
            Some(Word::Stopped(stopped)) => Some(Arc::clone(stopped)),
            Some(Word::Gone) | None => None,
        }
    }

    /// Tells everyone. The first word stands.
    pub(super) fn tell(&self, stopped: Arc<PodStopped>) {
        self.0.tell(Word::Stopped(stopped));
    }

    /// Tells everyone that the workers are gone.
    pub(super) fn give_up(&self) {
        self.0.tell(Word::Gone);
    }
}

impl Drop for EndTeller {
    fn drop(&mut self) {
        self.tell(Arc::default());
    }
}

// === impl EndWaiter ===

impl EndWaiter {
    /// Resolves when the pod has ended, or with `None` when the workers are gone. Cancel-safe.
    pub(super) async fn wait(self) -> Option<Arc<PodStopped>> {
        loop {
            let told = self.0.told.notified();
            tokio::pin!(told);
            // From here on no word is missed, also one between the look and the wait.
            told.as_mut().enable();
            match &*self.0.lock() {
                Some(Word::Stopped(stopped)) => return Some(Arc::clone(stopped)),
                Some(Word::Gone) => return None,
                None => {}
            }
            told.await;
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Word>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, word: Word) {
        let mut slot = self.lock();
        if slot.is_none() {
            *slot = Some(word);
            drop(slot);
            self.told.notify_waiters();
        }
    }
}
