//! All records, and every transition between their states. Synchronous and without a clock: the
//! time is an argument, and the work to do is returned.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::completion::EndReceiver;
use super::grace;
use super::record::{Lifecycle, Pending, Record, Wake};
use super::static_names::StaticNames;
use super::timetable::Timetable;
use crate::kill::PodStopped;
use crate::status::is_terminal;
use crate::workers::syncer::{RuntimeView, Stop, SyncUpdate, UpdateKind};
use crate::{
    Grace, KillReason, KillRequest, Pod, PodUid, PodUidMap, RestartCondition, RunningPods,
    RuntimePod, StatusOverride,
};

mod known;
mod steps;

pub(super) use steps::StepOutcome;

/// Everything the pod workers know. Guarded by one lock that is never held across an await.
#[derive(Debug, Default)]
pub(super) struct WorkersState {
    pub(super) records: PodUidMap<Record>,
    pub(super) names: StaticNames,
    timetable: Timetable,
    /// Whether the desired set has been seen: from then on, an unknown UID may be torn down.
    pub(super) known_pods_synced: bool,
    /// How the pods ended that were forgotten since pods that are to start again are not; none while they are, too.
    pub(super) forgotten: Option<PodUidMap<Arc<PodStopped>>>,
    /// Running pods that have no record, as last reported.
    untracked: Untracked,
    /// UIDs whose record was removed since the current listing began: what the listing says of them is stale. None
    /// while there is no listing.
    pub(super) gone_since_listing: Option<HashSet<PodUid>>,
    counter: u64,
}

/// The running pods of a [`RunningPods`], by UID.
#[derive(Debug, Default)]
struct Untracked {
    pods: PodUidMap<Pod>,
    runtime_only: PodUidMap<RuntimePod>,
    known: bool,
}

/// How the caller of a kill learns of the termination.
#[derive(Debug)]
pub(super) enum KillWait {
    /// The pod has already terminated.
    Done(Arc<PodStopped>),
    /// The pod is terminating, with this effective grace period: whether this request began that, and whether it shortened
    /// it, is the first for which the node waits or that evicts the pod, or replaces the status.
    Ending {
        done: EndReceiver,
        grace: Duration,
        began: bool,
        tightened: bool,
        status: Option<StatusOverride>,
    },
}

/// One step for a task to carry out.
#[derive(Debug)]
pub(super) enum PodWork {
    /// `waited` is how long the pod waited for its first step, if this is the first.
    Sync {
        update: SyncUpdate,
        cancel: Arc<Notify>,
        waited: Option<Duration>,
    },
    Terminate {
        pod: Pod,
        stop: Stop,
        since: Option<Instant>,
    },
    TerminateRuntime {
        pod: Box<RuntimePod>,
        grace: Grace,
        /// When the termination began; `None` if an earlier agent has recorded its end, and for leftovers.
        since: Option<Instant>,
    },
    Finish {
        pod: Pod,
    },
}

// === updates from outside ===

impl WorkersState {
    /// Applies a create, update or sync of a pod; kills go through [`Self::kill`].
    pub(super) fn update(
        &mut self,
        kind: UpdateKind,
        pod: Pod,
        mirror: Option<Pod>,
        view: RuntimeView,
        now: Instant,
    ) -> Option<Wake> {
        let uid = pod.uid().clone();
        let (record, new) = self.record_for(&pod, view, now);
        // A create for a pod that was already over when first seen is not a request to restart it.
        if !new && record.is_ending() && kind == UpdateKind::Create {
            record.restart_requested = true;
            return None;
        }
        if record.lifecycle >= Lifecycle::Terminated && has_terminal_phase(&pod) {
            // Its source may need less of it now.
            record.observed.pod = Some(pod.clone());
        }
        if record.lifecycle == Lifecycle::Finished {
            return None;
        }
        // A pod that had terminated before it was first seen only has to be freed.
        let ends = pod.metadata.deletion_timestamp.is_some();
        if ends && (!new || already_stopped(record).is_none()) {
            let request = KillRequest::new(KillReason::Removed);
            return self.kill(pod, &request, view, Some((kind, mirror)), now).1;
        }
        if has_terminal_phase(&pod) && !record.is_ending() {
            record.begin_ending(now, None);
        }
        if record.lifecycle == Lifecycle::Terminating {
            let current = record.ending.as_ref().and_then(|e| e.grace);
            record.shorten(grace::effective(current, Some(&pod), None), false, now);
            record.pass_on();
        }
        record.set_pending(Pending { kind, pod: Some(pod), mirror, since: Some(now) });
        record.wake(&uid)
    }

