//! The pod workers: the only component that starts and stops pods.
//!
//! # Behaviour
//! One record per pod UID moves waiting → syncing → terminating → terminated → finished and never
//! back. Updates are coalesced: only the latest is guaranteed to be carried out, but a request to
//! terminate a pod is never lost, whatever follows it. At most one step per UID is in flight.
//!
//! # Design
//! A record has a task only while there is something to do, so an idle pod costs only its record.
//! All transitions are synchronous functions of [`state::WorkersState`] under one lock that is never held
//! across an await; the tasks carry out the steps in between.
//!
//! # Limits
//! There is no status cache between a step and the runtime: the syncer queries the runtime directly, so a step never
//! waits for the next listing of all pods and sees the effect of its own calls.
//!
//! Pods are identified by UID alone. Nothing here survives a restart of the agent: the runtime
//! knows what runs, the source knows what should run, and the first syncs reconcile the two.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::base::lock::Mutex;
use crate::event::contained;
use crate::workers::syncer::{PodSyncer, RuntimeView, UpdateKind};
use crate::{
    ContainedRecorder, Event, GateReason, Grace, KillError, KillReason, KillRequest,
    NodeEndListener, NodeEnding, Pod, PodKiller, PodRef, PodStateProvider, PodStopped, PodUid,
    Recorder, RunningPods, RuntimePod,
};

mod completion;
mod grace;
mod observer;
mod places;
mod queries;
mod record;
pub(crate) mod runtime_syncer;
pub(crate) mod start_turn;
mod state;
mod static_names;
pub(crate) mod syncer;
mod task;
#[cfg(test)]
mod tests;
mod timetable;
mod volumes;

use completion::{EndReceiver, Unended};
pub use observer::{StopChange, WorkerObserver};
pub use queries::PodSnapshot;
pub use record::Lifecycle;
use record::Wake;
pub(crate) use state::has_terminal_phase;
use state::{KillWait, WorkersState};

/// The default of the interval after which a running pod is synced again without a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// Starts and stops pods. Cheap to clone; the workers stop when the last clone is dropped, or by
/// [`shut_down`](Self::shut_down), which ends what holds a clone of its own.
pub struct PodWorkers<S> {
    inner: Arc<WorkersShared<S>>,
    /// Stops the timer and the tasks when the last handle is dropped.
    _guard: Arc<DropGuard>,
}

impl<S> Clone for PodWorkers<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), _guard: self._guard.clone() }
    }
}

struct WorkersShared<S> {
    state: Mutex<WorkersState>,
    syncer: S,
    recorder: ContainedRecorder,
    observer: Arc<dyn WorkerObserver>,
    resync: Duration,
    /// Notified when a finished pod can be forgotten or started again.
    settled: Notify,
    /// Notified when a pod has given up its place on the node.
    left: Notify,
    /// Incremented when a pod may have terminated, or is known to have.
    ends: watch::Sender<u64>,
    /// Incremented when a pod is newly known to run.
    more_known: watch::Sender<u64>,
    /// Wakes the timer task when its earliest entry has changed.
    timer: Notify,
    /// Has a receiver for each task.
    tasks: watch::Sender<()>,
    root: CancellationToken,
    /// Set once no further step may begin. `root` carries the same information, but reading it takes a lock.
    shut_down: AtomicBool,
}

// === impl PodWorkers ===

impl<S: PodSyncer> PodWorkers<S> {
    /// Creates workers that drive `syncer`. Must be called inside a tokio runtime.
    pub fn new(syncer: S, recorder: Arc<dyn Recorder>) -> Self {
        Self::with_observer(syncer, recorder, RESYNC_INTERVAL, Arc::new(()))
    }

    /// Like [`new`](Self::new), and reports to `observer` how long the steps take. A running pod is synced again without a
    /// change after `resync`, jittered by up to half as much again: the safety net for a lost event.
    pub fn with_observer(
        syncer: S,
        recorder: Arc<dyn Recorder>,
        resync: Duration,
        observer: Arc<dyn WorkerObserver>,
    ) -> Self {
        let root = CancellationToken::new();
        let inner = Arc::new(WorkersShared {
            state: Mutex::default(),
            syncer,
            recorder: ContainedRecorder::new(recorder),
            observer,
            resync,
            settled: Notify::new(),
            left: Notify::new(),
            ends: watch::Sender::new(0),
            more_known: watch::Sender::new(0),
            timer: Notify::new(),
            tasks: watch::Sender::new(()),
            root: root.clone(),
            shut_down: AtomicBool::new(false),
        });
        start("timer of the pod workers", task::run_timer(inner.clone()));
        Self { inner, _guard: Arc::new(root.drop_guard()) }
    }

