//! The pod workers: the only component that starts and stops pods.
//!
//! # Behaviour
//! One record per pod UID moves waiting → syncing → terminating → terminated → finished and never
//! back. Updates are coalesced: only the latest is certain to be carried out, but a request to end a
//! pod is never lost, whatever comes after it. For one UID at most one step is under way.
//!
//! # Design
//! A record has a task only while there is something to do, so an idle pod costs its record and
//! nothing else. All transitions are synchronous functions of [`state::State`] under one lock that is
//! never held across an await; the tasks carry out the steps between them.
//!
//! # Limits
//! Pods are identified by UID alone. Nothing here survives a restart of the agent: the runtime knows
//! what runs, the source knows what should, and the first syncs bring the two together.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::syncer::{PodSyncer, UpdateKind};
use crate::{
    Event, KillError, KillRequest, Pod, PodKiller, PodStopped, PodUid, Recorder, RuntimePod,
};

mod grace;
mod queries;
mod record;
mod state;
mod static_names;
mod task;
mod timetable;
mod waiters;
#[cfg(test)]
mod tests;

pub use queries::PodSnapshot;
pub use record::Lifecycle;
use state::{KillWait, State, Wake};

/// How often the workers try again and look again.
#[derive(Clone, Debug)]
pub struct WorkerTimes {
    /// After this long without a change a running pod is synced again: the safety net for a lost
    /// event. Jittered by up to half as much again.
    pub resync: Duration,
    /// After a failed step the first retry comes after this long, then twice as long, …
    pub retry_first: Duration,
    /// … up to this.
    pub retry_most: Duration,
    /// The retry of a failure that will soon mend itself.
    pub retry_transient: Duration,
}

impl Default for WorkerTimes {
    fn default() -> Self {
        Self {
            resync: Duration::from_secs(60),
            retry_first: Duration::from_secs(1),
            retry_most: Duration::from_secs(10),
            retry_transient: Duration::from_secs(1),
        }
    }
}

/// Starts and stops pods. Cheap to clone; the workers end when the last clone is dropped.
pub struct PodWorkers<S> {
    inner: Arc<Inner<S>>,
    /// Ends the timer and the tasks with the last handle.
    _guard: Arc<DropGuard>,
}

impl<S> Clone for PodWorkers<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), _guard: self._guard.clone() }
    }
}

struct Inner<S> {
    state: Mutex<State>,
    syncer: S,
    recorder: Arc<dyn Recorder>,
    times: WorkerTimes,
    /// Wakes the timer when its first entry changed.
    timer: Notify,
    tasks: TaskTracker,
    root: CancellationToken,
}

// === impl PodWorkers ===

