//! The eviction of one pod.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};
use winddown_shared::{
    Event, Grace, KillError, KillReason, KillRequest, Pod, PodKiller, PodStateProvider, PodStats,
    PressureCondition, StatusOverride, doubled, instant_after,
};

use super::{Completion, EvictionController, Hold, MEASURE_TIMEOUT, paused};
use crate::cause::Cause;
use crate::choose::{CandidateEnding, Choice, choose, comes_in_time, why_none};
use crate::conditions::Conditions;
use crate::decide::Shortage;
use crate::history::{DecisionOutcome, EvictionRecord, first_of};
use crate::hook::{EvictionHookRun, HookCall};
use crate::message::{EVICTED, node_was_low};
use crate::pending_reclaim::Amounts;
use crate::policy::{BEYOND_GRACE, HARD_GRACE, Policy};
use crate::seams::{
    AlternativeWork, EarlierEviction, EarlierEvictions, PlannedEviction, PodFigures, Reclaim,
    Signals, WantedFigures,
};
use crate::signal::Signal;
use crate::usage::{is_freed_by_file_removal, left_behind};

/// How long to wait for the files of a stopped pod to be removed.
const POD_FILES_TIMEOUT: Duration = Duration::from_secs(30);
/// The first pause when no pod qualifies; it doubles each time.
const NO_VICTIM_FIRST: Duration = Duration::from_secs(1);
/// The longest such pause.
const NO_VICTIM_MOST: Duration = Duration::from_secs(10);
/// Why a pod was not asked to stop after all.
const PAUSED: &str = "the node began to shut down or to be drained";

/// The victim and the texts of its eviction.
pub(super) struct EvictionRequest {
    pub(super) pod: Pod,
    pub(super) cause: Cause,
    pub(super) condition: PressureCondition,
    pub(super) grace: Option<Duration>,
    pub(super) message: Arc<str>,
    pub(super) annotations: Vec<(&'static str, String)>,
    /// Whether this is a disruption, caused by the node's need and not by the pod.
    pub(super) disruption: bool,
    /// The disk space and tasks that the pod leaves behind.
    pub(super) leaves: Amounts,
    /// The ID of the decision in the history.
    pub(super) record: u64,
}

/// A pod to be ended for an eviction.
struct Kill {
    pod: Pod,
    cause: Cause,
    condition: PressureCondition,
    record: u64,
    request: KillRequest,
    /// The grace that it gets, from when it is asked.
    allowed: Duration,
    /// Whether it was asked before, with more grace: the end of that request is the end of the eviction.
    is_hurried: bool,
}

/// The outcome of an eviction: the pod stopped, or did not stop in time. None if a pause began while the hook ran: then
/// the pod was not asked.
pub(super) struct EvictionEnd {
    pod: Pod,
    condition: PressureCondition,
    record: u64,
    outcome: Option<Result<Duration, KillError>>,
}

impl<K: PodKiller + PodStateProvider, S: Signals, R: Reclaim> EvictionController<K, S, R> {
    /// Chooses a pod and asks it to stop, under the victim lock.
    pub(super) async fn evict(&mut self, shortage: &Shortage) {
        let active = self.parts.killer.running().pods;
        let wanted = WantedFigures::of(shortage.signal);
        let measured = self.parts.signals.pods(&active, wanted);
        let figures = timeout(MEASURE_TIMEOUT, measured).await.unwrap_or_else(|_| {
            tracing::warn!("the pods could not be measured within 2s; no pod is evicted");
            PodFigures::UNKNOWN
        });
        let lock = self.parts.victims.clone();
        lock.choose(|| self.choose_and_ask(shortage, &active, &figures));
    }

    /// Whether something is in progress that may save the pod that would be evicted.
    pub(super) fn waits_for_alternative(&self, shortage: &Shortage) -> bool {
        self.parts.alternative.as_ref().is_some_and(|other| other.is_under_way(shortage.resource()))
    }