    /// The syncer that the workers drive.
    pub fn syncer(&self) -> &S {
        &self.inner.syncer
    }

    /// Hands a pod to its worker. Never blocks.
    ///
    /// A pod with a deletion timestamp is terminated. [`UpdateKind::Create`] for a UID that is
    /// terminating requests that it start again once it is finished; [`UpdateKind::Kill`] is
    /// [`request_kill`](Self::request_kill) with the pod's own grace period.
    pub fn update(&self, kind: UpdateKind, pod: Pod, mirror: Option<Pod>) {
        if kind == UpdateKind::Kill {
            self.request_kill(pod, &KillRequest::new(crate::KillReason::Removed));
            return;
        }
        let ends = pod.metadata.deletion_timestamp.is_some();
        let view = self.inner.view(&pod, ends);
        let uid = pod.uid().clone();
        let now = Instant::now();
        let (wake, settled, is_more) = {
            let mut state = self.inner.state.lock();
            // Before the runtime is listed, the pods come one by one: what is known then says nothing of their order.
            let is_more = !ends && state.is_newly_known(&uid);
            let wake = state.update(kind, pod, mirror, view, now);
            let settled = kind == UpdateKind::Create && state.is_ready_to_restart(&uid);
            (wake, settled, is_more)
        };
        self.inner.spawn(wake);
        if is_more {
            self.inner.more_known.send_modify(|n| *n += 1);
        }
        if ends {
            // A pod with nothing to stop terminates at once.
            self.inner.ends.send_modify(|n| *n += 1);
        }
        if settled {
            self.inner.settled.notify_one();
        }
    }

    /// Has a pod's worker check it again because something changed in the runtime. Never blocks.
    /// Returns whether the UID is known; an unknown one is ignored.
    pub fn resync(&self, uid: &PodUid) -> bool {
        let (known, wake) = {
            let mut state = self.inner.state.lock();
            (state.records.contains_key(uid), state.resync(uid))
        };
        self.inner.spawn(wake);
        known
    }

    /// Has every pod checked again, after events were lost.
    pub fn resync_all(&self) {
        let uids: Vec<PodUid> = self.inner.state.lock().records.keys().cloned().collect();
        for uid in uids {
            self.resync(&uid);
        }
    }

    /// Requests the termination of a pod without waiting for it. Never blocks. Unlike
    /// [`begin_kill`](PodKiller::begin_kill), does not ask whether the runtime refuses.
    pub fn request_kill(&self, pod: Pod, request: &KillRequest) {
        let view = self.inner.view(&pod, true);
        self.inner.begin_kill(pod, request, view);
    }

    /// Requests again what an earlier agent requested, even if it has stopped: that publishes its status. Never blocks.
    pub(crate) fn resume_kill(&self, pod: Pod, request: &KillRequest) {
        self.inner.begin_kill(pod, request, RuntimeView::NotYetKnown);
    }

    /// Takes a pod that had completed before this agent started: it only has to be freed. Never blocks.
    pub(crate) fn take_completed(&self, pod: Pod) {
        let (kind, view) = (UpdateKind::Create, RuntimeView::Completed);
        let wake = self.inner.state.lock().update(kind, pod, None, view, Instant::now());
        self.inner.spawn(wake);
    }

    /// Stops what the runtime runs under a UID that is not configured, with the grace period that the runtime has kept
    /// ([`RuntimePod::grace`]). What it runs of a pod that has finished gets the shortest. Never blocks.
    pub fn kill_runtime_pod(&self, pod: &RuntimePod) {
        let grace = Some(pod.grace.unwrap_or(Grace::DEFAULT));
        let request = KillRequest { grace, ..KillRequest::new(KillReason::Removed) };
        self.request_kill(Pod::of_runtime(pod), &request);
    }

    /// Announces that the runtime is about to be listed for the next [`note_running`](Self::note_running). A pod that
    /// terminates in between is treated as stopped, whatever that listing says. Never blocks.
    pub fn listing_begins(&self) {
        self.inner.state.lock().listing_begins();
    }

