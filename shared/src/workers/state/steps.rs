//! The steps of a pod's task: which one is next, and how its outcome is handled.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{PodWork, WorkersState};
use crate::kill::PodStopped;
use crate::kill::grace::instant_after;
use crate::workers::record::{Ending, Lifecycle, Record, Wake};
use crate::workers::syncer::{Stop, SyncUpdate, UpdateKind};
use crate::{Delays, Grace, Pod, PodUid, StatusOverride};

/// The shortest delay before a pod is checked again, whatever a step returns: a step that always
/// returns "at once" must not occupy a CPU.
const MIN_RECHECK_DELAY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(in crate::workers) enum StepOutcome {
    /// The pod runs; check it again after this long, or after the resync interval.
    Synced {
        again_in: Option<Duration>,
    },
    /// The pod completed by itself: stop what is left of it (sidecars), then free it. Carries the
    /// status to write, if it does not follow from the containers.
    Completed(Option<StatusOverride>),
    /// A request to terminate the pod interrupted a sync.
    Interrupted,
    /// All containers of the pod have stopped.
    Stopped(Arc<PodStopped>),
    /// A pod that only the runtime knew has stopped.
    RuntimePodStopped(Arc<PodStopped>),
    /// Everything that the pod held is freed.
    Finished,
    Failed(Delays),
    /// The stop failed, and the runtime would not stop the pod any more, for this reason: the pod runs on.
    Refused(Arc<str>),
}

#[derive(Debug, Default)]
pub(in crate::workers) struct Followup {
    /// The next step of the same pod; `None` ends its task.
    pub(in crate::workers) work: Option<PodWork>,
    /// Another pod that now has something to do.
    pub(in crate::workers) wake: Option<Wake>,
    /// Whether the timer has to be reset.
    pub(in crate::workers) earlier: bool,
    /// Delay before a failed step is retried.
    pub(in crate::workers) again_in: Duration,
    /// The operation that the step answered, and how long that took.
    pub(in crate::workers) answered: Option<(&'static str, Duration)>,
    /// Whether a pod that is to be forgotten or started again has finished, or runs on.
    pub(in crate::workers) settled: bool,
}

impl WorkersState {
    /// Records the outcome of a step and returns the next one, under one lock.
    pub(in crate::workers) fn advance(
        &mut self,
        uid: &PodUid,
        generation: u64,
        outcome: StepOutcome,
        resync: Duration,
        now: Instant,
    ) -> Followup {
        let mut followup = Followup::default();
        let answers = self.current(uid, generation).and_then(|r| r.answers.take());
        followup.answered = answers.map(|(kind, since)| {
            let finished = matches!(outcome, StepOutcome::Finished);
            let operation = if finished { "terminated" } else { kind.as_str() };
            (operation, now.saturating_duration_since(since))
        });
        match outcome {
            StepOutcome::Interrupted => {}
            StepOutcome::Synced { again_in } => {
                let resync = resync.saturating_add((resync / 2).mul_f64(self.fraction()));
                let again_in = again_in.map_or(resync, |d| d.min(resync).max(MIN_RECHECK_DELAY));
                followup.earlier = self.rest(uid, generation, 0, instant_after(now, again_in));
            }
            StepOutcome::Failed(retry) => {
                let failures = self.current(uid, generation).map_or(0, |r| r.queue.failures);
                followup.again_in = retry.delay(failures, self.fraction());
                let at = instant_after(now, followup.again_in);
                followup.earlier = self.rest(uid, generation, failures.saturating_add(1), at);
            }
            StepOutcome::Refused(why) => {
                (followup.settled, followup.wake) = self.refused(uid, generation, why);
            }
            StepOutcome::Completed(status) => self.completed(uid, generation, status, now),
            StepOutcome::Stopped(stopped) => self.stopped(uid, generation, stopped),
            StepOutcome::RuntimePodStopped(stopped) => {
                let (settled, wake) = self.runtime_pod_stopped(uid, generation, stopped);
                (followup.settled, followup.wake) = (settled, wake);
            }
            StepOutcome::Finished => {
                followup.wake = self.finished(uid, generation);
                let record = self.current(uid, generation);
                followup.settled = record.is_some_and(|r| r.deleted || r.restart_requested);
            }
        }
        followup.work = self.next_work(uid, generation, now);
        followup
    }

