//! The steps of a pod's task: what is next, and what follows from how it went.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{State, Wake, Work};
use crate::grace::after;
use crate::kill::PodStopped;
use crate::syncer::{Retry, Stop, SyncUpdate, UpdateKind};
use crate::workers::WorkerTimes;
use crate::workers::grace;
use crate::workers::record::{Lifecycle, Record};
use crate::{Grace, Pod, PodUid};

/// How a step went.
#[derive(Debug)]
pub(in crate::workers) enum Outcome {
    /// The pod runs; look again after this long, or after the resync interval.
    Synced { again_in: Option<Duration> },
    /// The pod came to its end by itself: stop what is left of it (sidecars), then free it.
    Completed,
    /// The pod was asked to end in the middle of a sync.
    Interrupted,
    /// No container of the pod runs any more.
    Stopped(Arc<PodStopped>),
    /// Nothing runs any more of a pod that only the runtime knew.
    RuntimePodStopped(Arc<PodStopped>),
    /// All that the pod held is freed.
    Finished,
    /// The step failed.
    Failed(Retry),
}

/// What follows from a step.
#[derive(Debug, Default)]
pub(in crate::workers) struct Followup {
    /// The next step of the same pod; without one its task ends.
    pub(in crate::workers) work: Option<Work>,
    /// Another pod that has something to do now.
    pub(in crate::workers) wake: Option<Wake>,
    /// The timer has to be set anew.
    pub(in crate::workers) earlier: bool,
    /// When a failed step is tried again.
    pub(in crate::workers) again_in: Duration,
}

impl State {
    /// Notes how a step went and gives the next one, under one lock.
    pub(in crate::workers) fn advance(
        &mut self,
        uid: &PodUid,
        generation: u64,
        outcome: Outcome,
        times: &WorkerTimes,
        now: Instant,
    ) -> Followup {
        let mut followup = Followup::default();
        match outcome {
            Outcome::Interrupted => {}
            Outcome::Synced { again_in } => {
                let resync = self.jittered(times.resync);
                let again_in = again_in.map_or(resync, |d| d.min(resync));
                followup.earlier = self.rest(uid, generation, 0, after(now, again_in));
            }
            Outcome::Failed(retry) => {
                let failures = self.records.get(uid).map_or(0, |r| r.failures);
                followup.again_in = self.retry_in(retry, failures, times);
                let at = after(now, followup.again_in);
                followup.earlier = self.rest(uid, generation, failures.saturating_add(1), at);
            }
            Outcome::Completed => self.completed(uid, generation, now),
            Outcome::Stopped(stopped) => self.stopped(uid, generation, stopped),
            Outcome::RuntimePodStopped(stopped) => {
                followup.wake = self.runtime_pod_stopped(uid, generation, stopped);
            }
            Outcome::Finished => followup.wake = self.finished(uid, generation),
        }
        followup.work = self.next_work(uid, generation, now);
        followup
    }

    /// The next step for the task of `uid`, or `None`: the task ends, and another one is spawned
    /// when there is something to do again.
    pub(in crate::workers) fn next_work(
        &mut self,
        uid: &PodUid,
        generation: u64,
        now: Instant,
    ) -> Option<Work> {
        let record = self.records.get_mut(uid).filter(|r| r.generation == generation)?;
        let Some(pending) = record.pending.take() else {
            record.busy = false;
            return None;
        };
        record.again_at = None;
        if record.lifecycle == Lifecycle::Waiting {
            if record.is_static && !self.names.try_start(&record.full_name, uid) {
                record.pending = Some(pending);
                record.busy = false;
                return None;
            }
            record.lifecycle = Lifecycle::Syncing;
        }
        // The spec that started the containers is the one that stops them.
        let may_change = record.lifecycle == Lifecycle::Syncing || record.active.is_none();
        if let (true, Some(pod)) = (may_change, pending.pod) {
            record.active = Some(pod);
        }
        if pending.mirror.is_some() {
            record.mirror = pending.mirror;
        }
        let work = match record.lifecycle {
            Lifecycle::Waiting | Lifecycle::Syncing => sync_work(record, pending.kind),
            Lifecycle::Terminating => terminate_work(record, now),
            Lifecycle::Terminated => record.active.clone().map(|pod| Work::Finish { pod }),
            Lifecycle::Finished => None,
        };
        record.busy = work.is_some();
        work
    }

