//! A view of the loop's state.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use winddown_shared::{Mutex, PodKiller, PodRef, PodStateProvider, SwapStats};

use super::MEASURE_TIMEOUT;
use super::terminating::Terminating;
use crate::admit::PressureGate;
use crate::choose::choose;
use crate::conditions::Conditions;
use crate::decide::Shortage;
use crate::history::{DecisionOutcome, EvictionRecord, History, RankedPodStatus};
use crate::hook::EvictionHookRun;
use crate::policy::Policy;
use crate::readmission::Readmission;
use crate::seams::{PodFigures, Signals, WantedFigures};
use crate::signal::Signal;
use crate::state::EvictionState;
use crate::status::{PendingReadmission, PressureStatus, SwapStatus, ThresholdStatus};

/// The measurements and decisions of the loop. Clones share one view.
#[derive(Clone, Debug)]
pub struct EvictionView {
    conditions: watch::Receiver<Conditions>,
    policy: watch::Receiver<Arc<Policy>>,
    shown: Arc<Shown>,
}

/// Why it cannot be said which pods would be evicted for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// No pod is ever evicted for it.
    #[error(
        "signal: no pod is evicted for {0}: set a threshold for it in evictionHard or evictionSoft"
    )]
    NoThreshold(Signal),
    /// This node lacks it, or it could not be read.
    #[error(
        "signal: {0} was not measured: this node lacks it, or the agent's log says why it cannot be read"
    )]
    NotMeasured(Signal),
}

/// What would happen if a signal were met now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The signal that the pods are ranked by: the requested one, or the one nearest to its threshold; none if nothing
    /// is watched or nothing was measured.
    pub signal: Option<Signal>,
    /// Whether no pod would be evicted yet: those that are terminating free enough, or one of them was evicted for this.
    pub waits: bool,
    /// The pods in eviction order, with the verdict for each.
    pub pods: Vec<RankedPodStatus>,
}

/// The state that the loop publishes.
#[derive(Debug)]
pub(super) struct Shown(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    policy: Arc<Policy>,
    state: EvictionState,
    history: History,
    swap: Option<SwapStats>,
    awaiting_readmission: Vec<(PodRef, Instant)>,
    terminating: Terminating,
}

// === impl EvictionView ===

impl EvictionView {
    pub(super) fn new(
        conditions: watch::Receiver<Conditions>,
        policy: watch::Receiver<Arc<Policy>>,
        shown: Arc<Shown>,
    ) -> Self {
        Self { conditions, policy, shown }
    }

    /// A receiver of the reported conditions.
    #[must_use]
    pub fn conditions(&self) -> watch::Receiver<Conditions> {
        self.conditions.clone()
    }

    /// An admission check that rejects pods while the node is under pressure.
    #[must_use]
    pub fn gate(&self) -> PressureGate {
        PressureGate::new(self.conditions.clone(), self.policy.clone())
    }

