//! The record of one pod UID: plain data, moved forward by [`WorkersState`](super::state::WorkersState).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::completion::{CompletionReceiver, CompletionSender, EndSender};
use crate::base::lock::Mutex;
use crate::kill::PodStopped;
use crate::kill::grace::instant_after;
use crate::workers::syncer::UpdateKind;
use crate::{GraceSender, KillReason, KillRequest, Pod, PodUid, RuntimePod, StatusOverride};

/// The stage of a pod's life. A pod moves down this list and never back; leaving `Finished` means
/// that the record is removed and the UID is unknown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifecycle {
    /// Known, but not started: another static pod with the same full name is still terminating.
    Waiting,
    /// Its containers are started and kept running.
    Syncing,
    /// It must stop; containers may still run.
    Terminating,
    /// No container runs or will run; its resources are being freed.
    Terminated,
    /// Nothing is left to do. The record stays so that the UID cannot start again by accident.
    Finished,
}

/// A task to spawn: the UID and the record's generation.
pub(super) type Wake = (PodUid, u64);

#[derive(Debug)]
pub(super) struct Record {
    /// Distinguishes this record from an earlier one of the same UID, so that a late task of the
    /// earlier one finds nothing to do.
    pub(super) generation: u64,
    pub(super) full_name: Arc<str>,
    /// Whether it takes part in [`StaticNames`](super::static_names::StaticNames).
    pub(super) is_static: bool,
    pub(super) lifecycle: Lifecycle,
    pub(super) queue: Queue,
    pub(super) observed: Observed,
    pub(super) ending: Option<Box<Ending>>,
    /// Cancels the sync call in flight, if any: none follows it.
    pub(super) cancel: Option<Arc<Notify>>,
    pub(super) first_seen: Instant,
    /// The update that the step in flight answers, and when it came.
    pub(super) answers: Option<(UpdateKind, Instant)>,
    /// Whether the pod was requested to terminate because it was deleted or its source dropped it.
    pub(super) deleted: bool,
    pub(super) evicted: bool,
    /// Whether a create came for this UID while it was terminating: once finished, it may start again.
    pub(super) restart_requested: bool,
    /// Notifies the waiters once the pod holds nothing any more; rarely set.
    pub(super) freed: Option<CompletionSender<()>>,
}

/// What is to be done next for a record, and when.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) pending: Option<Pending>,
    /// Whether a task is running for this record. There is at most one.
    pub(super) busy: bool,
    /// Key of this record in the timetable. It may be earlier than needed: moving it with every
    /// sync would cost more than an occasional superfluous check.
    pub(super) due: Option<(Instant, u64)>,
    /// When to check again if no update comes first.
    pub(super) again_at: Option<Instant>,
    /// Consecutive failures of the current step.
    pub(super) failures: u32,
}

/// The pod as its source, the API server and the runtime have it.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The pod as last consumed. Pinned from termination on: the containers are stopped by the spec that started them.
    pub(super) pod: Option<Pod>,
    pub(super) mirror: Option<Pod>,
    /// Set for few pods: those that no source has, and those that a finished pod left running.
    pub(super) runtime_pod: Option<Box<RuntimePod>>,
    /// Whether the runtime was seen to run something of this UID.
    pub(super) in_runtime: bool,
}

/// An update that no task has consumed yet. A newer one replaces it.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    pub(super) kind: UpdateKind,
    /// `None`: check the pod again as it is known.
    pub(super) pod: Option<Pod>,
    pub(super) mirror: Option<Pod>,
    /// When the first of the coalesced updates came; `None` for updates of the workers themselves.
    pub(super) since: Option<Instant>,
}

/// What is known of a pod's termination, from its first cause on.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) since: Instant,
    pub(super) reason: Option<KillReason>,
    /// Whether the node waits for the end, for that reason or a later one.
    pub(super) node_waits: bool,
    /// `None` when the pod completed by itself.
    pub(super) grace: Option<Duration>,
    /// When `grace` was set to its present length.
    pub(super) grace_since: Instant,
    /// When the grace period ends, from the first stop on, or as promised by an earlier agent.
    pub(super) kill_at: Option<Instant>,
    /// Also read by the stop in flight, when it is over.
    pub(super) status: Arc<Mutex<Option<StatusOverride>>>,
    /// What replaces it once that is recorded.
    pub(super) next_status: Option<StatusOverride>,
    /// Whether the stop call has begun.
    pub(super) acknowledged: bool,
    /// Whether an earlier agent has recorded that the pod has terminated.
    pub(super) is_recorded: bool,
    /// How many requests are being recorded: until they are, nothing of them is asked of the pod.
    pub(super) unrecorded: u32,
    /// Shortens the grace period of the stop call in flight.
    pub(super) in_flight: Option<GraceSender>,
    /// Notifies those that wait for the termination.
    pub(super) done: EndSender,
}