    /// Begins what can be done instead of evicting the victim. Returns false if nothing can.
    fn begins_alternative(
        &mut self,
        shortage: &Shortage,
        victim: &Pod,
        figures: Option<&PodStats>,
    ) -> bool {
        let alternative = self.parts.alternative.as_ref().filter(|_| !self.policy.shadow);
        let eviction = PlannedEviction {
            shortage,
            victim,
            figures,
            memory_available: self.policy.memory_available,
            swap_free: self.swap_free,
        };
        let work = alternative.and_then(|alternative| alternative.instead_of(&eviction));
        let Some(AlternativeWork { does, work }) = work else { return false };
        self.log_met(shortage);
        let outcome = DecisionOutcome::Alternative(does);
        let record =
            self.shown.note(EvictionRecord::about(shortage, self.parts.wall.now(), outcome));
        self.under_way.push(work.map(move |did| Completion::Alternative(record, did)).boxed());
        true
    }

    /// Whether a pod that was evicted for this condition is still terminating.
    pub(super) fn waits_for_a_victim(&self, shortage: &Shortage, now: Instant) -> bool {
        let condition = shortage.signal.condition();
        self.victims.terminating.endings.values().any(|ending| {
            ending.evicted_for.contains(condition) && comes_in_time(shortage, ending, now)
        })
    }

    /// Takes over what an earlier agent evicted, once it is known what runs, and what a slow source lists later. What for
    /// is unknown: any shortage waits for those that are terminating, and static pods come back when there is none.
    pub(super) fn take_over(&mut self) {
        if self.victims.has_taken_over || !self.parts.killer.running().known {
            return;
        }
        let EarlierEvictions { known, may_be_more } = self.parts.static_pods.earlier_evictions();
        self.victims.has_taken_over = !may_be_more;
        let now = Instant::now();
        for EarlierEviction { pod, grace_left } in known {
            if let Some(left) = grace_left {
                let due = instant_after(now, left) + BEYOND_GRACE;
                let has_minimal_grace = left <= HARD_GRACE;
                let ending =
                    CandidateEnding { due, has_minimal_grace, evicted_for: Conditions::ALL };
                self.victims.terminating.endings.entry(pod.uid().clone()).or_insert(ending);
            }
            if pod.is_static() {
                self.victims.readmission.note(&pod, Conditions::ALL, now);
            }
        }
    }

    pub(super) fn is_held(&self, signal: Signal, now: Instant) -> bool {
        self.victims.held[signal.index()].is_some_and(|hold| now < hold.until)
    }

    pub(super) fn note_end(&mut self, ended: EvictionEnd) {
        let EvictionEnd { pod, condition, record, outcome } = ended;
        match outcome {
            Some(Ok(took)) => {
                self.victims.terminating.endings.remove(pod.uid());
                self.shown.conclude(record, DecisionOutcome::evicted(took));
                // Its remains can be reclaimed now.
                if is_freed_by_file_removal(condition, &pod) {
                    self.reclaims.last.fill(None);
                }
                let now = Instant::now();
                let is_next =
                    |e: &CandidateEnding| e.evicted_for.contains(condition) && e.due > now;
                if !self.victims.terminating.endings.values().any(is_next) {
                    self.victims.pending_reclaim.note_end(condition, now);
                }
                self.victims.held.fill(None);
            }
            // Until it is gone, it stays listed as terminating and overdue.
            Some(Err(error)) => {
                match (&error, self.victims.terminating.endings.get_mut(pod.uid())) {
                    (KillError::Deadline { .. }, Some(ending)) => ending.due = Instant::now(),
                    (KillError::Refused { .. }, _) => {
                        self.victims.terminating.endings.remove(pod.uid());
                        self.victims.readmission.forget(pod.uid());
                    }
                    _ => {}
                }
                self.victims.pending_reclaim.forget(condition);
                self.shown.conclude(record, DecisionOutcome::Failed { error: error.to_string() });
            }
            None => {
                // One that was hurried meanwhile terminates all the same.
                if self.parts.killer.prior_reason(pod.uid()) != Some(KillReason::Eviction) {
                    self.victims.terminating.endings.remove(pod.uid());
                    self.victims.readmission.forget(pod.uid());
                }
                self.victims.pending_reclaim.forget(condition);
                self.shown.conclude(record, DecisionOutcome::Failed { error: PAUSED.to_owned() });
            }
        }
    }

