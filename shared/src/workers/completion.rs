//! Notifies waiters that a pod has reached a point in its life.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::base::lock::Mutex;
use crate::kill::PodStopped;

/// Reports that all containers of a pod have stopped, and how.
pub(super) type EndSender = CompletionSender<Arc<PodStopped>>;

/// Waits for an [`EndSender`].
pub(super) type EndReceiver = CompletionReceiver<Arc<PodStopped>>;

/// The record's half. Dropping it resolves the wait too: the record is gone, so nothing is left to
/// wait for, and no code path can forget a caller.
#[derive(Debug)]
pub(super) struct CompletionSender<T: Clone + Default>(Arc<CompletionShared<T>>);

/// The caller's half. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CompletionReceiver<T>(Arc<CompletionShared<T>>);

#[derive(Debug)]
struct CompletionShared<T> {
    value: Mutex<Option<Completion<T>>>,
    completed: Notify,
}

/// The result of a wait.
#[derive(Clone, Debug)]
enum Completion<T> {
    Done(T),
    Not(Unended),
}

/// Why a pod does not reach the point.
#[derive(Clone, Debug)]
pub(super) enum Unended {
    /// The workers are gone, so the outcome will never be known.
    Gone,
    /// The runtime would not stop the pod any more, for this reason.
    Refused(Arc<str>),
}

// === impl CompletionSender ===

impl<T: Clone + Default> CompletionSender<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(CompletionShared { value: Mutex::new(None), completed: Notify::new() }))
    }

    pub(super) fn waiter(&self) -> CompletionReceiver<T> {
        CompletionReceiver(Arc::clone(&self.0))
    }

    pub(super) fn value(&self) -> Option<T> {
        match &*self.0.value.lock() {
            Some(Completion::Done(value)) => Some(value.clone()),
            Some(Completion::Not(_)) | None => None,
        }
    }

    /// Resolves all waiters with `value`. Only the first completion counts.
    pub(super) fn complete(&self, value: T) {
        self.0.complete(Completion::Done(value));
    }

    /// Resolves all waiters with the news that the workers are gone.
    pub(super) fn give_up(&self) {
        self.0.complete(Completion::Not(Unended::Gone));
    }

    /// Resolves all waiters with the news that the pod runs on, and why.
    pub(super) fn refuse(&self, why: Arc<str>) {
        self.0.complete(Completion::Not(Unended::Refused(why)));
    }
}

impl<T: Clone + Default> Drop for CompletionSender<T> {
    fn drop(&mut self) {
        self.complete(T::default());
    }
}

// === impl CompletionReceiver ===

impl<T: Clone> CompletionReceiver<T> {
    /// Resolves with the outcome, or with why there is none. Cancel-safe.
    pub(super) async fn wait(self) -> Result<T, Unended> {
        loop {
            let completed = self.0.completed.notified();
            tokio::pin!(completed);
            // From here on no notification is missed, even one between the check and the wait.
            completed.as_mut().enable();
            match &*self.0.value.lock() {
                Some(Completion::Done(value)) => return Ok(value.clone()),
                Some(Completion::Not(why)) => return Err(why.clone()),
                None => {}
            }
            completed.await;
        }
    }
}

// === impl CompletionShared ===

impl<T> CompletionShared<T> {
    fn complete(&self, value: Completion<T>) {
        let mut slot = self.value.lock();
        if slot.is_none() {
            *slot = Some(value);
            drop(slot);
            self.completed.notify_waiters();
        }
    }
}