    /// Whether a UID that is to start again is finished, and only its record has to be forgotten.
    pub(super) fn is_ready_to_restart(&self, uid: &PodUid) -> bool {
        let record = self.records.get(uid);
        record.is_some_and(|r| r.restart_requested && r.lifecycle == Lifecycle::Finished)
    }

    /// Schedules another check because something changed in the runtime. Unknown and finished pods are ignored.
    pub(super) fn resync(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.get_mut(uid)?;
        if record.lifecycle == Lifecycle::Finished && !record.has_leftover() {
            return None;
        }
        record.replay();
        record.wake(uid)
    }

    /// Applies a request to terminate `pod`, whether it is known or not, also one that came as an `update` with a mirror. If
    /// that begins the termination, or leaves it less time, nothing of it is asked of the pod before
    /// [`recorded`](Self::recorded), unless the request is recorded already.
    pub(super) fn kill(
        &mut self,
        pod: Pod,
        request: &KillRequest,
        view: RuntimeView,
        update: Option<(UpdateKind, Option<Pod>)>,
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        let uid = pod.uid().clone();
        let since = update.as_ref().map(|_| now);
        let (kind, mirror) = update.unwrap_or((UpdateKind::Kill, None));
        let is_idle = view != RuntimeView::Running && !self.records.contains_key(&uid);
        if is_idle && let Some(stopped) = self.forgotten.as_ref().and_then(|all| all.get(&uid)) {
            return (KillWait::Done(Arc::clone(stopped)), None);
        }
        let (record, new) = self.record_for(&pod, view, now);
        let evicts = request.evict && !record.evicted;
        record.evicted |= request.evict;
        if let Some(wait) = already_stopped(record) {
            if !new {
                return (wait, None);
            }
            record.set_pending(Pending { kind, pod: Some(pod), mirror, since });
            return (wait, record.wake(&uid));
        }
        let began = !record.is_ending();
        if began {
            record.restart_requested |= record.is_static
                && request.reason.restart_condition() == RestartCondition::Terminated;
            if cannot_have_started(record, view) {
                return self.finish_unstarted(&uid, request.reason, now);
            }
            record.begin_ending(now, Some(request.reason));
        }
        let current = record.ending.as_ref().and_then(|e| e.grace);
        // The request's object may carry a newer deletion grace period than the consumed one. A
        // pod's own grace period counts only if neither has one: a deletion may grant more.
        let known = record.pod().unwrap_or(&pod);
        let deletions = [known, &pod].into_iter().filter_map(grace::of_deletion);
        let asked = deletions.chain(request.grace).min();
        let by_known = grace::effective(current, Some(known), asked);
        let by_asked = grace::effective(current, Some(&pod), asked);
        let grace = request.left_of(by_known.min(by_asked), now);
        let shortened = record.shorten(grace, request.until.is_some(), now);
        let tightened =
            record.join(request) | evicts | shortened | record.replace_status(request, began);
        if let Some(ending) = record.ending.as_mut() {
            ending.reason.get_or_insert(request.reason);
            ending.is_recorded |= began && request.is_recorded;
            // What comes with an update, which has a time, is known to the pod's source, and recorded nowhere.
            let is_news = if began { !request.is_recorded } else { tightened };
            ending.unrecorded += u32::from(is_news && since.is_none());
        }
        if !record.is_held() {
            record.pass_on();
        }
        record.set_pending(Pending { kind, pod: Some(pod), mirror, since });
        let wait = ending_wait(record, grace, began, tightened);
        (wait, record.wake(&uid))
    }

    /// Takes note that a request to terminate a pod is recorded: now the pod may be asked.
    pub(super) fn recorded(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.get_mut(uid)?;
        let ending = record.ending.as_mut()?;
        ending.unrecorded = ending.unrecorded.saturating_sub(1);
        if let Some(status) = ending.next_status.take() {
            *ending.status.lock() = Some(status);
        }
        if !record.is_held() {
            record.pass_on();
        }
        record.wake(uid)
    }