// === impl Ending ===

impl Ending {
    fn new(since: Instant, reason: Option<KillReason>) -> Self {
        Self {
            since,
            reason,
            node_waits: reason.is_some_and(KillReason::node_waits),
            grace: None,
            grace_since: since,
            kill_at: None,
            status: Arc::default(),
            next_status: None,
            acknowledged: false,
            is_recorded: false,
            unrecorded: 0,
            in_flight: None,
            done: EndSender::new(),
        }
    }
}

// === impl Record ===

impl Record {
    pub(super) fn new(
        generation: u64,
        full_name: Arc<str>,
        is_static: bool,
        first_seen: Instant,
    ) -> Self {
        Self {
            generation,
            first_seen,
            answers: None,
            full_name,
            is_static,
            lifecycle: Lifecycle::Waiting,
            queue: Queue::default(),
            observed: Observed::default(),
            ending: None,
            cancel: None,
            deleted: false,
            evicted: false,
            restart_requested: false,
            freed: None,
        }
    }

    /// The newest version of the pod that counts; `None` if only the runtime knows the pod.
    pub(super) fn pod(&self) -> Option<&Pod> {
        self.observed.pod.as_ref().or_else(|| self.queue.pending.as_ref()?.pod.as_ref())
    }

    /// Whether the pod is terminating or has terminated, on request or by itself.
    pub(super) fn is_ending(&self) -> bool {
        self.lifecycle >= Lifecycle::Terminating
    }

    /// Whether the pod starts again when its node is back. A deleted pod does not.
    pub(super) fn restarts_on_node(&self) -> bool {
        let status = self.ending.as_ref().map(|ending| ending.status.lock());
        !self.deleted
            && status.is_some_and(|said| said.as_ref().is_some_and(|s| s.restarts_on_node))
    }

    /// Whether containers of the finished pod were found and are being stopped.
    pub(super) fn has_leftover(&self) -> bool {
        self.lifecycle == Lifecycle::Finished && self.observed.runtime_pod.is_some()
    }

    /// Whether containers of the pod may run.
    pub(super) fn may_run(&self) -> bool {
        self.lifecycle < Lifecycle::Terminated || self.has_leftover()
    }

    /// Replaces the pending update, but keeps the oldest time: durations count from the first one.
    pub(super) fn set_pending(&mut self, mut update: Pending) {
        let older = self.queue.pending.as_ref().and_then(|p| p.since);
        update.since = older.into_iter().chain(update.since).min();
        self.queue.pending = Some(update);
    }

    /// Moves to `Terminating`. The sync call in flight is cancelled when the pod is woken.
    pub(super) fn begin_ending(&mut self, now: Instant, reason: Option<KillReason>) {
        self.lifecycle = Lifecycle::Terminating;
        self.queue.failures = 0;
        self.ending = Some(Box::new(Ending::new(now, reason)));
    }

