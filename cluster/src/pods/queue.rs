//! A queue of pods to handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::{Mutex, PodUid};

use winddown_shared::Backoff;

mod bucket;
mod schedule;
#[cfg(test)]
mod tests;

pub(crate) use bucket::Bucket;
use schedule::Schedule;

/// Pods to handle, each at its time, and none twice at the same time. Cheap to clone.
///
/// An item is only a UID: its handler reads the current state, so that states in between may be
/// skipped and the last one wins. Waking an item that waits can only make it due earlier; an item
/// that is woken while it is handled is handled again. A failed item is retried forever, with a
/// backoff that starts over when something new is known.
///
/// It never holds more items than there are pods.
#[derive(Clone, Debug)]
pub(crate) struct PodQueue(Arc<QueueShared>);

#[derive(Debug)]
struct QueueShared {
    schedule: Mutex<Schedule>,
    wake: Notify,
    counts: watch::Sender<QueueCounts>,
}

/// The size of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// All items.
    pub total: usize,
    /// Items that are not due yet, or for which there is no free worker.
    pub waiting: usize,
    /// Items that are being handled.
    pub in_flight: usize,
}

/// The result of handling an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemOutcome {
    /// Nothing is left to do until the item is woken.
    Done,
    /// The item is due again at this time. This is no failure.
    At(Instant),
    /// Handling failed, and is retried.
    Failed {
        /// The earliest time of the next attempt, if the other side named one.
        after: Option<Duration>,
    },
}

/// A task that handles items has panicked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("a worker of the {queue} queue panicked at pod {pod}: {message}")]
pub struct WorkerPanicked {
    /// The name of the queue.
    pub queue: &'static str,
    /// The pod that was being handled.
    pub pod: PodUid,
    /// The message of the panic.
    pub message: String,
}

// === impl PodQueue ===

impl PodQueue {
    /// Creates an empty queue whose failed items wait according to `backoff` and share `bucket`.
    pub(crate) fn new(backoff: Backoff, bucket: Bucket) -> Self {
        Self(Arc::new(QueueShared {
            schedule: Mutex::new(Schedule::new(backoff, bucket)),
            wake: Notify::new(),
            counts: watch::Sender::default(),
        }))
    }

    /// Makes a pod due now, because something may have changed. Ends the wait after a failure, but keeps the count.
    pub(crate) fn wake(&self, uid: &PodUid) {
        self.change(|schedule| schedule.wake(uid, Instant::now(), false));
    }

    /// Makes a pod due now, with a new backoff, because its desired state has changed.
    pub(crate) fn wake_fresh(&self, uid: &PodUid) {
        self.change(|schedule| schedule.wake(uid, Instant::now(), true));
    }

    /// Makes a pod due at `at`, unless it is due earlier.
    pub(crate) fn wake_at(&self, uid: &PodUid, at: Instant) {
        self.change(|schedule| schedule.wake(uid, at, false));
    }

    /// Removes the item, whatever the result of a handler that is running.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.change(|schedule| schedule.forget(uid));
    }

    /// The size of the queue, as it changes.
    pub(crate) fn counts(&self) -> watch::Receiver<QueueCounts> {
        self.0.counts.subscribe()
    }

    /// Handles items until `cancel`, at most `workers` at a time, and then waits for the running
    /// handlers. Only one caller at a time.
    ///
    /// # Errors
    /// When a handler panicked. The other handlers have finished.
    pub(crate) async fn run<F, Fut>(
        &self,
        name: &'static str,
        workers: usize,
        cancel: CancellationToken,
        handle: F,
    ) -> Result<(), WorkerPanicked>
    where
        F: Fn(PodUid) -> Fut,
        Fut: Future<Output = ItemOutcome> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut at = std::collections::HashMap::new();
        let mut result = Ok(());
        loop {
            while !cancel.is_cancelled() && result.is_ok() && tasks.len() < workers {
                let Some(uid) = self.change(|schedule| schedule.take(Instant::now())) else {
                    break;
                };
                let look = handle(uid.clone());
                let task = tasks.spawn(look);
                at.insert(task.id(), uid);
            }
            let stopping = cancel.is_cancelled() || result.is_err();
            if stopping && tasks.is_empty() {
                return result;
            }
            let full = tasks.len() >= workers;
            tokio::select! {
                Some(joined) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                    let id = joined.as_ref().map_or_else(tokio::task::JoinError::id, |(id, _)| *id);
                    let Some(pod) = at.remove(&id) else { continue };
                    match joined {
                        Ok((_, outcome)) => {
                            self.change(|s| s.finish(&pod, outcome, Instant::now()));
                        }
                        Err(error) => {
                            self.forget(&pod);
                            let message = error.to_string();
                            result = Err(WorkerPanicked { queue: name, pod, message });
                        }
                    }
                }
                () = self.due(), if !stopping && !full => {}
                () = cancel.cancelled(), if !stopping => {}
            }
        }
    }

    /// Waits until there may be an item to take.
    async fn due(&self) {
        loop {
            let next = self.0.schedule.lock().next();
            match next {
                Some(at) if at <= Instant::now() => return,
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.0.wake.notified() => {}
                },
                None => self.0.wake.notified().await,
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Schedule) -> T) -> T {
        let (result, counts) = {
            let mut schedule = self.0.schedule.lock();
            (change(&mut schedule), schedule.counts())
        };
        self.0.counts.send_if_modified(|old| std::mem::replace(old, counts) != counts);
        self.0.wake.notify_one();
        result
    }
}