    /// Like [`kill`](Self::kill), of a pod that only the runtime knows.
    pub(super) fn kill_runtime_pod(
        &mut self,
        pod: RuntimePod,
        request: &KillRequest,
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        let uid = pod.uid.clone();
        let by_source = request.reason == KillReason::Removed;
        if let Some(record) = self.records.get_mut(&uid) {
            record.observed.in_runtime = true;
            match record.lifecycle {
                // Its resources are being freed.
                Lifecycle::Terminated => return (how_stopped(record), None),
                Lifecycle::Finished => {
                    if !record.has_leftover() {
                        record.stop_leftovers(pod, now);
                    }
                    let wait = ending_wait(record, Grace::SHORTEST, false, false);
                    return (wait, record.wake(&uid));
                }
                Lifecycle::Waiting | Lifecycle::Syncing | Lifecycle::Terminating => {
                    record.deleted |= by_source;
                }
            }
            if let Some(real) = record.pod().cloned() {
                return self.kill(real, request, RuntimeView::Running, None, now);
            }
        }
        let generation = self.next();
        let names = &mut self.names;
        let record = self.records.entry(uid.clone()).or_insert_with(|| {
            // It may be left over from before a manifest was edited while the agent was down: it
            // takes its name like a static pod, so that the new pod waits until it has terminated.
            let full_name: Arc<str> = format!("{}_{}", pod.name, pod.namespace).into();
            names.enqueue(&full_name, &uid, generation);
            names.try_start(&full_name, &uid);
            Record::new(generation, full_name, true, now)
        });
        record.deleted = true;
        record.observed.in_runtime = true;
        let began = !record.is_ending();
        if began {
            record.begin_ending(now, Some(request.reason));
        }
        let current = record.ending.as_ref().and_then(|e| e.grace);
        let own = pod.grace.unwrap_or(Grace::DEFAULT);
        let grace = grace::effective(current, None, Some(request.grace.unwrap_or(own)));
        let grace = request.left_of(grace, now);
        let shortened = record.shorten(grace, request.until.is_some(), now);
        let tightened = record.join(request) || shortened;
        if let Some(ending) = record.ending.as_mut() {
            let is_news = if began { !request.is_recorded } else { tightened };
            ending.unrecorded += u32::from(is_news);
        }
        record.observed.runtime_pod = Some(Box::new(pod));
        record.replay();
        (ending_wait(record, grace, began, tightened), record.wake(&uid))
    }
}

// === private ===

impl WorkersState {
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The record of a pod, and whether the record is new.
    ///
    /// A pod that is over when it is first seen, and of which nothing runs, has nothing to stop: it
    /// counts as terminated from the start and only has to be freed.
    fn record_for(&mut self, pod: &Pod, view: RuntimeView, now: Instant) -> (&mut Record, bool) {
        let generation = self.next();
        let names = &mut self.names;
        let record = self.records.entry(pod.uid().clone()).or_insert_with(|| {
            let is_static = pod.is_static();
            let mut record = Record::new(generation, pod.full_name().clone(), is_static, now);
            let is_over = view == RuntimeView::Stopped && has_terminal_phase(pod);
            if is_over || view == RuntimeView::Completed {
                record.begin_ending(now, None);
                record.mark_stopped(Lifecycle::Terminated, Arc::default());
            } else if is_static {
                names.enqueue(pod.full_name(), pod.uid(), generation);
            }
            record
        });
        record.deleted |= pod.metadata.deletion_timestamp.is_some();
        let new = record.generation == generation;
        (record, new)
    }

    fn current(&mut self, uid: &PodUid, generation: u64) -> Option<&mut Record> {
        self.records.get_mut(uid).filter(|r| r.generation == generation)
    }

    fn wake(&mut self, uid: &PodUid) -> Option<Wake> {
        self.records.get_mut(uid)?.wake(uid)
    }

    fn finish_unstarted(
        &mut self,
        uid: &PodUid,
        reason: KillReason,
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        let Some(record) = self.records.get_mut(uid) else { return (nothing_ran(), None) };
        record.begin_ending(now, Some(reason));
        record.mark_stopped(Lifecycle::Finished, Arc::default());
        record.queue.pending = None;
        let (name, generation) = (record.full_name.clone(), record.generation);
        (nothing_ran(), self.leave_name(&name, uid, generation))
    }

    fn leave_name(&mut self, name: &Arc<str>, uid: &PodUid, generation: u64) -> Option<Wake> {
        let next = self.names.leave(name, uid, generation)?;
        self.wake(&next)
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.remove(uid)?;
        let stopped = record.ending.as_ref().and_then(|ending| ending.done.value());
        if let Some((forgotten, stopped)) = self.forgotten.as_mut().zip(stopped) {
            forgotten.insert(uid.clone(), stopped);
        }
        self.untracked.pods.remove(uid);
        self.untracked.runtime_only.remove(uid);
        if let Some(gone) = &mut self.gone_since_listing {
            gone.insert(uid.clone());
        }
        self.timetable.remove(record.queue.due);
        if !record.is_static {
            return None;
        }
        self.leave_name(&record.full_name, uid, record.generation)
    }
}

// === what runs ===

impl WorkersState {
    /// Notes that a listing of the runtime begins; its result may be older than terminations from now on.
    pub(super) fn listing_begins(&mut self) {
        self.gone_since_listing = Some(HashSet::new());
    }