    /// Returns the next step for the task of `uid`. With `None` the task ends; another one is
    /// spawned when there is something to do again.
    pub(in crate::workers) fn next_work(
        &mut self,
        uid: &PodUid,
        generation: u64,
        now: Instant,
    ) -> Option<PodWork> {
        let record = self.records.get_mut(uid).filter(|r| r.generation == generation)?;
        let is_held = record.is_held();
        // If it is held, it is woken later.
        let Some(pending) = record.queue.pending.take_if(|_| !is_held) else {
            record.queue.busy = false;
            return None;
        };
        record.queue.again_at = None;
        let starts = record.lifecycle == Lifecycle::Waiting;
        if starts {
            if record.is_static && !self.names.try_start(&record.full_name, uid) {
                record.queue.pending = Some(pending);
                record.queue.busy = false;
                return None;
            }
            record.lifecycle = Lifecycle::Syncing;
        }
        record.answers = pending.since.map(|since| (pending.kind, since));
        if pending.mirror.is_some() {
            record.observed.mirror.clone_from(&pending.mirror);
        }
        let mirror =
            if pending.pod.is_some() { pending.mirror } else { record.observed.mirror.clone() };
        // The containers are stopped by the spec that started them.
        let may_change = record.lifecycle == Lifecycle::Syncing || record.observed.pod.is_none();
        if let (true, Some(pod)) = (may_change, pending.pod) {
            record.observed.pod = Some(pod);
        }
        let work = match record.lifecycle {
            Lifecycle::Waiting | Lifecycle::Syncing => {
                let waited = starts.then(|| now.saturating_duration_since(record.first_seen));
                sync_work(record, pending.kind, mirror, waited)
            }
            Lifecycle::Terminating => terminate_work(record, now),
            Lifecycle::Terminated => record.observed.pod.clone().map(|pod| PodWork::Finish { pod }),
            Lifecycle::Finished => stop_leftovers_work(record, now),
        };
        record.queue.busy = work.is_some();
        work
    }

    /// Takes the pods that are due.
    pub(in crate::workers) fn due(&mut self, now: Instant) -> Vec<Wake> {
        let mut wakes = Vec::new();
        while let Some(uid) = self.timetable.pop(now) {
            let Some(record) = self.records.get_mut(&uid) else { continue };
            record.queue.due = None;
            match record.queue.again_at {
                Some(at) if at > now => {
                    self.timetable.no_later_than(at, &uid, &mut record.queue.due);
                }
                Some(_) => wakes.extend(self.resync(&uid)),
                None => {}
            }
        }
        wakes
    }

    /// When the next pod is due.
    pub(in crate::workers) fn next_due(&self) -> Option<Instant> {
        self.timetable.next()
    }

    /// Schedules the next check at `again_at`, unless an update is pending. Returns whether the timer has to be reset.
    fn rest(&mut self, uid: &PodUid, generation: u64, failures: u32, again_at: Instant) -> bool {
        let Some(record) = self.records.get_mut(uid).filter(|r| r.generation == generation) else {
            return false;
        };
        // A sync that failed while a termination was requested says nothing about the stop that follows.
        if record.ending.as_ref().is_none_or(|e| e.acknowledged) {
            record.queue.failures = failures;
        }
        if record.queue.pending.is_some() {
            return false;
        }
        record.queue.again_at = Some(again_at);
        self.timetable.no_later_than(again_at, uid, &mut record.queue.due)
    }

    fn completed(
        &mut self,
        uid: &PodUid,
        generation: u64,
        status: Option<StatusOverride>,
        now: Instant,
    ) {
        let Some(record) = self.current(uid, generation) else { return };
        if !record.is_ending() {
            record.begin_ending(now, None);
            if let Some(ending) = &record.ending {
                *ending.status.lock() = status;
            }
        }
        record.replay();
    }

    /// Gives up a termination that the runtime refuses by now. The UID is unknown again, and a source that wants the
    /// pod starts another run of it. Returns whether that is so, and the pod that waited for its name.
    fn refused(&mut self, uid: &PodUid, generation: u64, why: Arc<str>) -> (bool, Option<Wake>) {
        let Some(record) = self.current(uid, generation) else { return (false, None) };
        if record.queue.pending.is_some() {
            // A request that came meanwhile is tried first.
            return (false, None);
        }
        if let Some(ending) = &record.ending {
            ending.done.refuse(why);
        }
        (true, self.remove(uid))
    }

