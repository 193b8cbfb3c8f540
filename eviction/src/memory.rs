//! What has to be remembered from one look to the next.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::PressureStats;

use crate::condition::Condition;
use crate::observation::Observations;
use crate::policy::Policy;

/// What was seen so far. Small and without pointers; the first look starts with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// By the threshold's place in the policy.
    pub(crate) tracked: [Tracked; Policy::MOST_THRESHOLDS],
    /// When each condition was last seen, by [`Condition::ALL`].
    pub(crate) seen: [Option<Instant>; Condition::COUNT],
    pub(crate) last: Observations,
    pub(crate) last_pressure: Option<PressureStats>,
    /// When a pod was last ended for time that was lost.
    pub(crate) pressure_evicted: Option<Instant>,
}

/// One threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tracked {
    /// Since when it is met; short times in which it was not are forgiven.
    pub(crate) first: Option<Instant>,
    /// When it was last met.
    pub(crate) last: Option<Instant>,
    /// It was acted on or could be: met for its grace. Until the minimum reclaim is regained.
    pub(crate) active: bool,
    /// It came with a change of the configuration: nothing is done for it before.
    pub(crate) not_before: Option<Instant>,
}

/// After a change of the configuration, new thresholds end nobody for so long: a slip of the pen
/// can be taken back.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);

impl Memory {
    /// What is still true when `new` takes the place of `old`: of thresholds that are in both, all;
    /// those that are new end nobody for 10 s.
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

    /// A pod was ended for time that was lost: nobody else is for a while.
    pub fn note_pressure_eviction(&mut self, now: Instant) {
        self.pressure_evicted = Some(now);
    }
}
