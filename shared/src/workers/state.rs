//! All records, and every transition between their states. Synchronous and without a clock: the
//! time is an argument, and what has to be done is returned.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::completion::EndReceiver;
use super::grace;
use super::record::{Lifecycle, Pending, Record};
use super::static_names::StaticNames;
use super::timetable::Timetable;
use crate::kill::PodStopped;
use crate::syncer::{RuntimeView, Stop, SyncUpdate, UpdateKind};
use crate::{Grace, KillReason, KillRequest, Pod, PodUid, PodUidMap, RunningPods, RuntimePod};

mod known;
mod steps;

pub(super) use steps::Outcome;

/// Everything the pod workers know. Guarded by one lock that is never held across an await.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) records: PodUidMap<Record>,
    pub(super) names: StaticNames,
    timetable: Timetable,
    /// The desired set was seen once: from now on an unknown UID is one that may be torn down.
    pub(super) known_pods_synced: bool,
    /// What runs and has no record, as it was last heard.
    beside: Beside,
    /// Whose record went since the listing began that is told next: what it says of them is old.
    gone_since_listing: HashSet<PodUid>,
    counter: u64,
}

/// What runs, as [`RunningPods`] tells it, by UID.
#[derive(Debug, Default)]
struct Beside {
    pods: PodUidMap<Pod>,
    runtime_only: PodUidMap<RuntimePod>,
    known: bool,
}

/// A task that has to be spawned: the UID and the record's generation.
pub(super) type Wake = (PodUid, u64);

/// How a caller of a kill learns of the end.
#[derive(Debug)]
pub(super) enum KillWait {
    /// It has ended already.
    Done(Arc<PodStopped>),
    /// It ends; the grace is the one that applies.
    Ending { done: EndReceiver, grace: Duration, began: bool },
}

/// One step for a task to carry out.
#[derive(Debug)]
pub(super) enum Work {
    /// `waited` is how long the pod waited for its first step, if this is it.
    Sync {
        update: SyncUpdate,
        cancel: Arc<Notify>,
        waited: Option<Duration>,
    },
    Terminate {
        pod: Pod,
        stop: Stop,
        since: Instant,
    },
    TerminateRuntime {
        pod: RuntimePod,
        grace: Grace,
    },
    Finish {
        pod: Pod,
    },
}

// === updates from outside ===