    fn stopped(&mut self, uid: &PodUid, generation: u64, stopped: Arc<PodStopped>) {
        let Some(record) = self.current(uid, generation) else { return };
        record.mark_stopped(Lifecycle::Terminated, stopped);
        record.observed.runtime_pod = None;
        record.replay();
    }

    /// Returns whether the UID is unknown or may be forgotten now, and the pod that waited for its name.
    ///
    /// If a real pod came under the same UID meanwhile, it is torn down as well before the UID can
    /// be used again. Unless it came to be terminated, it then starts again.
    fn runtime_pod_stopped(
        &mut self,
        uid: &PodUid,
        generation: u64,
        stopped: Arc<PodStopped>,
    ) -> (bool, Option<Wake>) {
        let Some(record) = self.current(uid, generation) else { return (false, None) };
        record.observed.runtime_pod = None;
        if record.lifecycle == Lifecycle::Finished {
            record.mark_stopped(Lifecycle::Finished, stopped);
            return (record.deleted || record.restart_requested, None);
        }
        let pending = record.queue.pending.as_ref();
        if let Some((kind, pod)) = pending.and_then(|p| Some((p.kind, p.pod.as_ref()?))) {
            let ends = pod.metadata.deletion_timestamp.is_some();
            record.restart_requested |= kind != UpdateKind::Kill && !ends;
            return (false, None);
        }
        record.mark_stopped(Lifecycle::Finished, stopped);
        (true, self.remove(uid))
    }

    /// Returns the pod that waited for this one's name.
    fn finished(&mut self, uid: &PodUid, generation: u64) -> Option<Wake> {
        let record = self.current(uid, generation)?;
        record.lifecycle = Lifecycle::Finished;
        record.queue.failures = 0;
        record.freed = None;
        record.queue.pending = None;
        record.observed.mirror = None;
        if !record.is_static {
            return None;
        }
        let name = record.full_name.clone();
        self.leave_name(&name, uid, generation)
    }

    /// A fraction in `0.0..1.0`, so that pods are not checked together that failed together.
    fn fraction(&mut self) -> f64 {
        // Splitmix64: any sequence that differs from pod to pod will do.
        let mut z = self.next().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let random = u32::try_from((z ^ (z >> 27)) >> 40).unwrap_or(0);
        f64::from(random) / f64::from(1 << 24)
    }
}

fn sync_work(
    record: &mut Record,
    kind: UpdateKind,
    mirror: Option<Pod>,
    waited: Option<Duration>,
) -> Option<PodWork> {
    let pod = record.observed.pod.clone()?;
    let cancel = record.cancel.get_or_insert_default().clone();
    Some(PodWork::Sync { update: SyncUpdate { kind, pod, mirror }, cancel, waited })
}

fn stop_leftovers_work(record: &mut Record, now: Instant) -> Option<PodWork> {
    let pod = record.observed.runtime_pod.clone()?;
    let grace = begin_grace(record.ending.as_mut()?, Grace::SHORTEST, now);
    Some(PodWork::TerminateRuntime { pod, grace, since: None })
}

fn terminate_work(record: &mut Record, now: Instant) -> Option<PodWork> {
    let restarts = record.restarts_on_node();
    let ending = record.ending.as_mut()?;
    ending.acknowledged = true;
    let length = ending
        .grace
        .or_else(|| record.observed.pod.as_ref().and_then(Pod::termination_grace_period))
        .unwrap_or(Grace::SHORTEST)
        .max(Grace::SHORTEST);
    let until = begin_grace(ending, length, now).with_reason(ending.reason);
    let since = (!ending.is_recorded).then_some(ending.since);
    if let Some(pod) = record.observed.pod.clone() {
        if !restarts {
            let stays = |status: &mut StatusOverride| status.restarts_on_node;
            ending.status.lock().take_if(stays);
        }
        let stop = Stop { grace: ending.grace, until, status: ending.status.clone() };
        return Some(PodWork::Terminate { pod, stop, since });
    }
    let pod = record.observed.runtime_pod.clone()?;
    Some(PodWork::TerminateRuntime { pod, grace: until, since })
}

/// The grace period of a stop that begins now. One that is tried again, or goes on after a restart of the agent, gets the
/// rest, which may be nothing.
fn begin_grace(ending: &mut Ending, length: Duration, now: Instant) -> Grace {
    let end = *ending.kill_at.get_or_insert_with(|| instant_after(now, length));
    let (sender, grace) = Grace::until(end.max(now));
    if ending.node_waits {
        sender.node_waits();
    }
    ending.in_flight = Some(sender);
    grace
}
