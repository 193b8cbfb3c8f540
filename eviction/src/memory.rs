//! State that is carried from one sample to the next.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::PressureStats;

use crate::condition::Condition;
use crate::observation::Observations;
use crate::policy::Policy;

/// The observations so far. Small and without pointers; the first sample starts with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// By the threshold's place in the policy.
    pub(crate) tracked: [Tracked; Policy::MOST_THRESHOLDS],
    /// When each condition was last seen, by [`Condition::ALL`].
    pub(crate) seen: [Option<Instant>; Condition::COUNT],
    pub(crate) last: Observations,
    pub(crate) last_pressure: Option<PressureStats>,
    /// The last eviction for memory stalls.
    pub(crate) pressure_evicted: Option<Instant>,
}

/// One threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tracked {
    /// Since when it is met, short gaps included.
    pub(crate) first: Option<Instant>,
    /// When it was last met.
    pub(crate) last: Option<Instant>,
    /// It was acted on or could be: met for its grace. Until the minimum reclaim is regained.
    pub(crate) active: bool,
    /// Set for thresholds that are new after a configuration change: they are not acted on before
    /// this.
    pub(crate) not_before: Option<Instant>,
}

/// After a configuration change, new thresholds evict no pod for this long, so that a typo can be
/// corrected.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);

impl Memory {
    /// The memory after `new` replaces `old`: thresholds in both keep theirs; new ones evict no pod
    /// for 10 s.
    #[must_use]
    pub fn carried_over(&self, old: &Policy, new: &Policy, now: Instant) -> Self {
        let mut tracked = [Tracked::default(); Policy::MOST_THRESHOLDS];
        for (place, threshold) in tracked.iter_mut().zip(new.thresholds()) {
            *place = match old.thresholds().iter().position(|known| known == threshold) {
                Some(known) => self.tracked[known],
                None => Tracked { not_before: Some(now + SETTLE), ..Tracked::default() },
            };
        }
        Self { tracked, ..*self }
    }

    /// Notes an eviction for memory stalls: no other follows for a while.
    pub fn note_pressure_eviction(&mut self, now: Instant) {
        self.pressure_evicted = Some(now);
    }
}