impl State {
    /// Takes an update of a pod: create, update, sync; kills go through [`Self::kill`].
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
        // A create for a pod that is known to have ended before is no request to start it anew.
        if !new && record.is_ending() && kind == UpdateKind::Create {
            record.restart_requested = true;
            return None;
        }
        if record.lifecycle == Lifecycle::Finished {
            return None;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            record.deleted = true;
            // One that had ended before it was first seen only has to be freed.
            if !new || already_stopped(record).is_none() {
                let request = KillRequest::new(KillReason::Removed);
                return self.end(pod, mirror, &request, view, Some(now), now).1;
            }
        }
        if has_terminal_phase(&pod) && !record.is_ending() {
            record.begin_ending(now, None);
        }
        if record.lifecycle == Lifecycle::Terminating {
            let current = record.ending.as_ref().and_then(|e| e.grace);
            record.shorten(grace::effective(current, Some(&pod), None), now);
        }
        record.set_pending(Pending { kind, pod: Some(pod), mirror, since: Some(now) });
        self.wake(&uid)
    }

    /// Whether a UID that is wanted anew has nothing left to do: only forgetting it is missing.
    pub(super) fn waits_to_be_known_anew(&self, uid: &PodUid) -> bool {
        let record = self.records.get(uid);
        record.is_some_and(|r| r.restart_requested && r.lifecycle == Lifecycle::Finished)
    }

    /// Something about the pod changed in the runtime: look again. Unknown and finished pods are
    /// ignored.
    pub(super) fn look_again(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.get_mut(uid)?;
        if record.lifecycle == Lifecycle::Finished && !record.has_leftover() {
            return None;
        }
        record.replay();
        self.wake(uid)
    }

    /// Takes a request to end `pod`, known or not.
    pub(super) fn kill(
        &mut self,
        pod: Pod,
        request: &KillRequest,
        view: RuntimeView,
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        self.end(pod, None, request, view, None, now)
    }

    fn end(
        &mut self,
        pod: Pod,
        mirror: Option<Pod>,
        request: &KillRequest,
        view: RuntimeView,
        since: Option<Instant>,
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        let uid = pod.uid().clone();
        let (record, new) = self.record_for(&pod, view, now);
        record.evicted |= request.evict;
        if let Some(wait) = already_stopped(record) {
            if !new {
                return (wait, None);
            }
            record.set_pending(Pending { kind: UpdateKind::Kill, pod: Some(pod), mirror, since });
            return (wait, self.wake(&uid));
        }
        let began = !record.is_ending();
        if began {
            if cannot_have_started(record, view) {
                return self.finish_unstarted(&uid, request.reason, now);
            }
            self.begin(&uid, now, request.reason);
        }
        let Some(record) = self.records.get_mut(&uid) else { return (nothing_ran(), None) };
        let current = record.ending.as_ref().and_then(|e| e.grace);
        // The request's object may carry a newer deletion grace than the one that was consumed. A pod's own
        // grace counts only where neither has one: a deletion may give more.
        let known = record.pod().unwrap_or(&pod);
        let deletions = [known, &pod].into_iter().filter_map(grace::of_deletion);
        let asked = deletions.chain(request.grace).min();
        let by_known = grace::effective(current, Some(known), asked);
        let by_asked = grace::effective(current, Some(&pod), asked);
        let grace = by_known.min(by_asked);
        record.shorten(grace, now);
        if let Some(ending) = record.ending.as_mut() {
            // What ends the whole node does not take away why this pod was to end before.
            let is_of_node = matches!(request.reason, KillReason::Shutdown | KillReason::Drain);
            if request.status.is_some() && !(is_of_node && ending.status.is_some()) {
                ending.status.clone_from(&request.status);
            }
            ending.reason.get_or_insert(request.reason);
        }
        record.set_pending(Pending { kind: UpdateKind::Kill, pod: Some(pod), mirror, since });
        let wait = ending_wait(record, grace, began);
        (wait, self.wake(&uid))
    }

    /// Takes a request to end a pod that only the runtime knows.
    pub(super) fn kill_runtime_pod(
        &mut self,
        pod: RuntimePod,
        request: &KillRequest,
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        let uid = pod.uid.clone();
        let by_source = request.reason == KillReason::Removed;
        if let Some(record) = self.records.get_mut(&uid) {
            record.observed_runtime = true;
            match record.lifecycle {
                // Nothing ran when it was marked so; what it holds is being freed.
                Lifecycle::Terminated => return (nothing_ran(), None),
                Lifecycle::Finished => {
                    if !record.has_leftover() {
                        record.mop_up(pod, now);
                    }
                    let wait = ending_wait(record, Grace::SHORTEST, false);
                    return (wait, self.wake(&uid));
                }
                Lifecycle::Waiting | Lifecycle::Syncing | Lifecycle::Terminating => {
                    record.deleted |= by_source;
                }
            }
            if let Some(real) = record.pod().cloned() {
                return self.kill(real, request, RuntimeView::Running, now);
            }
        }
        let generation = self.next();
        let names = &mut self.names;
        let record = self.records.entry(uid.clone()).or_insert_with(|| {
            // It may be what an edited manifest has left from before the agent started: it takes
            // its name like a static pod, so that the new one waits for its end.
            let full_name: Arc<str> = format!("{}_{}", pod.name, pod.namespace).into();
            names.enqueue(&full_name, &uid, generation);
            names.try_start(&full_name, &uid);
            Record::new(generation, full_name, true, now)
        });
        record.deleted = true;
        record.observed_runtime = true;
        let began = !record.is_ending();
        if began {
            record.begin_ending(now, Some(request.reason));
        }
        let current = record.ending.as_ref().and_then(|e| e.grace);
        let grace = grace::effective(current, None, request.grace.or(pod.grace));
        record.shorten(grace, now);
        record.runtime_pod = Some(pod);
        record.replay();
        let wait = ending_wait(record, grace, began);
        (wait, self.wake(&uid))
    }
}

// === private ===

impl State {
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The record of a pod, and whether it is new.
    ///
    /// A pod that is over when it is first seen, and of which nothing runs, has nothing to stop: it
    /// counts as terminated from the start and is only freed.
    fn record_for(&mut self, pod: &Pod, view: RuntimeView, now: Instant) -> (&mut Record, bool) {
        let generation = self.next();
        let names = &mut self.names;
        let record = self.records.entry(pod.uid().clone()).or_insert_with(|| {
            let is_static = pod.is_static();
            let mut record = Record::new(generation, pod.full_name().clone(), is_static, now);
            if view == RuntimeView::Stopped && has_terminal_phase(pod) {
                record.begin_ending(now, None);
                record.mark_stopped(Lifecycle::Terminated, Arc::default());
            } else if is_static {
                names.enqueue(pod.full_name(), pod.uid(), generation);
            }
            record
        });
        let new = record.generation == generation;
        (record, new)
    }