    /// The pods whose time has come.
    pub(in crate::workers) fn due(&mut self, now: Instant) -> Vec<Wake> {
        let mut wakes = Vec::new();
        while let Some(uid) = self.timetable.pop(now) {
            let Some(record) = self.records.get_mut(&uid) else { continue };
            record.due = None;
            match record.again_at {
                Some(at) if at > now => {
                    self.timetable.no_later_than(at, &uid, &mut record.due);
                }
                Some(_) => wakes.extend(self.look_again(&uid)),
                None => {}
            }
        }
        wakes
    }

    /// When the next pod is due.
    pub(in crate::workers) fn next_due(&self) -> Option<Instant> {
        self.timetable.next()
    }

    /// Nothing to do for the pod until `again_at`, unless an update comes or has come.
    fn rest(&mut self, uid: &PodUid, generation: u64, failures: u32, again_at: Instant) -> bool {
        let Some(record) = self.records.get_mut(uid).filter(|r| r.generation == generation) else {
            return false;
        };
        record.cancel = None;
        record.failures = failures;
        if record.pending.is_some() {
            return false;
        }
        record.again_at = Some(again_at);
        self.timetable.no_later_than(again_at, uid, &mut record.due)
    }

    fn completed(&mut self, uid: &PodUid, generation: u64, now: Instant) {
        let Some(record) = self.current(uid, generation) else { return };
        record.cancel = None;
        if !record.is_ending() {
            record.begin_ending(now, None);
        }
        record.replay();
    }

    fn stopped(&mut self, uid: &PodUid, generation: u64, stopped: Arc<PodStopped>) {
        let Some(record) = self.current(uid, generation) else { return };
        record.mark_stopped(Lifecycle::Terminated, stopped);
        record.replay();
    }

    /// A real pod that came under the same UID meanwhile is torn down as well before the UID can be
    /// used again.
    fn runtime_pod_stopped(
        &mut self,
        uid: &PodUid,
        generation: u64,
        stopped: Arc<PodStopped>,
    ) -> Option<Wake> {
        let record = self.current(uid, generation)?;
        record.runtime_pod = None;
        if record.pending.as_ref().is_some_and(|p| p.pod.is_some()) {
            record.restart_requested = true;
            return None;
        }
        record.mark_stopped(Lifecycle::Finished, stopped);
        self.remove(uid)
    }

    /// Returns the pod that waited for this one's name.
    fn finished(&mut self, uid: &PodUid, generation: u64) -> Option<Wake> {
        let record = self.current(uid, generation)?;
        record.lifecycle = Lifecycle::Finished;
        record.failures = 0;
        record.pending = None;
        record.mirror = None;
        let (is_static, name) = (record.is_static, record.full_name.clone());
        if is_static { self.leave_name(&name, uid) } else { None }
    }

    fn retry_in(&mut self, retry: Retry, failures: u32, times: &WorkerTimes) -> Duration {
        match retry {
            Retry::Transient => self.jittered(times.retry_transient),
            Retry::After(wait) => wait.min(times.resync),
            Retry::Backoff => {
                let doubled = times.retry_first.saturating_mul(1 << failures.min(16));
                self.jittered(doubled.min(times.retry_most))
            }
        }
    }

    /// `base` and up to half as much again, so that pods that failed together do not return together.
    fn jittered(&mut self, base: Duration) -> Duration {
        // Splitmix64: any sequence that differs from pod to pod will do.
        let mut z = self.next().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let random = u32::try_from((z ^ (z >> 27)) >> 40).unwrap_or(0);
        let half = base / 2;
        base.saturating_add(half.mul_f64(f64::from(random) / f64::from(1 << 24)))
    }
}

fn sync_work(record: &mut Record, kind: UpdateKind) -> Option<Work> {
    let pod = record.active.clone()?;
    let cancel = Arc::new(Notify::new());
    record.cancel = Some(cancel.clone());
    Some(Work::Sync { update: SyncUpdate { kind, pod, mirror: record.mirror.clone() }, cancel })
}

fn terminate_work(record: &mut Record, now: Instant) -> Option<Work> {
    let ending = record.ending.as_mut()?;
    ending.acknowledged = true;
    let length = ending
        .grace
        .or_else(|| record.active.as_ref().and_then(Pod::own_grace))
        .unwrap_or(grace::SHORTEST)
        .max(grace::SHORTEST);
    let (sender, until) = Grace::until(after(now, length));
    ending.in_flight = Some(sender);
    if let Some(pod) = record.active.clone() {
        let stop = Stop { grace: ending.grace, until, status: ending.status.clone() };
        return Some(Work::Terminate { pod, stop, since: ending.since });
    }
    let pod = record.runtime_pod.clone()?;
    Some(Work::TerminateRuntime { pod, grace: until })
}
