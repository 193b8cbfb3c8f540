//! The control loop: measures, decides, reclaims or evicts one pod, and measures again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use winddown_host::beat;
use winddown_shared::{
    AdmissionGate, Event, FsLayout, GateReason, GateReasons, NodeStats, Pod, PodKiller,
    PodStateProvider, PressureStats, Recorder, RuntimeError, VictimLock, WallClock, error_chain,
};

use crate::cadence::SamplingIntervals;
use crate::cause::Cause;
use crate::conditions::Conditions;
use crate::decide::{Shortage, Snapshot, decide_without};
use crate::history::{DecisionOutcome, EvictionRecord};
use crate::hook::{Hook, HookCommand};
use crate::limits::has_local_limits;
use crate::observations::Observations;
use crate::pending_reclaim::PendingReclaim;
use crate::policy::{Policy, PressureScope};
use crate::readmission::Readmission;
use crate::seams::{Alternative, Readmit, Reclaim, Signals};
use crate::signal::Signal;
use crate::state::EvictionState;

mod evict;
mod limits;
mod reclaiming;
mod terminating;
#[cfg(test)]
pub(crate) mod tests;
mod view;

use terminating::Terminating;
use view::Shown;
pub use view::{EvictionView, ExplainError, Explanation};

/// The timeout of a measurement, of the node or of its pods.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(2);

/// The loop's dependencies and settings.
#[non_exhaustive]
pub struct EvictionParts<K, S, R> {
    /// Stops pods.
    pub killer: Arc<K>,
    /// Measures the node and its pods.
    pub signals: Arc<S>,
    /// Reclaims what no pod needs.
    pub reclaim: Arc<R>,
    /// What may make an eviction unnecessary, if anything.
    pub alternative: Option<Arc<dyn Alternative>>,
    /// Receives every event.
    pub recorder: Arc<dyn Recorder>,
    /// The lock shared with other controllers that choose victims.
    pub victims: VictimLock,
    /// Runs the configured command before a pod is asked to stop.
    pub hook: Arc<dyn Hook>,
    /// Readmits evicted static pods.
    pub static_pods: Arc<dyn Readmit>,
    /// Supplies the timestamps of the history.
    pub wall: WallClock,
    /// The policy, which may change.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// While admission is closed for any reason (a node shutdown, a drain), no pod is asked to stop. Unless the node is
    /// only drained, nothing is measured either. The loop ends when the sender is dropped.
    pub paused_by: watch::Receiver<GateReasons>,
    /// Wakes the loop early, when the kernel reports that tasks wait for memory.
    pub wake: Arc<Notify>,
    /// The sampling intervals.
    pub cadence: SamplingIntervals,
}

impl<K, S, R> EvictionParts<K, S, R> {
    /// Only what every loop needs: without an alternative, events or a kernel that wakes it, with the usual intervals,
    /// and with hooks as commands of this machine. No evicted static pod is readmitted. While `gate` is closed the loop
    /// is paused, and it ends when the gate is dropped. Set other fields as needed.
    pub fn new(
        killer: Arc<K>,
        signals: Arc<S>,
        reclaim: Arc<R>,
        policy: Policy,
        gate: &AdmissionGate,
        wall: WallClock,
    ) -> Self {
        Self {
            killer,
            signals,
            reclaim,
            alternative: None,
            recorder: Arc::new(()),
            victims: VictimLock::new(),
            hook: Arc::new(HookCommand),
            static_pods: Arc::new(()),
            wall,
            policy: watch::Sender::new(Arc::new(policy)).subscribe(),
            paused_by: gate.changes(),
            wake: Arc::default(),
            cadence: SamplingIntervals::default(),
        }
    }
}

/// Evicts pods when the node runs short. A single task decides, so decisions never overlap. Slow work (stopping a pod,
/// reclaiming) runs concurrently while the loop keeps sampling. The README of this crate has a whole program.
///
/// ```
/// use std::sync::Arc;
///
/// use winddown_eviction::{EvictionController, EvictionParts, Policy, Reclaim, Signals};
/// use winddown_shared::{AdmissionGate, PodKiller, PodStateProvider, WallClock};
///
/// /// Starts to evict pods of `killer`. The view shows what is decided.
/// fn start<K: PodKiller + PodStateProvider>(
///     killer: Arc<K>,
///     signals: Arc<impl Signals>,
///     reclaim: Arc<impl Reclaim>,
///     gate: &AdmissionGate,
///     wall: WallClock,
/// ) -> winddown_eviction::EvictionView {
///     let mut parts = EvictionParts::new(killer, signals, reclaim, Policy::default(), gate, wall);
///     parts.cadence.calm = std::time::Duration::from_secs(2);
///     let (controller, view) = EvictionController::new(parts);
///     tokio::spawn(controller.run());
///     view
/// }
/// ```
pub struct EvictionController<K, S, R> {
    parts: EvictionParts<K, S, R>,
    /// The policy, adapted to the layout of the node's file systems.
    policy: Arc<Policy>,
    state: EvictionState,
    layout: Option<FsLayout>,
    /// The node's free swap at the last sample, in bytes.
    swap_free: u64,
    sampling: Sampling,
    victims: Victims,
    reclaims: Reclaims,
    under_way: FuturesUnordered<BoxFuture<'static, Completion>>,
    conditions: watch::Sender<Conditions>,
    shown: Arc<Shown>,
}