    fn current(&mut self, uid: &PodUid, generation: u64) -> Option<&mut Record> {
        self.records.get_mut(uid).filter(|r| r.generation == generation)
    }

    /// Spawns a task unless one is alive.
    fn wake(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.get_mut(uid)?;
        if record.busy || record.pending.is_none() {
            return None;
        }
        record.busy = true;
        Some((uid.clone(), record.generation))
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
        record.pending = None;
        let (name, generation) = (record.full_name.clone(), record.generation);
        (nothing_ran(), self.leave_name(&name, uid, generation))
    }

    fn begin(&mut self, uid: &PodUid, now: Instant, reason: KillReason) {
        if let Some(record) = self.records.get_mut(uid) {
            record.begin_ending(now, Some(reason));
        }
    }

    fn leave_name(&mut self, name: &Arc<str>, uid: &PodUid, generation: u64) -> Option<Wake> {
        let next = self.names.leave(name, uid, generation)?;
        self.wake(&next)
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.remove(uid)?;
        self.beside.pods.remove(uid);
        self.beside.runtime_only.remove(uid);
        self.gone_since_listing.insert(uid.clone());
        self.timetable.remove(record.due);
        if !record.is_static {
            return None;
        }
        self.leave_name(&record.full_name, uid, record.generation)
    }
}

// === what runs ===

impl State {
    /// The runtime is being asked what runs, and its answer may be older than the next end.
    pub(super) fn listing_begins(&mut self) {
        self.gone_since_listing.clear();
    }

    /// Takes over what runs and has no record. True if there is more than was known.
    pub(super) fn note_running(&mut self, running: RunningPods) -> bool {
        let RunningPods { pods, runtime_only, known } = running;
        let gone = &self.gone_since_listing;
        let left = runtime_only.into_iter().filter(|pod| !gone.contains(&pod.uid));
        let beside = Beside {
            pods: pods.into_iter().map(|pod| (pod.uid().clone(), pod)).collect(),
            runtime_only: left.map(|pod| (pod.uid.clone(), pod)).collect(),
            known,
        };
        let before = std::mem::replace(&mut self.beside, beside);
        let beside = &self.beside;
        beside.known != before.known
            || beside.runtime_only.keys().any(|uid| !before.runtime_only.contains_key(uid))
            || beside.pods.keys().any(|uid| !before.pods.contains_key(uid))
    }

    /// What runs, and whether that is all.
    pub(super) fn running(&self) -> RunningPods {
        let (mut pods, mut runtime_only) = (Vec::new(), Vec::new());
        for record in self.records.values().filter(|r| r.may_run()) {
            match record.pod() {
                Some(pod) => pods.push(pod.clone()),
                None => runtime_only.extend(record.runtime_pod.clone()),
            }
        }
        let beside = &self.beside;
        let unrecorded = |uid: &PodUid| !self.records.contains_key(uid);
        pods.extend(beside.pods.values().filter(|pod| unrecorded(pod.uid())).cloned());
        let others = beside.runtime_only.values().filter(|pod| unrecorded(&pod.uid));
        runtime_only.extend(others.cloned());
        RunningPods { pods, runtime_only, known: beside.known }
    }
}

/// Whether the source says that the pod is over.
pub(crate) fn has_terminal_phase(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A static pod that these workers have not started, and of which nothing is left from before, has
/// nothing to stop and must not be started for it.
fn cannot_have_started(record: &Record, view: RuntimeView) -> bool {
    record.lifecycle == Lifecycle::Waiting
        && record.is_static
        && !record.observed_runtime
        && view == RuntimeView::Stopped
}

fn already_stopped(record: &Record) -> Option<KillWait> {
    if record.may_run() {
        return None;
    }
    let stopped = record.ending.as_ref().and_then(|e| e.done.value());
    Some(KillWait::Done(stopped.unwrap_or_default()))
}

fn ending_wait(record: &Record, grace: Duration, began: bool) -> KillWait {
    match &record.ending {
        Some(ending) => KillWait::Ending { done: ending.done.waiter(), grace, began },
        None => nothing_ran(),
    }
}

fn nothing_ran() -> KillWait {
    KillWait::Done(Arc::default())
}
