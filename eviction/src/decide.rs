//! Decides whether to act, and for which threshold.

use tokio::time::Instant;
use winddown_shared::{PressureCondition, PressureStats, Quantity};

use crate::cause::Cause;
use crate::conditions::Conditions;
use crate::observation::Observation;
use crate::observations::Observations;
use crate::policy::{Policy, PressureRule};
use crate::reclaim::{Reclaimable, reclaimable};
use crate::signal::{Resource, Signal};
use crate::state::{EvictionState, Tracked};
use crate::threshold::Threshold;

#[cfg(test)]
mod tests;

/// One sample of the node.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// When the sample was taken.
    pub now: Instant,
    /// The amounts that are available.
    pub observations: Observations,
    /// The memory stall times of the tasks in [`PressureRule::scope`].
    pub pressure: Option<PressureStats>,
}

impl Snapshot {
    /// A sample without stall times.
    #[must_use]
    pub const fn new(now: Instant, observations: Observations) -> Self {
        Self { now, observations, pressure: None }
    }
}

/// The result of [`decide`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionDecision {
    /// The state for the next decision.
    pub state: EvictionState,
    /// The conditions that the node should report.
    pub conditions: Conditions,
    /// What to do; none if nothing is short, not for long enough, or not measured again since the last sample.
    pub shortage: Option<Shortage>,
    /// The thresholds that are met, as a bit set of their indices in the policy, whether their grace is over or not.
    met: u32,
}

const _: () = assert!(Policy::MOST_THRESHOLDS <= u32::BITS as usize);

/// A shortage to act on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// The cause of the eviction.
    pub cause: Cause,
    /// The signal by which pods are ranked.
    pub signal: Signal,
    /// Whether the pod gets only one second to stop.
    pub hard: bool,
    /// The least amount that should be available.
    pub threshold: Quantity,
    /// The amount that is available.
    pub available: Quantity,
    /// How much must be freed, minimum reclaim included, in the signal's unit, at least 1.
    pub deficit: i64,
    /// When the available amount was measured.
    pub measured_at: Option<Instant>,
    /// When the shortage began.
    pub since: Instant,
    /// What to reclaim first, so that perhaps no pod has to be evicted.
    pub reclaim: &'static [Reclaimable],
}

/// Decides what one sample means.
///
/// A threshold is met when less than its value is available; after an eviction it stays met until the minimum reclaim
/// is available as well. It is acted on when it has been met for its grace and has a new measurement since the last
/// sample. Among several, hard thresholds come first, then memory, then the one with the larger relative deficit.
#[must_use]
pub fn decide(snapshot: &Snapshot, policy: &Policy, state: &EvictionState) -> EvictionDecision {
    decide_without(|_| false, snapshot, policy, state)
}

/// Like [`decide`], but does not act on the signals that are held: a shortage for which no pod qualifies must not keep
/// the others waiting.
pub(crate) fn decide_without(
    is_held: impl Fn(Signal) -> bool,
    snapshot: &Snapshot,
    policy: &Policy,
    state: &EvictionState,
) -> EvictionDecision {
    let now = snapshot.now;
    let mut next = *state;
    let mut met = 0;
    let mut raised = Conditions::NONE;
    let mut chosen: Option<(Urgency, Shortage)> = None;
    for (place, threshold) in policy.thresholds().iter().enumerate() {
        let observed = snapshot.observations.get(threshold.signal);
        let was = state.tracked[place];
        let (is, is_met) = track(threshold, observed, was, now);
        next.tracked[place] = is;
        if is_met {
            met |= 1 << place;
        }
        // Without a measurement, the shortage that was there may still be.
        if is_met || observed.is_none() && is.active {
            raised.insert(threshold.signal.condition());
        }
        let may_act = is.active && !is_held(threshold.signal);
        let Some(observed) =
            observed.filter(|observed| may_act && is_news(observed, state, threshold))
        else {
            continue;
        };
        let shortage = Shortage::on(threshold, &observed, policy, is.first.unwrap_or(now));
        let urgency = shortage.urgency();
        if is_met && chosen.as_ref().is_none_or(|(most, _)| urgency > *most) {
            chosen = Some((urgency, shortage));
        }
    }
    let pressed = policy.memory_pressure.as_ref().and_then(|rule| pressed(rule, snapshot, state));
    if pressed.is_some() {
        raised.insert(PressureCondition::Memory);
    }
    let pressed = pressed.filter(|shortage| !is_held(shortage.signal));
    next.last = snapshot.observations;
    next.last_pressure = snapshot.pressure.or(state.last_pressure);
    raised.iter().for_each(|condition| next.seen[condition as usize] = Some(now));
    let shortage = match chosen {
        // Memory stalls count as a hard threshold on memory.
        Some((_, shortage)) if shortage.hard && shortage.resource().row().comes_first => {
            Some(shortage)
        }
        chosen => pressed.or(chosen.map(|(_, shortage)| shortage)),
    };
    EvictionDecision { state: next, conditions: reported(&next, policy, now), shortage, met }
}