    /// Whether its next step has to wait until a request to terminate it is recorded.
    pub(super) fn is_held(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.unrecorded > 0)
    }

    /// Passes the end of the grace period, and whether the node waits for it, on to the stop call in flight.
    pub(super) fn pass_on(&self) {
        let Some(ending) = self.ending.as_ref() else { return };
        let Some(in_flight) = &ending.in_flight else { return };
        if let Some(at) = ending.kill_at {
            in_flight.shorten_to(at);
        }
        if ending.node_waits {
            in_flight.node_waits();
        }
    }

    /// Sets the grace period. If its end was promised before, it counts from now, and otherwise from the first stop.
    /// Returns whether the grace period is shorter now, which the stop call in flight does not know yet.
    pub(super) fn shorten(&mut self, grace: Duration, is_promised: bool, now: Instant) -> bool {
        let Some(ending) = self.ending.as_mut() else { return false };
        let end = instant_after(now, grace);
        let is_shorter = match is_promised {
            true => ending.kill_at.is_none_or(|at| end < at),
            // A shorter length from now may end later than the one in progress.
            false => ending
                .grace
                .is_none_or(|given| grace < given && ending.kill_at.is_none_or(|at| end < at)),
        };
        if !is_shorter {
            return false;
        }
        (ending.grace, ending.grace_since) = (Some(grace), now);
        ending.kill_at = match ending.kill_at {
            Some(at) => Some(at.min(end)),
            None => is_promised.then_some(end),
        };
        true
    }

    /// Takes note of who else requested the termination. Returns whether it is the first for which the node waits.
    pub(super) fn join(&mut self, request: &KillRequest) -> bool {
        let Some(ending) = self.ending.as_mut() else { return false };
        if ending.node_waits || !request.is_waited_for() {
            return false;
        }
        ending.node_waits = true;
        true
    }

    /// Replaces the pod's status as `request` says: at once if that `began` the termination, and otherwise once it is
    /// recorded. Returns whether that changes it.
    pub(super) fn replace_status(&mut self, request: &KillRequest, began: bool) -> bool {
        let stayed = self.restarts_on_node();
        let Some(ending) = self.ending.as_mut() else { return false };
        let earlier = ending.next_status.clone().or_else(|| ending.status.lock().clone());
        let Some(status) = request.replacement(earlier.as_ref()) else { return false };
        // An API pod that was to stay, and fails after all, does not start again here.
        self.restart_requested &= self.is_static || !stayed || request.restarts_on_node();
        let changes = earlier.as_ref() != Some(&status);
        if changes && began {
            *ending.status.lock() = Some(status);
        } else if changes {
            ending.next_status = Some(status);
        }
        changes
    }

    /// What is left of the grace period; `None` unless the pod is terminating on request.
    pub(super) fn grace_left(&self, now: Instant) -> Option<Duration> {
        let ending = self.ending.as_ref().filter(|_| self.lifecycle == Lifecycle::Terminating)?;
        let promised = ending.kill_at.map(|at| at.saturating_duration_since(now));
        promised.or_else(|| Some(ending.grace?.saturating_sub(now - ending.grace_since)))
    }

    /// Returns a receiver that resolves when the pod holds nothing any more, or `None` if that is so already.
    pub(super) fn until_freed(&mut self) -> Option<CompletionReceiver<()>> {
        if self.lifecycle == Lifecycle::Finished && !self.has_leftover() {
            return None;
        }
        Some(self.freed.get_or_insert_with(CompletionSender::new).waiter())
    }

    /// Records that the containers have stopped, and notifies all waiters.
    pub(super) fn mark_stopped(&mut self, lifecycle: Lifecycle, stopped: Arc<PodStopped>) {
        self.lifecycle = lifecycle;
        self.queue.failures = 0;
        if lifecycle == Lifecycle::Finished {
            self.freed = None;
        }
        if let Some(ending) = self.ending.as_mut() {
            ending.in_flight = None;
            ending.acknowledged = true;
            ending.done.complete(stopped);
        }
    }

    /// Marks the record as busy and returns the task to spawn, unless a task is already running. Cancels the sync of a pod
    /// that has to terminate.
    pub(super) fn wake(&mut self, uid: &PodUid) -> Option<Wake> {
        if self.is_held() {
            return None;
        }
        let ends = self.lifecycle >= Lifecycle::Terminating;
        if let Some(cancel) = self.cancel.take_if(|_| ends) {
            cancel.notify_one();
        }
        if self.queue.busy || self.queue.pending.is_none() {
            return None;
        }
        self.queue.busy = true;
        Some((uid.clone(), self.generation))
    }

    /// Requests another step with what is known, unless an update is pending.
    pub(super) fn replay(&mut self) {
        self.queue.pending.get_or_insert_with(Pending::default);
    }

    /// Stops containers that the runtime runs of a finished pod, without leaving `Finished`.
    pub(super) fn stop_leftovers(&mut self, pod: RuntimePod, now: Instant) {
        self.observed.runtime_pod = Some(Box::new(pod));
        let ending = self.ending.get_or_insert_with(|| Box::new(Ending::new(now, None)));
        ending.kill_at = None;
        // A termination requested from now on waits for this stop.
        ending.done = EndSender::new();
        self.replay();
    }
}