    /// Reports what runs, and whether the runtime has been listed. Pods that have a record are
    /// ignored; the others count as pods of a source or of none. The workers cannot know that
    /// nothing runs until this was called with [`known`](RunningPods::known). Never blocks.
    pub fn note_running(&self, running: RunningPods) {
        let (is_more, has_left) = self.inner.state.lock().note_running(running);
        if is_more || has_left {
            self.inner.ends.send_modify(|n| *n += 1);
        }
        if is_more {
            self.inner.more_known.send_modify(|n| *n += 1);
        }
        if has_left {
            self.inner.left.notify_one();
        }
    }

    /// Resolves when a pod has finished that is no longer desired or is to start again, so that
    /// [`sync_known_pods`](Self::sync_known_pods) has something to forget; at once if that happened
    /// since the last call. For one caller; cancel-safe.
    pub async fn settled(&self) {
        self.inner.settled.notified().await;
    }

    /// Resolves when the containers of some pod have all stopped; at once if that happened since
    /// the last call. For one caller; cancel-safe.
    pub(crate) async fn place_left(&self) {
        self.inner.left.notified().await;
    }

    /// Reports the whole desired set: terminates the tracked pods that are not in it, and forgets
    /// those that are finished. Returns the pods that are tracked afterwards.
    pub fn sync_known_pods(&self, desired: &HashSet<PodUid>) -> HashMap<PodUid, Lifecycle> {
        let (known, wakes) = self.inner.state.lock().sync_known_pods(desired, Instant::now());
        for wake in wakes {
            self.inner.spawn(Some(wake));
        }
        known
    }

    /// Sets whether pods that are to start again keep their records, and so do not.
    pub(crate) fn hold_restarts(&self, hold: bool) {
        let mut state = self.inner.state.lock();
        state.forgotten = hold.then(|| state.forgotten.take().unwrap_or_default());
    }

    /// Stops all work and waits until no step is in flight. Containers are left as they are, and no
    /// step is taken afterwards, whatever is requested.
    pub async fn shut_down(&self) {
        self.inner.shut_down.store(true, Ordering::Relaxed);
        self.inner.root.cancel();
        // A kill that begins after this detects by itself that the workers are gone.
        self.inner.state.lock().give_up();
        self.inner.tasks.closed().await;
    }
}

impl<S: PodSyncer> PodKiller for PodWorkers<S> {
    async fn kill_pod(&self, pod: Pod, request: KillRequest) -> Result<Arc<PodStopped>, KillError> {
        let begun = Instant::now();
        if let Some(why) = self.inner.syncer.refuses_stop(pod.uid(), request.reason) {
            return Err(KillError::Refused { pod: pod.pod_ref().to_string().into(), why });
        }
        let view = self.inner.view(&pod, true);
        let (done, grace) = match self.inner.begin_kill(pod.clone(), &request, view) {
            KillWait::Done(stopped) => return Ok(stopped),
            KillWait::Ending { done, grace, .. } => (done, grace),
        };
        let deadline = request.deadline.unwrap_or_else(|| default_deadline(begun, grace));
        self.inner.until_ended(pod.pod_ref(), done, begun, deadline).await
    }

    fn running(&self) -> RunningPods {
        self.inner.state.lock().running()
    }

    fn more_known(&self) -> watch::Receiver<u64> {
        self.inner.more_known.subscribe()
    }

    fn begin_kill(&self, pod: Pod, request: KillRequest) {
        if self.inner.syncer.refuses_stop(pod.uid(), request.reason).is_none() {
            self.request_kill(pod, &request);
        }
    }

    fn non_terminating_pods(&self) -> Vec<Pod> {
        self.places().non_terminating
    }

    async fn volumes_released(&self, uid: &PodUid, deadline: Instant) -> Vec<String> {
        self.until_volumes_released(uid, deadline).await
    }
}

impl<S: PodSyncer> PodStateProvider for PodWorkers<S> {
    fn prior_reason(&self, uid: &PodUid) -> Option<KillReason> {
        self.inner.state.lock().records.get(uid)?.ending.as_ref()?.reason
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        self.inner.syncer.refuses_stop(uid, reason)
    }

    fn grace_left(&self, uid: &PodUid) -> Option<Duration> {
        self.inner.state.lock().records.get(uid)?.grace_left(Instant::now())
    }

    async fn unseen_end(&self, uid: &PodUid) -> Option<PodStopped> {
        self.inner.syncer.unseen_end(uid).await
    }

    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        self.inner.syncer.survives_soft_reboot(uid)
    }
}