    /// Asks a pod to stop. The caller holds the victim lock: when this returns, other controllers see the pod as
    /// terminating.
    pub(super) fn ask(&mut self, eviction: EvictionRequest) {
        let now = Instant::now();
        let EvictionRequest {
            pod, cause, condition, grace, message, annotations, disruption, ..
        } = eviction;
        let record = eviction.record;
        let allowed =
            grace.or(pod.termination_grace_period()).unwrap_or(Grace::DEFAULT).max(HARD_GRACE);
        let due = instant_after(now, allowed) + BEYOND_GRACE;
        let (of_pod, signal) = (pod.pod_ref().clone(), cause.as_str());
        let call = HookCall { pod: of_pod.clone(), cause: signal, message: message.clone() };
        // A victim that is only hurried: it has been announced, its hook has begun, and what it leaves behind is expected
        // already.
        let hurried =
            self.victims.terminating.endings.get(pod.uid()).filter(|ending| ending.is_victim(now));
        let hurried_for = hurried.map(|ending| ending.evicted_for);
        let is_hurried = hurried_for.is_some();
        if !is_hurried {
            self.parts.recorder.record(&Event::EvictionStarted {
                pod: of_pod,
                signal,
                message: message.clone(),
                annotations,
                grace: allowed,
            });
        }
        let hook = self.policy.hook.clone().filter(|_| !is_hurried);
        let hook_time = hook.as_ref().map_or(Duration::ZERO, |rule| rule.timeout);
        let hook = hook.map(|rule| self.parts.hook.run(rule, call));
        let disruption = disruption.then(|| message.clone());
        let status = StatusOverride::failed(EVICTED, message, disruption);
        let request = KillRequest::new(KillReason::Eviction)
            .with_grace(grace)
            .with_evict(true)
            .with_status(Some(status))
            .with_deadline(Some(due));
        let has_files = is_freed_by_file_removal(condition, &pod);
        let files = if has_files { POD_FILES_TIMEOUT } else { Duration::ZERO };
        let has_minimal_grace = grace.is_some_and(|grace| grace <= HARD_GRACE);
        let gone = instant_after(due + files, hook_time);
        let evicted_for = hurried_for.unwrap_or_default().union(condition.into());
        let ending = CandidateEnding { due: gone, has_minimal_grace, evicted_for };
        self.victims.terminating.endings.insert(pod.uid().clone(), ending);
        // Noted now and not when the pod stops: a pod that takes too long, or that a shutdown stops, must be
        // readmitted too.
        if pod.is_static() {
            self.victims.readmission.note(&pod, condition, now);
        }
        if hurried_for.is_none_or(|conditions| !conditions.contains(condition)) {
            self.victims.pending_reclaim.ask(condition, &eviction.leaves, now, &self.state.last);
        }
        let kill = Kill { pod, cause, condition, record, request, allowed, is_hurried };
        let mut kill = self.end_after_hook(kill, hook);
        // The first poll sends the request, unless a hook runs before.
        match (&mut kill).now_or_never() {
            Some(ended) => self.under_way.push(std::future::ready(ended).boxed()),
            None => self.under_way.push(kill),
        }
    }

    /// Runs the hook, if there is one, and then ends the pod.
    fn end_after_hook(
        &self,
        kill: Kill,
        hook: Option<BoxFuture<'static, EvictionHookRun>>,
    ) -> BoxFuture<'static, Completion> {
        let asked = Instant::now();
        let (killer, recorder) = (self.parts.killer.clone(), self.parts.recorder.clone());
        let (shown, paused) = (Arc::clone(&self.shown), paused(self.parts.paused_by.clone()));
        async move {
            let Kill { pod, cause, condition, record, mut request, allowed, is_hurried } = kill;
            if let Some(hook) = hook {
                let run = tokio::select! {
                    run = hook => run,
                    // A hook delays no shutdown, and who pauses the loop ends the pod.
                    () = paused => {
                        return Completion::Ended(EvictionEnd { pod, condition, record, outcome: None });
                    }
                };
                log_hook(&pod, &run);
                shown.note_hook(record, run);
                request.deadline = Some(instant_after(Instant::now(), allowed) + BEYOND_GRACE);
            }
            let killed = killer.kill_pod(pod.clone(), request).await;
            let outcome = killed.map(|_| asked.elapsed());
            let (of_pod, signal) = (pod.pod_ref().clone(), cause.as_str());
            match &outcome {
                Ok(took) if !is_hurried => {
                    recorder.record(&Event::PodEvicted { pod: of_pod, signal, took: *took });
                }
                // The first request tells of the end.
                Ok(_) => {}
                Err(error) => {
                    let error = error.to_string();
                    recorder.record(&Event::EvictionFailed { pod: of_pod, signal, error });
                }
            }
            if outcome.is_ok() && is_freed_by_file_removal(condition, &pod) {
                killer.volumes_released(pod.uid(), Instant::now() + POD_FILES_TIMEOUT).await;
            }
            Completion::Ended(EvictionEnd { pod, condition, record, outcome: Some(outcome) })
        }
        .boxed()
    }

