//! How a waiter learns that a pod has reached a point of its life.

use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use crate::kill::PodStopped;
use crate::lock::{Mutex, MutexGuard};

/// Tells that no container of a pod runs any more, and how they ended.
pub(super) type EndSender = CompletionSender<Arc<PodStopped>>;

/// Waits for that.
pub(super) type EndReceiver = CompletionReceiver<Arc<PodStopped>>;

/// The record's end. Dropping it resolves the wait as well: the record is gone, nothing is left to
/// wait for, and no path through the code can forget a caller.
#[derive(Debug)]
pub(super) struct CompletionSender<T: Clone + Default>(Arc<Shared<T>>);

/// A caller's end. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CompletionReceiver<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    word: Mutex<Option<Completion<T>>>,
    told: Notify,
}

/// What those who wait are told.
#[derive(Clone, Debug)]
enum Completion<T> {
    Done(T),
    /// The workers are gone, so it will never be known.
    Gone,
}

// === impl CompletionSender ===

impl<T: Clone + Default> CompletionSender<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared { word: Mutex::new(None), told: Notify::new() }))
    }

    pub(super) fn waiter(&self) -> CompletionReceiver<T> {
        CompletionReceiver(Arc::clone(&self.0))
    }

    /// What was told, once it was.
    pub(super) fn told(&self) -> Option<T> {
        match &*self.0.lock() {
            Some(Completion::Done(word)) => Some(word.clone()),
            Some(Completion::Gone) | None => None,
        }
    }

    /// Tells everyone. The first word stands.
    pub(super) fn tell(&self, word: T) {
        self.0.tell(Completion::Done(word));
    }

    /// Tells everyone that the workers are gone.
    pub(super) fn give_up(&self) {
        self.0.tell(Completion::Gone);
    }
}

impl<T: Clone + Default> Drop for CompletionSender<T> {
    fn drop(&mut self) {
        self.tell(T::default());
    }
}

// === impl CompletionReceiver ===

impl<T: Clone> CompletionReceiver<T> {
    /// Resolves when the word is told, or with `None` when the workers are gone. Cancel-safe.
    pub(super) async fn wait(self) -> Option<T> {
        loop {
            let told = self.0.told.notified();
            tokio::pin!(told);
            // From here on no word is missed, also one between the look and the wait.
            told.as_mut().enable();
            match &*self.0.lock() {
                Some(Completion::Done(word)) => return Some(word.clone()),
                Some(Completion::Gone) => return None,
                None => {}
            }
            told.await;
        }
    }
}

// === impl Shared ===

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Completion<T>>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, word: Completion<T>) {
        let mut slot = self.lock();
        if slot.is_none() {
            *slot = Some(word);
            drop(slot);
            self.told.notify_waiters();
        }
    }
}
