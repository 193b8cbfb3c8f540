//! State that is carried from one sample to the next.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{PressureCondition, PressureStats};

use crate::observations::Observations;
use crate::policy::Policy;

/// The state of all thresholds and conditions. It is small and has no pointers; the first sample starts with the
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvictionState {
    /// The state of each threshold, by its index in the policy.
    pub(crate) tracked: [Tracked; Policy::MOST_THRESHOLDS],
    /// When each condition was last seen, in the order of [`PressureCondition::ALL`].
    pub(crate) seen: [Option<Instant>; PressureCondition::COUNT],
    pub(crate) last: Observations,
    pub(crate) last_pressure: Option<PressureStats>,
    /// When a pod was last evicted for a resource that stalls tasks.
    pub(crate) memory_evicted: Option<Instant>,
}

/// The state of one threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tracked {
    /// When it was first met, short gaps ignored; none if it is not met.
    pub(crate) first: Option<Instant>,
    /// When it was last met.
    pub(crate) last: Option<Instant>,
    /// Whether it has been met for its grace. Stays set until the minimum reclaim is available.
    pub(crate) active: bool,
    /// The earliest time to act on it. Set for thresholds that a configuration change added.
    pub(crate) not_before: Option<Instant>,
}

/// After a configuration change, new thresholds evict no pod for this long, so that a typo can be corrected.
pub(crate) const NEW_THRESHOLD_DELAY: Duration = Duration::from_secs(10);

/// Gaps shorter than this do not reset a soft threshold's grace: the kubelet would not have sampled
/// in between.
pub const FORGIVEN_GAP: Duration = Duration::from_secs(10);

impl EvictionState {
    /// The state after `new` replaces `old`: thresholds in both keep their state, new ones evict no pod for 10 s.
    #[must_use]
    pub fn carried_over(&self, old: &Policy, new: &Policy, now: Instant) -> Self {
        let mut tracked = [Tracked::default(); Policy::MOST_THRESHOLDS];
        for (place, threshold) in tracked.iter_mut().zip(new.thresholds()) {
            *place = match old.thresholds().iter().position(|known| known == threshold) {
                Some(known) => self.tracked[known],
                None => {
                    Tracked { not_before: Some(now + NEW_THRESHOLD_DELAY), ..Tracked::default() }
                }
            };
        }
        Self { tracked, ..*self }
    }

    /// The state after a time in which nothing was measured. What a soft threshold was met before is no part of its grace,
    /// unless the gap is short, and what is measured next is news.
    #[must_use]
    pub(crate) fn resumed(&self, now: Instant) -> Self {
        let tracked = self.tracked.map(|was| Tracked { first: was.unbroken(now), ..was });
        Self { tracked, last: Observations::default(), last_pressure: None, ..*self }
    }

    /// Notes an eviction for memory: memory stalls evict no other pod until the rule's cool-down is over.
    pub fn note_memory_eviction(&mut self, now: Instant) {
        self.memory_evicted = Some(now);
    }
}

impl Tracked {
    /// When it was first met, unless it was last met too long ago.
    pub(crate) fn unbroken(&self, now: Instant) -> Option<Instant> {
        let is_forgiven = |last| now.saturating_duration_since(last) < FORGIVEN_GAP;
        self.first.filter(|_| self.last.is_some_and(is_forgiven))
    }
}