/// When the node is measured, and how that went.
struct Sampling {
    last: Option<Instant>,
    next: Instant,
    /// The wait before the next sample, as the last sample determined it.
    waited: Duration,
    /// Consecutive measurement failures.
    failures: u32,
    /// When pods are next compared with their own limits.
    next_limits: Instant,
    /// The kernel's OOM kill count at the last sample.
    oom_kills: Option<u64>,
}

/// The pods that were asked to stop, and the search for others.
struct Victims {
    terminating: Terminating,
    /// Disk space and tasks that stopped pods have not freed yet.
    pending_reclaim: PendingReclaim,
    readmission: Readmission,
    /// Whether all evictions of an earlier agent are known.
    has_taken_over: bool,
    /// Signals for which no pod qualified, and when to try again.
    held: [Option<Hold>; Signal::COUNT],
}

/// What is taken back without ending a pod.
struct Reclaims {
    /// The last reclaim for each signal.
    last: [Option<Instant>; Signal::COUNT],
    under_way: bool,
    /// After a reclaim that hung: the earliest time of the next attempt.
    hang_until: Option<Instant>,
}

/// A pause in the search for a victim.
#[derive(Clone, Copy)]
struct Hold {
    until: Instant,
    times: u32,
}

/// The result of a concurrent operation.
enum Completion {
    Ended(evict::EvictionEnd),
    Reclaimed(reclaiming::ReclaimDone),
    /// An alternative to an eviction: the record of the decision, and what was done.
    Alternative(u64, String),
    /// A pod that was to come back.
    Readmitted(Pod, Result<(), RuntimeError>),
}

impl<K: PodKiller + PodStateProvider, S: Signals, R: Reclaim> EvictionController<K, S, R> {
    /// Creates the loop and a view of its state.
    #[must_use]
    pub fn new(parts: EvictionParts<K, S, R>) -> (Self, EvictionView) {
        let conditions = watch::Sender::new(Conditions::NONE);
        let policy = parts.policy.borrow().clone();
        let shown = Arc::new(Shown::new(policy.clone()));
        let view = EvictionView::new(conditions.subscribe(), parts.policy.clone(), shown.clone());
        let now = Instant::now();
        let controller = Self {
            policy,
            state: EvictionState::default(),
            layout: None,
            swap_free: 0,
            sampling: Sampling {
                last: None,
                next: now,
                waited: parts.cadence.calm,
                failures: 0,
                next_limits: now,
                oom_kills: None,
            },
            victims: Victims {
                terminating: Terminating::default(),
                pending_reclaim: PendingReclaim::default(),
                readmission: Readmission::default(),
                has_taken_over: false,
                held: [None; Signal::COUNT],
            },
            reclaims: Reclaims { last: [None; Signal::COUNT], under_way: false, hang_until: None },
            under_way: FuturesUnordered::new(),
            conditions,
            shown,
            parts,
        };
        (controller, view)
    }

    /// Runs until the sender of [`EvictionParts::paused_by`] is dropped. Dropping the future does not cancel evictions:
    /// pods that were asked to stop still do.
    pub async fn run(mut self) {
        while self.wait_while_paused().await {
            self.take_over();
            if !self.is_idle() {
                self.sample().await;
            }
            if !self.wait().await {
                return;
            }
        }
    }

    /// Waits while the loop is paused. Returns false when the loop must end.
    async fn wait_while_paused(&mut self) -> bool {
        let reasons = *self.parts.paused_by.borrow_and_update();
        if !reasons.is_empty() {
            // Their owners stop the pods now.
            self.victims.terminating.endings.clear();
            self.victims.pending_reclaim = PendingReclaim::default();
        }
        if !is_paused_by(reasons) {
            if self.parts.policy.has_changed().unwrap_or(false) {
                self.follow_policy();
            }
            return true;
        }
        while is_paused_by(*self.parts.paused_by.borrow_and_update()) {
            tokio::select! {
                changed = self.parts.paused_by.changed() => if changed.is_err() { return false },
                // Hooks and reclaims end by themselves. Pods that were asked to stop are followed.
                Some(completion) = self.under_way.next() => self.note(completion),
            }
        }
        self.state = self.state.resumed(Instant::now());
        // The policy may have changed during the pause. This also makes a sample due.
        self.follow_policy();
        true
    }