impl<S: PodSyncer> PodWorkers<S> {
    /// Workers that drive `syncer`. Must be called inside a tokio runtime.
    pub fn new(syncer: S, recorder: Arc<dyn Recorder>, times: WorkerTimes) -> Self {
        let root = CancellationToken::new();
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            syncer,
            recorder,
            times,
            timer: Notify::new(),
            tasks: TaskTracker::new(),
            root: root.clone(),
        });
        tokio::spawn(task::run_timer(inner.clone()));
        Self { inner, _guard: Arc::new(root.drop_guard()) }
    }

    /// What the workers drive.
    pub fn syncer(&self) -> &S {
        &self.inner.syncer
    }

    /// Hands a pod to its worker. Never blocks.
    ///
    /// A pod with a deletion timestamp is ended. [`UpdateKind::Create`] for a UID that is ending asks
    /// for it to be known anew once it is finished; [`UpdateKind::Kill`] is
    /// [`request_kill`](Self::request_kill) with the pod's own grace.
    pub fn update(&self, kind: UpdateKind, pod: Pod, mirror: Option<Pod>) {
        if kind == UpdateKind::Kill {
            self.request_kill(pod, &KillRequest::new(crate::KillReason::Removed));
            return;
        }
        let wake = self.inner.lock().update(kind, pod, mirror, Instant::now());
        self.inner.spawn(wake);
    }

    /// Something about the pod changed in the runtime: its worker looks again. Never blocks; a UID
    /// that is not known is ignored.
    pub fn look_again(&self, uid: &PodUid) {
        let wake = self.inner.lock().look_again(uid);
        self.inner.spawn(wake);
    }

    /// Looks at every pod again, after events were lost.
    pub fn look_at_all(&self) {
        let uids: Vec<PodUid> = self.inner.lock().records.keys().cloned().collect();
        for uid in uids {
            self.look_again(&uid);
        }
    }

    /// Asks for a pod's end without waiting for it. Never blocks.
    pub fn request_kill(&self, pod: Pod, request: &KillRequest) {
        self.inner.begin_kill(pod, request);
    }

    /// Ends what the runtime runs under a UID that nobody configured, with the shortest grace.
    pub fn kill_runtime_pod(&self, pod: RuntimePod) {
        let wake = self.inner.lock().kill_runtime_pod(pod, Instant::now());
        self.inner.spawn(wake);
    }

    /// Tells the workers everything that is desired now: what they track beyond that is ended, and
    /// what is finished is forgotten. Returns what they track afterwards.
    pub fn sync_known_pods(&self, desired: &HashSet<PodUid>) -> HashMap<PodUid, Lifecycle> {
        let (known, wakes) = self.inner.lock().sync_known_pods(desired, Instant::now());
        for wake in wakes {
            self.inner.spawn(Some(wake));
        }
        known
    }

    /// Stops all work and waits until no step is under way. Containers are left as they are.
    pub async fn shut_down(&self) {
        self.inner.root.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl<S: PodSyncer> PodKiller for PodWorkers<S> {
    async fn kill_pod(&self, pod: Pod, request: KillRequest) -> Result<Arc<PodStopped>, KillError> {
        let begun = Instant::now();
        let label = pod.label().clone();
        let (done, grace) = match self.inner.begin_kill(pod, &request) {
            KillWait::Done(stopped) => return Ok(stopped),
            KillWait::Ending { done, grace, .. } => (done, grace),
        };
        let deadline = request.deadline.unwrap_or_else(|| default_deadline(begun, grace));
        tokio::select! {
            biased;
            stopped = done.wait() => Ok(stopped),
            () = self.inner.root.cancelled() => {
                Err(KillError::WorkersGone { pod: label.to_string().into() })
            }
            () = tokio::time::sleep_until(deadline) => {
                let still_running = self.inner.syncer.last_seen_running(&label.uid);
                self.inner.recorder.record(&Event::ExceededGracePeriod { pod: label.clone() });
                Err(KillError::Deadline {
                    pod: label.to_string().into(),
                    waited: begun.elapsed(),
                    still_running,
                })
            }
        }
    }

    fn active_pods(&self) -> Vec<Pod> {
        let state = self.inner.lock();
        state
            .records
            .values()
            .filter(|r| r.lifecycle < Lifecycle::Terminated)
            .filter_map(|r| r.pod().cloned())
            .collect()
    }
}

// === impl Inner ===

impl<S: PodSyncer> Inner<S> {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held would be a bug in this module; the records themselves are
        // whole at every statement, so the other pods go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_kill(self: &Arc<Self>, pod: Pod, request: &KillRequest) -> KillWait {
        let label = pod.label().clone();
        let (wait, wake) = self.lock().kill(pod, request, Instant::now());
        if let KillWait::Ending { grace, began: true, .. } = &wait {
            let event = Event::KillRequested { pod: label, by: request.reason, grace: *grace };
            self.recorder.record(&event);
        }
        self.spawn(wake);
        wait
    }

    fn spawn(self: &Arc<Self>, wake: Option<Wake>) {
        if let Some((uid, generation)) = wake {
            self.tasks.spawn(task::run(self.clone(), uid, generation));
        }
    }
}

/// The grace, half as much again, and never less than ten seconds; saturating.
fn default_deadline(begun: Instant, grace: Duration) -> Instant {
    let wait = grace.saturating_add(grace / 2).max(Duration::from_secs(10));
    crate::grace::after(begun, wait)
}
