//! All records, and every transition between their states. Synchronous and without a clock: the
//! time is an argument, and what has to be done is returned.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::grace;
use super::record::{Lifecycle, Pending, Record};
use super::static_names::StaticNames;
use super::timetable::Timetable;
use super::waiters::EndWaiter;
use crate::kill::PodStopped;
use crate::syncer::{Stop, SyncUpdate, UpdateKind};
use crate::{Grace, KillReason, KillRequest, Pod, PodUid, PodUidMap, RuntimePod};

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
    counter: u64,
}

/// A task that has to be spawned: the UID and the record's generation.
pub(super) type Wake = (PodUid, u64);

/// How a caller of a kill learns of the end.
#[derive(Debug)]
pub(super) enum KillWait {
    /// It has ended already.
    Done(Arc<PodStopped>),
    /// It ends; the grace is the one that applies.
    Ending { done: EndWaiter, grace: Duration, began: bool },
}

/// One step for a task to carry out.
#[derive(Debug)]
pub(super) enum Work {
    Sync { update: SyncUpdate, cancel: Arc<Notify> },
    Terminate { pod: Pod, stop: Stop, since: Instant },
    TerminateRuntime { pod: RuntimePod, grace: Grace },
    Finish { pod: Pod },
}

// === updates from outside ===

impl State {
    /// Takes an update of a pod (PW: create, update, sync; kills go through [`Self::kill`]).
    pub(super) fn update(
        &mut self,
        kind: UpdateKind,
        pod: Pod,
        mirror: Option<Pod>,
        now: Instant,
    ) -> Option<Wake> {
        let uid = pod.uid().clone();
        let record = self.record_for(&pod);
        if record.is_ending() && kind == UpdateKind::Create {
            record.restart_requested = true;
            return None;
        }
        if record.lifecycle == Lifecycle::Finished {
            return None;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            record.deleted = true;
            let request = KillRequest::new(KillReason::Removed);
            return self.kill(pod, &request, now).1;
        }
        if has_terminal_phase(&pod) && !record.is_ending() {
            record.begin_ending(now, None);
        }
        record.pending = Some(Pending { kind, pod: Some(pod), mirror });
        self.wake(&uid)
    }