    /// Waits until the next sample is due. Returns false when the loop must end.
    async fn wait(&mut self) -> bool {
        let mut due = self.sampling.next;
        let idle = self.is_idle();
        let mut woken = idle;
        let soonest = self.sampling.last.map_or(due, |last| last + self.parts.cadence.fastest);
        loop {
            tokio::select! {
                changed = self.parts.paused_by.changed() => return changed.is_ok(),
                Ok(()) = self.parts.policy.changed() => {
                    self.follow_policy();
                    return true;
                }
                Some(completion) = self.under_way.next() => {
                    self.note(completion);
                    due = due.min(soonest);
                }
                () = self.parts.wake.notified(), if !woken => {
                    woken = true;
                    due = due.min(soonest);
                }
                () = sleep_until(due), if !idle => return true,
            }
        }
    }

    /// Measures, decides, acts.
    async fn sample(&mut self) {
        let started = Instant::now();
        let apart = self.sampling.last.map_or(Duration::ZERO, |last| started - last);
        self.sampling.last = Some(started);
        let stats = match timeout(MEASURE_TIMEOUT, self.parts.signals.node()).await {
            Ok(Ok(stats)) => stats,
            Ok(Err(error)) => return self.not_measured(&error_chain(&error)),
            Err(_) => return self.not_measured("no answer within 2s"),
        };
        self.sampling.failures = 0;
        self.note_kills(stats.oom_kills);
        self.follow_layout(&stats);
        let now = Instant::now();
        let snapshot = Snapshot {
            now,
            observations: Observations::of(&stats, self.policy.memory_available),
            pressure: self.pressure(&stats),
        };
        self.shown.note_swap(stats.swap);
        self.swap_free = stats.swap.map_or(0, |swap| swap.free);
        let decision = decide_without(
            // A dry run says only what would be done first.
            |signal| !self.policy.shadow && self.is_held(signal, now),
            &snapshot,
            &self.policy,
            &self.state,
        );
        let before = std::mem::replace(&mut self.state, decision.state).last;
        self.victims.pending_reclaim.observe(&snapshot.observations);
        self.publish(decision.conditions);
        for pod in self.victims.readmission.due(decision.conditions, now) {
            self.readmit(pod);
        }
        // A drain ends the pods.
        if self.parts.paused_by.borrow().is_empty() {
            self.check_limits().await;
            if let Some(shortage) = decision.shortage {
                self.act(&shortage).await;
            }
        }
        let cadence = &self.parts.cadence;
        let next = cadence.next(
            &self.policy,
            &before,
            &snapshot.observations,
            apart,
            self.sampling.waited,
        );
        self.sampling.waited = if self.is_settled() { next } else { next.min(cadence.calm) };
        self.sampling.next = beat::due_costly(started, self.sampling.waited);
        self.show();
    }

    /// A pod that has a limit of its own would be evicted again for what it left, for ever.
    fn readmit(&mut self, pod: Pod) {
        let readmitted = self.parts.static_pods.readmit(&pod, has_local_limits(&pod));
        let mut readmitted = readmitted.map(|result| Completion::Readmitted(pod, result)).boxed();
        match (&mut readmitted).now_or_never() {
            Some(done) => self.note(done),
            None => self.under_way.push(readmitted),
        }
    }

    /// Publishes the state for [`EvictionView`].
    fn show(&self) {
        let Victims { readmission, terminating, .. } = &self.victims;
        self.shown.update(&self.policy, &self.state, readmission, terminating);
    }

    /// Whether there is nothing to measure for. A condition, and a static pod that awaits its end, outlast thresholds
    /// that are removed.
    fn is_idle(&self) -> bool {
        self.policy.is_idle() && self.is_settled()
    }

    /// Whether nothing is in progress: no eviction, no reclaim, no condition, and no static pod awaits readmission.
    fn is_settled(&self) -> bool {
        self.victims.has_taken_over
            && *self.conditions.borrow() == Conditions::NONE
            && self.under_way.is_empty()
            && self.victims.readmission.evicted().next().is_none()
    }

    async fn act(&mut self, shortage: &Shortage) {
        let now = Instant::now();
        if self.is_held(shortage.signal, now)
            || self.waits_for_a_victim(shortage, now)
            || self.waits_for_alternative(shortage)
        {
            return;
        }
        if shortage.signal.file_system().is_some() && self.reclaims.under_way {
            return;
        }
        if self.may_reclaim(shortage, now) {
            self.log_met(shortage);
            self.begin_reclaim(shortage);
        } else if !self.victims.pending_reclaim.is_awaited(shortage.signal, now) {
            self.evict(shortage).await;
        }
    }