    /// Replaces the running pods that have no record. Returns whether any of them is new, and whether one has stopped or is
    /// gone.
    pub(super) fn note_running(&mut self, running: RunningPods) -> (bool, bool) {
        let RunningPods { pods, runtime_only, known } = running;
        let gone = self.gone_since_listing.as_ref();
        let is_gone = |pod: &RuntimePod| gone.is_some_and(|gone| gone.contains(&pod.uid));
        let left = runtime_only.into_iter().filter(|pod| !is_gone(pod));
        let untracked = Untracked {
            pods: pods.into_iter().map(|pod| (pod.uid().clone(), pod)).collect(),
            runtime_only: left.map(|pod| (pod.uid.clone(), pod)).collect(),
            known,
        };
        if known {
            self.gone_since_listing = None;
        }
        let before = std::mem::replace(&mut self.untracked, untracked);
        let now = &self.untracked;
        let is_new = |uid| !before.runtime_only.contains_key(uid);
        let is_gone = |uid| !now.runtime_only.contains_key(uid) && !self.records.contains_key(uid);
        let has_stopped = |uid| self.runs(uid) == Some(false);
        let mut left = before.runtime_only.iter();
        let has_left = left.any(|(uid, pod)| is_gone(uid) || (pod.running && has_stopped(uid)))
            || before.pods.keys().any(has_stopped);
        let is_more = now.known != before.known
            || now.runtime_only.keys().any(is_new)
            || now.pods.keys().any(|uid| !before.pods.contains_key(uid));
        (is_more, has_left)
    }

    /// Whether containers of the pod run; `None` while that is unknown.
    pub(super) fn runs(&self, uid: &PodUid) -> Option<bool> {
        let Untracked { pods, runtime_only, known } = &self.untracked;
        if let Some(record) = self.records.get(uid) {
            return Some(record.may_run());
        }
        let is_left = || runtime_only.get(uid).is_some_and(|pod| pod.running);
        if pods.contains_key(uid) || is_left() { Some(true) } else { known.then_some(false) }
    }

    /// Whether the pod is new although all that run are known.
    pub(super) fn is_newly_known(&self, uid: &PodUid) -> bool {
        !self.records.contains_key(uid) && self.runs(uid) == Some(false)
    }

    /// The pods that run, are in no source and have no record.
    pub(super) fn unrecorded(&self) -> impl Iterator<Item = &RuntimePod> {
        let found = self.untracked.runtime_only.values();
        found.filter(|pod| !self.records.contains_key(&pod.uid))
    }

    /// The running pods, and whether the list is complete.
    pub(super) fn running(&self) -> RunningPods {
        let (mut pods, mut runtime_only) = (Vec::new(), Vec::new());
        // An earlier agent recorded that it had terminated; this one has yet to make sure of it.
        let is_recorded = |r: &Record| r.ending.as_ref().is_some_and(|ending| ending.is_recorded);
        let had_terminated = |r: &Record| is_recorded(r) && !r.observed.in_runtime;
        for record in self.records.values().filter(|r| r.may_run() && !had_terminated(r)) {
            match record.pod() {
                Some(pod) => pods.push(pod.clone()),
                None => runtime_only.extend(record.observed.runtime_pod.as_deref().cloned()),
            }
        }
        let unrecorded = |pod: &&Pod| !self.records.contains_key(pod.uid());
        pods.extend(self.untracked.pods.values().filter(unrecorded).cloned());
        runtime_only.extend(self.unrecorded().cloned());
        RunningPods { pods, runtime_only, known: self.untracked.known }
    }
}

/// Whether the pod's phase, as its source reports it, is terminal.
pub(crate) fn has_terminal_phase(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(is_terminal)
}

/// Whether the pod is a static one that these workers have not started and of which nothing is left
/// from before: it has nothing to stop, and must not be started only to be stopped.
fn cannot_have_started(record: &Record, view: RuntimeView) -> bool {
    record.lifecycle == Lifecycle::Waiting
        && record.is_static
        && !record.observed.in_runtime
        && view == RuntimeView::Stopped
}

fn already_stopped(record: &Record) -> Option<KillWait> {
    (!record.may_run()).then(|| how_stopped(record))
}

fn how_stopped(record: &Record) -> KillWait {
    let stopped = record.ending.as_ref().and_then(|e| e.done.value());
    KillWait::Done(stopped.unwrap_or_default())
}

fn ending_wait(record: &Record, grace: Duration, began: bool, tightened: bool) -> KillWait {
    let Some(ending) = &record.ending else { return nothing_ran() };
    let (done, status) = (ending.done.waiter(), ending.next_status.clone());
    KillWait::Ending { done, grace, began, tightened, status }
}

fn nothing_ran() -> KillWait {
    KillWait::Done(Arc::new(PodStopped::of_nothing()))
}
