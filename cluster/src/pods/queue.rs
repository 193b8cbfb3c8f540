//! A queue of pods to handle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::PodUid;

use winddown_shared::Backoff;

mod bucket;
mod schedule;
#[cfg(test)]
mod tests;

pub(crate) use bucket::Bucket;
use schedule::Schedule;

/// Pods that need a look, each at its time, and never one twice at once. Cheap to clone.
///
/// An item is only a UID: its handler reads the current state, so that steps in between may be
/// skipped and the last state wins. What is woken again while it waits only moves forward; what is
/// woken while it is handled is handled once more. What failed is tried for ever, with a back-off
/// that begins anew when something fresh is known.
///
/// It never holds more items than there are pods.
#[derive(Clone, Debug)]
pub(crate) struct Queue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    schedule: Mutex<Schedule>,
    wake: Notify,
    counts: watch::Sender<QueueCounts>,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// All items.
    pub total: usize,
    /// Those whose time has not come, or for which there is no free worker.
    pub waiting: usize,
    /// Those that are looked at.
    pub in_flight: usize,
}

/// What came of looking at an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until it is woken.
    Done,
    /// It wants to be looked at again then. This is no failure.
    At(Instant),
    /// It did not work.
    Failed {
        /// The earliest time of the next attempt, if the other side named one.
        after: Option<Duration>,
    },
}

/// A task that handles items has panicked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("a worker of the {queue} queue panicked at pod {pod}: {message}")]
pub struct WorkerPanicked {
    /// Which queue.
    pub queue: &'static str,
    /// Which pod it was at.
    pub pod: PodUid,
    /// What it said.
    pub message: String,
}

// === impl Queue ===

impl Queue {
    /// An empty queue whose failed items wait as `backoff` says and share `bucket`.
    pub(crate) fn new(backoff: Backoff, bucket: Bucket) -> Self {
        Self(Arc::new(Inner {
            schedule: Mutex::new(Schedule::new(backoff, bucket)),
            wake: Notify::new(),
            counts: watch::Sender::default(),
        }))
    }

    /// Something may be different: as soon as possible. Ends the wait after a failure, but keeps count.
    pub(crate) fn wake(&self, uid: &PodUid) {
        self.change(|schedule| schedule.wake(uid, Instant::now(), false));
    }

    /// What is wanted is different: as soon as possible, and with a new back-off.
    pub(crate) fn wake_fresh(&self, uid: &PodUid) {
        self.change(|schedule| schedule.wake(uid, Instant::now(), true));
    }

    /// At `at`, or earlier if it is due earlier already.
    #[cfg(test)]
    pub(crate) fn wake_at(&self, uid: &PodUid, at: Instant) {
        self.change(|schedule| schedule.wake(uid, at, false));
    }

    /// The item is of no interest any more, whatever comes of a look that is under way.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.change(|schedule| schedule.forget(uid));
    }

    /// How much there is to do, as it changes.
    pub(crate) fn counts(&self) -> watch::Receiver<QueueCounts> {
        self.0.counts.subscribe()
    }

    /// Handles items until `cancel`, at most `workers` at a time, and then waits for those that are
    /// being handled. Only one caller at a time.
    ///
    /// # Errors
    /// A handler panicked; the others were waited for.
    pub(crate) async fn run<F, Fut>(
        &self,
        name: &'static str,
        workers: usize,
        cancel: CancellationToken,
        handle: F,
    ) -> Result<(), WorkerPanicked>
    where
        F: Fn(PodUid) -> Fut,
        Fut: Future<Output = Outcome> + Send + 'static,
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

    /// Resolves when there may be something to take.
    async fn due(&self) {
        loop {
            let next = self.lock().next();
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
            let mut schedule = self.lock();
            (change(&mut schedule), schedule.counts())
        };
        self.0.counts.send_if_modified(|old| std::mem::replace(old, counts) != counts);
        self.0.wake.notify_one();
        result
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.0.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