    fn choose_and_ask(&mut self, shortage: &Shortage, measured: &[Pod], figures: &PodFigures) {
        if !self.parts.paused_by.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        let policy = self.policy.clone();
        let killer = &*self.parts.killer;
        let candidates = self.victims.terminating.candidates(killer, measured, figures, now);
        let choice = choose(shortage, &candidates, &policy, now);
        let Some(victim) = choice.victim else {
            if !choice.waits {
                self.hold(shortage, &choice, &policy, now);
            }
            return;
        };
        let stats = candidates.iter().find(|c| c.pod.uid() == victim.uid()).and_then(|c| c.stats);
        if self.begins_alternative(shortage, victim, stats) {
            return;
        }
        let met = (shortage.threshold, shortage.available);
        let said = node_was_low(shortage.resource(), met, victim, stats);
        let message: Arc<str> = said.text.into();
        let outcome =
            if policy.shadow { DecisionOutcome::Shadow } else { DecisionOutcome::Evicting };
        let record = self.record(shortage, &choice, outcome);
        if policy.shadow {
            return self.shadow(shortage, victim, message, now);
        }
        self.victims.held[shortage.signal.index()] = None;
        if shortage.resource().row().stalls_tasks {
            self.state.note_memory_eviction(now);
        }
        self.log_met(shortage);
        self.ask(EvictionRequest {
            pod: victim.clone(),
            cause: shortage.cause,
            condition: shortage.signal.condition(),
            grace: policy.grace(shortage.hard, victim),
            message,
            annotations: said.annotations,
            disruption: true,
            leaves: stats
                .map_or_else(Amounts::default, |stats| left_behind(victim, stats, policy.layout())),
            record,
        });
    }

    fn hold(&mut self, shortage: &Shortage, choice: &Choice<'_>, policy: &Policy, now: Instant) {
        let hold = &mut self.victims.held[shortage.signal.index()];
        // Later than that, it is another shortage.
        let same = hold.filter(|hold| now < hold.until + NO_VICTIM_MOST);
        let times = same.map_or(0, |hold| hold.times);
        let wait = doubled(NO_VICTIM_FIRST, NO_VICTIM_MOST, times);
        *hold = Some(Hold { until: now + wait, times: times.saturating_add(1) });
        if times == 0 {
            self.log_met(shortage);
            let (signal, pods) = (shortage.cause, choice.considered.len());
            let why = why_none(&choice.considered, policy);
            tracing::warn!(%signal, pods, "the node runs short and there is no pod to evict{why}");
        }
        self.record(shortage, choice, DecisionOutcome::no_candidate(&choice.considered));
    }

    fn shadow(&mut self, shortage: &Shortage, victim: &Pod, message: Arc<str>, now: Instant) {
        self.parts.recorder.record(&Event::EvictionShadowed {
            pod: victim.pod_ref().clone(),
            signal: shortage.cause.as_str(),
            message,
        });
        self.victims.held[shortage.signal.index()] =
            Some(Hold { until: now + NO_VICTIM_MOST, times: 0 });
    }

    fn record(&self, shortage: &Shortage, choice: &Choice<'_>, outcome: DecisionOutcome) -> u64 {
        let mut record = EvictionRecord::about(shortage, self.parts.wall.now(), outcome);
        record.victim = choice.victim.map(|pod| pod.pod_ref().to_string());
        record.ranking = first_of(&choice.considered);
        self.shown.note(record)
    }
}

fn log_hook(pod: &Pod, run: &EvictionHookRun) {
    let EvictionHookRun { took_ms, error, output } = run;
    match error {
        None => {
            tracing::info!(pod = %pod.pod_ref(), took_ms, output, "the hook ran before this pod's eviction");
        }
        Some(error) => tracing::warn!(
            pod = %pod.pod_ref(), took_ms, output, error,
            "the hook before this pod's eviction failed; evicting the pod anyway"
        ),
    }
}