    /// Something about the pod changed in the runtime: look again. Unknown pods are ignored.
    pub(super) fn look_again(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.get_mut(uid)?;
        if record.lifecycle == Lifecycle::Finished {
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
        now: Instant,
    ) -> (KillWait, Option<Wake>) {
        let uid = pod.uid().clone();
        let record = self.record_for(&pod);
        record.evicted |= request.evict;
        if let Some(wait) = already_stopped(record) {
            return (wait, None);
        }
        let began = !record.is_ending();
        let known = record.pod().cloned().unwrap_or_else(|| pod.clone());
        if began {
            if self.cannot_have_started(&uid) {
                return self.finish_unstarted(&uid);
            }
            self.begin(&uid, now, request.reason);
        }
        let Some(record) = self.records.get_mut(&uid) else { return (nothing_ran(), None) };
        let current = record.ending.as_ref().and_then(|e| e.grace);
        // The request's object may carry a newer deletion grace than the one that was consumed.
        let grace = grace::effective(current, Some(&known), request.grace).min(grace::effective(
            current,
            Some(&pod),
            request.grace,
        ));
        record.shorten(grace, now);
        if let Some(ending) = record.ending.as_mut() {
            if request.status.is_some() {
                ending.status.clone_from(&request.status);
            }
            ending.reason.get_or_insert(request.reason);
        }
        record.pending = Some(Pending { kind: UpdateKind::Kill, pod: Some(pod), mirror: None });
        let wait = ending_wait(record, grace, began);
        (wait, self.wake(&uid))
    }

    /// Takes a request to end a pod that only the runtime knows.
    pub(super) fn kill_runtime_pod(&mut self, pod: RuntimePod, now: Instant) -> Option<Wake> {
        let uid = pod.uid.clone();
        if let Some(record) = self.records.get_mut(&uid) {
            record.observed_runtime = true;
            if let Some(real) = record.pod().cloned() {
                let mut request = KillRequest::new(KillReason::Removed);
                request.grace = Some(grace::SHORTEST);
                record.deleted = true;
                return self.kill(real, &request, now).1;
            }
        }
        let generation = self.next();
        let record = self.records.entry(uid.clone()).or_insert_with(|| {
            Record::new(generation, format!("{}_{}", pod.name, pod.namespace).into(), false)
        });
        record.deleted = true;
        record.observed_runtime = true;
        if !record.is_ending() {
            record.begin_ending(now, Some(KillReason::Removed));
        }
        record.shorten(grace::SHORTEST, now);
        record.runtime_pod = Some(pod);
        record.replay();
        self.wake(&uid)
    }

    /// Compares what is tracked with what is desired; ends what is tracked and not desired, and
    /// forgets what is finished. Returns what is tracked afterwards.
    pub(super) fn sync_known_pods(
        &mut self,
        desired: &HashSet<PodUid>,
        now: Instant,
    ) -> (HashMap<PodUid, Lifecycle>, Vec<Wake>) {
        self.known_pods_synced = true;
        let mut wakes = Vec::new();
        let tracked: Vec<PodUid> = self.records.keys().cloned().collect();
        for uid in tracked {
            self.reconcile_record(&uid, !desired.contains(&uid), now, &mut wakes);
        }
        let known = self.records.iter().map(|(uid, r)| (uid.clone(), r.lifecycle)).collect();
        (known, wakes)
    }

    fn reconcile_record(
        &mut self,
        uid: &PodUid,
        orphan: bool,
        now: Instant,
        wakes: &mut Vec<Wake>,
    ) {
        let Some(record) = self.records.get_mut(uid) else { return };
        if !orphan && !record.restart_requested {
            return;
        }
        let never_ran = record.lifecycle == Lifecycle::Waiting && !record.observed_runtime;
        if record.lifecycle == Lifecycle::Finished || (orphan && never_ran) {
            wakes.extend(self.remove(uid));
            return;
        }
        if !orphan {
            return;
        }
        record.deleted = true;
        if !record.is_ending() {
            record.begin_ending(now, Some(KillReason::Removed));
            let grace = grace::effective(None, record.pod().cloned().as_ref(), None);
            record.shorten(grace, now);
        }
        record.replay();
        wakes.extend(self.wake(uid));
    }
}

// === private ===

impl State {
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn record_for(&mut self, pod: &Pod) -> &mut Record {
        let generation = self.next();
        let names = &mut self.names;
        self.records.entry(pod.uid().clone()).or_insert_with(|| {
            if pod.is_static() {
                names.enqueue(pod.full_name(), pod.uid());
            }
            Record::new(generation, pod.full_name().clone(), pod.is_static())
        })
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

    /// A static pod that waits for its name has no container, and must not get one.
    fn cannot_have_started(&mut self, uid: &PodUid) -> bool {
        let Some(record) = self.records.get(uid) else { return true };
        record.lifecycle == Lifecycle::Waiting
            && record.is_static
            && !record.observed_runtime
            && !self.names.try_start(&record.full_name, uid)
    }

    fn finish_unstarted(&mut self, uid: &PodUid) -> (KillWait, Option<Wake>) {
        let Some(record) = self.records.get_mut(uid) else { return (nothing_ran(), None) };
        record.lifecycle = Lifecycle::Finished;
        record.pending = None;
        let name = record.full_name.clone();
        (nothing_ran(), self.leave_name(&name, uid))
    }

    fn begin(&mut self, uid: &PodUid, now: Instant, reason: KillReason) {
        if let Some(record) = self.records.get_mut(uid) {
            record.begin_ending(now, Some(reason));
        }
    }

    fn leave_name(&mut self, name: &Arc<str>, uid: &PodUid) -> Option<Wake> {
        let next = self.names.leave(name, uid)?;
        self.wake(&next)
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Wake> {
        let record = self.records.remove(uid)?;
        self.timetable.remove(record.due);
        if record.is_static { self.leave_name(&record.full_name, uid) } else { None }
    }
}

fn already_stopped(record: &Record) -> Option<KillWait> {
    if record.lifecycle < Lifecycle::Terminated {
        return None;
    }
    let stopped = record.ending.as_ref().and_then(|e| e.done.stopped());
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

fn has_terminal_phase(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