impl EvictionDecision {
    /// The thresholds that are met, whether their grace is over or not.
    pub fn met<'a>(&self, policy: &'a Policy) -> impl Iterator<Item = &'a Threshold> {
        let met = self.met;
        let all = policy.thresholds().iter().enumerate();
        all.filter(move |(place, _)| met & (1 << place) != 0).map(|(_, threshold)| threshold)
    }
}

/// The new state of a threshold, and whether it is met.
fn track(
    threshold: &Threshold,
    observed: Option<Observation>,
    was: Tracked,
    now: Instant,
) -> (Tracked, bool) {
    let met = observed.map(|observed| is_met(threshold, &observed, was.active));
    if met != Some(true) {
        let first = was.unbroken(now).filter(|_| !threshold.is_hard());
        // A threshold that was not measured keeps its state.
        return (Tracked { first, active: was.active && met.is_none(), ..was }, false);
    }
    let first = was.first.unwrap_or(now);
    let settled = was.not_before.is_none_or(|settled| now >= settled);
    let active = settled && now.saturating_duration_since(first) >= threshold.grace;
    (Tracked { first: Some(first), last: Some(now), active, ..was }, true)
}

fn is_met(threshold: &Threshold, observed: &Observation, reclaiming: bool) -> bool {
    let available = observed.quantity(threshold.signal.resource().unit());
    threshold.quantity(observed.capacity, reclaiming) > available
}

/// Whether it was measured since the last sample. A figure without a timestamp counts as new.
fn is_news(observed: &Observation, state: &EvictionState, threshold: &Threshold) -> bool {
    let before = state.last.get(threshold.signal);
    match (observed.at, before) {
        (Some(at), Some(before)) => before.at.is_none_or(|before| at > before),
        _ => true,
    }
}

fn reported(state: &EvictionState, policy: &Policy, now: Instant) -> Conditions {
    let lately = |condition: &PressureCondition| {
        state.seen[*condition as usize]
            .is_some_and(|seen| now.saturating_duration_since(seen) < policy.transition_period)
    };
    PressureCondition::ALL.into_iter().filter(lately).collect()
}

/// The act that follows if tasks stall for memory, by the rule's limits.
fn pressed(rule: &PressureRule, snapshot: &Snapshot, state: &EvictionState) -> Option<Shortage> {
    let now_lost = snapshot.pressure?;
    let before = state.last_pressure?;
    let over = |limit: Option<f32>, now: f32, before: f32| {
        limit.is_none_or(|limit| now >= limit && now >= before)
    };
    let waits = (rule.some.is_some() || rule.full.is_some())
        && over(rule.some, now_lost.some_avg10, before.some_avg10)
        && over(rule.full, now_lost.full_avg10, before.full_avg10)
        // An average falls slowly: a task must have stalled since the last sample.
        && now_lost.some_total_us > before.some_total_us;
    let cooled = state
        .memory_evicted
        .is_none_or(|last| snapshot.now.saturating_duration_since(last) >= rule.cool_down);
    let observed = snapshot.observations.get(Signal::MemoryAvailable)?;
    let below = rule.below.of(observed.capacity);
    let available = observed.quantity(Resource::Memory.unit());
    (waits && cooled && below > available).then(|| Shortage {
        cause: Cause::MemoryStall,
        signal: Signal::MemoryAvailable,
        hard: true,
        threshold: below,
        available,
        deficit: lacking(below, available),
        measured_at: now_lost.at,
        since: snapshot.now,
        reclaim: &[],
    })
}

fn lacking(wanted: Quantity, available: Quantity) -> i64 {
    wanted.saturating_sub(available).value().max(1)
}

// === impl Shortage ===

/// The order of acts; the largest comes first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Urgency {
    hard: bool,
    comes_first: bool,
    /// The relative deficit.
    lacking: f64,
}

impl Shortage {
    pub(crate) fn on(
        threshold: &Threshold,
        observed: &Observation,
        policy: &Policy,
        since: Instant,
    ) -> Self {
        let signal = threshold.signal;
        let available = observed.quantity(signal.resource().unit());
        Self {
            cause: Cause::Signal(signal),
            signal,
            hard: threshold.is_hard(),
            threshold: threshold.quantity(observed.capacity, false),
            available,
            deficit: lacking(threshold.quantity(observed.capacity, true), available),
            measured_at: observed.at,
            since,
            reclaim: reclaimable(signal, policy.layout()),
        }
    }

    /// What is short.
    #[must_use]
    pub const fn resource(&self) -> Resource {
        self.signal.resource()
    }

    fn urgency(&self) -> Urgency {
        let wanted = self.threshold.value().max(1) as f64;
        Urgency {
            hard: self.hard,
            comes_first: self.resource().row().comes_first,
            lacking: self.deficit as f64 / wanted,
        }
    }
}