impl<S: PodSyncer> NodeEndListener for PodWorkers<S> {
    fn announce(&self, reason: GateReason, ending: NodeEnding) {
        self.inner.syncer.announce(reason, ending);
    }

    fn lame_duck(&self, reason: GateReason, on: bool) {
        self.inner.syncer.lame_duck(reason, on);
    }
}

// === impl WorkersShared ===

impl<S: PodSyncer> WorkersShared<S> {
    fn begin_kill(
        self: &Arc<Self>,
        pod: Pod,
        request: &KillRequest,
        view: RuntimeView,
    ) -> KillWait {
        let (label, now) = (pod.clone(), Instant::now());
        let (wait, mut wake, settled) = {
            let mut state = self.state.lock();
            let (wait, wake) = if pod.is_runtime_only() {
                state.kill_runtime_pod(RuntimePod::of_stand_in(&pod), request, now)
            } else {
                state.kill(pod, request, view, None, now)
            };
            (wait, wake, state.is_ready_to_restart(label.uid()))
        };
        match &wait {
            KillWait::Ending { began: true, .. } if request.is_recorded => {}
            KillWait::Ending { grace, began: true, .. } => {
                self.recorder.record(&Event::KillRequested {
                    pod: label.pod_ref().clone(),
                    is_static: label.is_static(),
                    by: request.reason,
                    grace: *grace,
                    status: request.status.clone(),
                });
                wake = self.state.lock().recorded(label.uid());
            }
            KillWait::Ending { grace, tightened: true, status, .. } => {
                let (grace, node_waits) = (*grace, request.is_waited_for());
                let (status, evict) = (status.clone(), request.evict);
                let change = StopChange { grace, node_waits, status, evict };
                contained(label.pod_ref(), || self.observer.stop_changed(label.pod_ref(), &change));
                wake = self.state.lock().recorded(label.uid());
            }
            KillWait::Ending { .. } | KillWait::Done(_) => {}
        }
        self.spawn(wake);
        if settled {
            self.settled.notify_one();
        }
        if matches!(wait, KillWait::Done(_)) {
            // The pod may have held a place without having started.
            self.left.notify_one();
            self.ends.send_modify(|n| *n += 1);
        }
        wait
    }

    /// What is known of the pod's containers, for the cases that depend on it: a pod that is already over when it is
    /// first seen, and a static pod that is terminated before it has started. Must be called without the lock.
    fn view(&self, pod: &Pod, ends: bool) -> RuntimeView {
        if (ends && pod.is_static()) || has_terminal_phase(pod) {
            self.syncer.runtime_view(pod.uid())
        } else {
            RuntimeView::NotYetKnown
        }
    }

    async fn until_ended(
        &self,
        pod: &PodRef,
        done: EndReceiver,
        begun: Instant,
        deadline: Instant,
    ) -> Result<Arc<PodStopped>, KillError> {
        if self.root.is_cancelled() {
            return Err(KillError::WorkersGone { pod: pod.to_string().into() });
        }
        tokio::select! {
            biased;
            stopped = done.wait() => stopped.map_err(|unended| {
                let pod: Arc<str> = pod.to_string().into();
                match unended {
                    Unended::Gone => KillError::WorkersGone { pod },
                    Unended::Refused(why) => KillError::Refused { pod, why },
                }
            }),
            () = tokio::time::sleep_until(deadline) => {
                let still_running = self.syncer.last_seen_running(&pod.uid);
                self.recorder.record(&Event::ExceededGracePeriod { pod: pod.clone() });
                Err(KillError::Deadline {
                    pod: pod.to_string().into(),
                    waited: begun.elapsed(),
                    still_running,
                })
            }
        }
    }

    fn spawn(self: &Arc<Self>, wake: Option<Wake>) {
        if let Some((uid, generation)) = wake {
            start("pod worker", task::run(self.clone(), uid, generation));
        }
    }
}

/// Spawns a task. A panic in a pod's step fails only that step; a panic outside of a step would
/// leave pods that no task can stop, so it is critical.
fn start(name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    #[cfg(test)]
    if crate::base::lock::is_scheduled() {
        shuttle::future::spawn(task);
        return;
    }
    crate::base::critical::spawn(name, task);
}

/// The grace period plus half of it, and at least ten seconds; saturating.
fn default_deadline(begun: Instant, grace: Duration) -> Instant {
    let wait = grace.saturating_add(grace / 2).max(Duration::from_secs(10));
    crate::kill::grace::instant_after(begun, wait)
}
