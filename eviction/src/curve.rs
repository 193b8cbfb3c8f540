//! The memory that was available before and after an eviction.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::observation::Observations;
use crate::signal::Signal;

#[cfg(test)]
mod tests;

/// The interval that one value covers.
const VALUE_INTERVAL: Duration = Duration::from_secs(3);
/// The number of values up to an eviction: three minutes.
const VALUES_BEFORE: usize = 60;
/// The number of values after it: half a minute.
const VALUES_AFTER: usize = 10;
/// The signals whose samples are kept.
const KEPT: [Signal; 2] = [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable];

/// The memory that was available from three minutes before an eviction to half a minute after it. The JSON form is a
/// stable interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Curve {
    /// The interval that one value covers, in seconds.
    pub seconds_each: u64,
    /// The least that was available in each interval, in bytes; none where nothing was measured.
    pub available: Vec<Option<i64>>,
    /// The index of the interval in which the pod was chosen.
    pub chosen_at: usize,
    /// The threshold, in bytes.
    pub threshold: i64,
    /// The index of the signal in `KEPT`, and the number of the first interval.
    #[serde(skip)]
    of: (usize, usize),
}

/// The samples of the last three minutes, in a ring of fixed size: a sample allocates nothing.
#[derive(Debug)]
pub(crate) struct Samples {
    since: Instant,
    ring: [Slot; VALUES_BEFORE],
}

/// The minimum of each signal in one interval. The number tells it from older intervals in the same slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: usize,
    least: [Option<i64>; KEPT.len()],
}

// === impl Samples ===

impl Samples {
    pub(crate) fn new(since: Instant) -> Self {
        Self { since, ring: [Slot::default(); VALUES_BEFORE] }
    }

    /// Adds what was available at `now`.
    pub(crate) fn note(&mut self, now: Instant, observed: &Observations) {
        let number = self.number(now);
        let slot = &mut self.ring[number % VALUES_BEFORE];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        for (least, signal) in slot.least.iter_mut().zip(KEPT) {
            let available = observed.get(signal).map(|observed| observed.available);
            *least = least.iter().copied().chain(available).min();
        }
    }

    /// The curve of an eviction for `signal` at `now`; none for signals other than memory.
    pub(crate) fn curve(&self, now: Instant, signal: Signal, threshold: i64) -> Option<Curve> {
        let kept = KEPT.iter().position(|kept| *kept == signal)?;
        let last = self.number(now);
        let mut numbers = last.saturating_sub(VALUES_BEFORE - 1)..=last;
        let first = numbers.find(|number| self.least(kept, *number).is_some())?;
        let mut available = Vec::with_capacity(VALUES_BEFORE + VALUES_AFTER);
        available.extend((first..=last).map(|number| self.least(kept, number)));
        let (seconds_each, chosen_at) = (VALUE_INTERVAL.as_secs(), last - first);
        Some(Curve { seconds_each, available, chosen_at, threshold, of: (kept, first) })
    }

    fn number(&self, now: Instant) -> usize {
        let number = now.saturating_duration_since(self.since).as_secs() / VALUE_INTERVAL.as_secs();
        usize::try_from(number).unwrap_or(usize::MAX)
    }

    fn least(&self, kept: usize, number: usize) -> Option<i64> {
        let slot = &self.ring[number % VALUES_BEFORE];
        slot.least[kept].filter(|_| slot.number == number)
    }
}

// === impl Curve ===

impl Curve {
    /// Adds the sample of `now`, unless the curve is complete.
    pub(crate) fn follow(&mut self, now: Instant, samples: &Samples) {
        let (kept, first) = self.of;
        let number = samples.number(now);
        let place = number.saturating_sub(first);
        if place <= self.chosen_at + VALUES_AFTER {
            self.available.resize(self.available.len().max(place + 1), None);
            self.available[place] = samples.least(kept, number);
        }
    }
}