    /// The latest decisions, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<EvictionRecord> {
        self.shown.0.lock().history.records()
    }

    /// The conditions that the node reports, the thresholds and swap as of the last sample, and the evicted static pods
    /// that await readmission.
    #[must_use]
    pub fn status(&self) -> PressureStatus {
        PressureStatus {
            conditions: self.conditions.borrow().iter().map(|one| one.to_string()).collect(),
            shadow: self.policy.borrow().shadow,
            thresholds: self.thresholds(),
            swap: self.swap(),
            pending_readmission: self.pending_readmission(),
        }
    }

    pub(super) fn pending_readmission(&self) -> Vec<PendingReadmission> {
        let now = Instant::now();
        let evicted = |(pod, at): &(PodRef, Instant)| PendingReadmission {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            readmission_in_seconds: at.saturating_duration_since(now).as_secs_f64(),
        };
        self.shown.0.lock().awaiting_readmission.iter().map(evicted).collect()
    }

    /// None if the node has no swap or it was not measured.
    fn swap(&self) -> Option<SwapStatus> {
        let latest = self.shown.0.lock();
        let SwapStats { total, free, zswap, zswapped } =
            latest.swap.filter(|swap| swap.total > 0)?;
        Some(SwapStatus { total, free, zswap, zswapped })
    }

    fn thresholds(&self) -> Vec<ThresholdStatus> {
        let latest = self.shown.0.lock();
        let now = Instant::now();
        let all = latest.policy.thresholds().iter().enumerate();
        all.map(|(place, threshold)| {
            let observed = latest.state.last.get(threshold.signal);
            let value = observed.map(|observed| threshold.quantity(observed.capacity, false));
            let unit = threshold.signal.resource().unit();
            let tracked = latest.state.tracked[place];
            let is_met = value.zip(observed).is_some_and(|(value, o)| value > o.quantity(unit));
            let since = tracked.first.filter(|_| is_met || tracked.active);
            ThresholdStatus {
                signal: threshold.signal.to_string(),
                hard: threshold.is_hard(),
                threshold: value.map(|value| value.to_string()),
                available: observed.map(|observed| observed.quantity(unit).to_string()),
                capacity: observed.map(|observed| observed.capacity),
                met_for_seconds: since.map(|at| now.saturating_duration_since(at).as_secs_f64()),
                grace_seconds: threshold.grace.as_secs_f64(),
            }
        })
        .collect()
    }

    /// Ranks the pods as if `signal` were met now, by default the signal nearest to its threshold. Measures the pods
    /// and changes nothing.
    ///
    /// # Errors
    /// `signal` has no threshold, or was not measured.
    pub async fn explain<K: PodKiller + PodStateProvider, S: Signals>(
        &self,
        killer: &K,
        signals: &S,
        signal: Option<Signal>,
    ) -> Result<Explanation, ExplainError> {
        let (policy, shortage) = self.supposed(signal);
        let has_threshold =
            |signal| policy.thresholds().iter().any(|threshold| threshold.signal == signal);
        let shortage = match (shortage, signal) {
            (Some(shortage), _) => shortage,
            (None, None) => {
                return Ok(Explanation { signal: None, waits: false, pods: Vec::new() });
            }
            (None, Some(signal)) if has_threshold(signal) => {
                return Err(ExplainError::NotMeasured(signal));
            }
            (None, Some(signal)) => return Err(ExplainError::NoThreshold(signal)),
        };
        let pods = killer.running().pods;
        let measured = signals.pods(&pods, WantedFigures::of(shortage.signal));
        let figures = timeout(MEASURE_TIMEOUT, measured).await.unwrap_or(PodFigures::UNKNOWN);
        let (mut terminating, now) = (self.shown.0.lock().terminating.clone(), Instant::now());
        let candidates = terminating.candidates(killer, &pods, &figures, now);
        let choice = choose(&shortage, &candidates, &policy, now);
        let pods = choice.considered.iter().map(RankedPodStatus::from).collect();
        Ok(Explanation { signal: Some(shortage.signal), waits: choice.waits, pods })
    }

    /// The policy, and the act that would follow if `signal` were met now.
    fn supposed(&self, signal: Option<Signal>) -> (Arc<Policy>, Option<Shortage>) {
        let (latest, now) = (self.shown.0.lock(), Instant::now());
        let acts = latest.policy.thresholds().iter().filter_map(|threshold| {
            let observed = latest.state.last.get(threshold.signal)?;
            Some(Shortage::on(threshold, &observed, &latest.policy, now))
        });
        // The nearest signal has the smallest part left above its threshold.
        let distance = |shortage: &Shortage| {
            let (left, wanted) = (shortage.available.value(), shortage.threshold.value().max(1));
            left as f64 / wanted as f64
        };
        let shortage = acts
            .filter(|shortage| signal.is_none_or(|signal| shortage.signal == signal))
            .min_by(|a, b| distance(a).total_cmp(&distance(b)));
        (latest.policy.clone(), shortage)
    }
}

// === impl Shown ===

impl Shown {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        let (state, history) = (EvictionState::default(), History::default());
        Self(Mutex::new(Latest {
            policy,
            state,
            history,
            swap: None,
            awaiting_readmission: Vec::new(),
            terminating: Terminating::default(),
        }))
    }

    /// Publishes the node's swap before the loop decides on the sample.
    pub(super) fn note_swap(&self, swap: Option<SwapStats>) {
        self.0.lock().swap = swap;
    }

    pub(super) fn update(
        &self,
        policy: &Arc<Policy>,
        state: &EvictionState,
        readmission: &Readmission,
        terminating: &Terminating,
    ) {
        let mut latest = self.0.lock();
        latest.policy.clone_from(policy);
        latest.state = *state;
        latest.terminating.clone_from(terminating);
        let awaiting = &mut latest.awaiting_readmission;
        awaiting.clear();
        awaiting.extend(readmission.evicted().map(|(pod, back)| (pod.pod_ref().clone(), back)));
    }

    pub(super) fn note(&self, record: EvictionRecord) -> u64 {
        self.0.lock().history.note(record)
    }

    pub(super) fn note_hook(&self, record: u64, run: EvictionHookRun) {
        self.0.lock().history.note_hook(record, run);
    }

    pub(super) fn conclude(&self, record: u64, outcome: DecisionOutcome) {
        self.0.lock().history.conclude(record, outcome);
    }
}