    fn note(&mut self, completion: Completion) {
        match completion {
            Completion::Ended(ended) => self.note_end(ended),
            Completion::Reclaimed(done) => self.note_reclaimed(&done),
            Completion::Alternative(record, did) => {
                self.shown.conclude(record, DecisionOutcome::Alternative(did));
            }
            Completion::Readmitted(_, Ok(())) => {}
            Completion::Readmitted(pod, Err(error)) => {
                tracing::warn!(
                    pod = %pod.pod_ref(), error = error_chain(&error),
                    "what this evicted pod left on the disks cannot be removed yet: it waits for that"
                );
                self.victims.readmission.note(&pod, Conditions::NONE, Instant::now());
            }
        }
        self.show();
    }

    fn publish(&mut self, conditions: Conditions) {
        if self.policy.shadow {
            return;
        }
        let before = *self.conditions.borrow();
        // Every change makes the intake admit rejected pods again.
        if before == conditions {
            return;
        }
        self.conditions.send_replace(conditions);
        for condition in before.changed(conditions).iter() {
            let on = conditions.contains(condition);
            self.parts.recorder.record(&Event::NodePressure {
                condition: condition.as_str(),
                on,
                reason: condition.text(on).event,
            });
        }
    }

    fn log_met(&self, shortage: &Shortage) {
        if self.policy.shadow {
            return;
        }
        let now = Instant::now();
        self.parts.recorder.record(&Event::EvictionThresholdMet {
            signal: shortage.cause.as_str(),
            resource: shortage.resource().as_str(),
            stats_age: shortage.measured_at.map(|at| now.saturating_duration_since(at)),
            short_for: now.saturating_duration_since(shortage.since),
        });
    }

    /// Records the kernel's OOM kills since the last sample, which may explain why a pod is gone.
    fn note_kills(&mut self, now: Option<u64>) {
        let before = self.sampling.oom_kills;
        self.sampling.oom_kills = now.or(before);
        let Some(processes) = now.zip(before).map(|(now, before)| now.saturating_sub(before))
        else {
            return;
        };
        if processes == 0 {
            return;
        }
        tracing::warn!(processes, "the kernel killed processes of pods because memory ran out");
        let outcome = DecisionOutcome::KilledByKernel { processes };
        let cause = Cause::Signal(Signal::MemoryAvailable);
        self.shown.note(EvictionRecord::new(self.parts.wall.now(), cause, outcome));
    }

    fn pressure(&self, stats: &NodeStats) -> Option<PressureStats> {
        match self.policy.memory_pressure?.scope {
            PressureScope::Node => stats.memory_pressure,
            PressureScope::Pods => stats.pods_memory_pressure,
        }
    }

    fn follow_policy(&mut self) {
        let configured = self.parts.policy.borrow_and_update().clone();
        self.adopt(&configured);
        self.victims.held = [None; Signal::COUNT];
        self.sampling.next = Instant::now();
    }

    /// Adopts the thresholds derived from the layout. This happens before the first sample is judged.
    fn follow_layout(&mut self, stats: &NodeStats) {
        if stats.layout.is_none() || stats.layout == self.layout {
            return;
        }
        self.layout = stats.layout;
        let configured = self.parts.policy.borrow().clone();
        let is_first = self.state == EvictionState::default();
        self.adopt(&configured);
        if is_first {
            self.state = EvictionState::default();
        }
    }

    fn adopt(&mut self, configured: &Arc<Policy>) {
        let (policy, overwritten) = configured.for_layout(self.layout.unwrap_or_default());
        for overwritten in overwritten {
            let (signal, hard) = (overwritten.signal, overwritten.hard);
            tracing::warn!(%signal, hard, "this threshold has no effect: it follows from the others");
        }
        self.state = self.state.carried_over(&self.policy, &policy, Instant::now());
        if self.policy.shadow != policy.shadow {
            self.conditions.send_replace(Conditions::NONE);
        }
        self.policy = Arc::new(policy);
    }

    fn not_measured(&mut self, error: &str) {
        self.sampling.failures = self.sampling.failures.saturating_add(1);
        // Logged after 1, 2, 4, 8, … failures.
        if self.sampling.failures.is_power_of_two() {
            let times = self.sampling.failures;
            tracing::warn!(error, times, "the node could not be measured; no pod is evicted");
        }
        self.sampling.next = Instant::now() + self.parts.cadence.calm;
    }
}

/// Whether nothing is measured. A node that is drained stays up, and publishes its conditions.
fn is_paused_by(reasons: GateReasons) -> bool {
    reasons.iter().any(|reason| reason != GateReason::Drain)
}

/// Resolves when no pod may be asked to stop any more.
async fn paused(mut reasons: watch::Receiver<GateReasons>) {
    let _ = reasons.wait_for(|reasons| !reasons.is_empty()).await;
}

impl<K, S, R> std::fmt::Debug for EvictionController<K, S, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvictionController").field("state", &self.state).finish_non_exhaustive()
    }
}
