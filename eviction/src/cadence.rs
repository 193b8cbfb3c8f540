//! How often the node is sampled.

use std::time::Duration;

use crate::observation::Observation;
use crate::observations::Observations;
use crate::policy::Policy;
use crate::signal::Resource;

#[cfg(test)]
mod tests;

/// The sampling intervals of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplingIntervals {
    /// The interval while a quarter of what is left above each threshold would last that long, even at the highest
    /// conceivable rate of use. At least `calm`.
    pub far: Duration,
    /// The interval while nothing is near a threshold.
    pub calm: Duration,
    /// The interval while a resource is near its threshold, or short.
    pub near: Duration,
    /// The shortest interval for disks, inodes and tasks, used when one is about to run short.
    pub fastest: Duration,
    /// The shortest interval for memory. The loop never samples more often.
    pub memory: Duration,
}

impl Default for SamplingIntervals {
    /// 10 s (the kubelet's interval), 1 s, 250 ms, 100 ms, 25 ms.
    fn default() -> Self {
        Self {
            far: Duration::from_secs(10),
            calm: Duration::from_secs(1),
            near: Duration::from_millis(250),
            fastest: Duration::from_millis(100),
            memory: Duration::from_millis(25),
        }
    }
}

impl SamplingIntervals {
    /// The time until the next sample, from two samples that are `apart`. A figure with its own timestamp uses that
    /// instead, because file system figures may be older than the sample.
    ///
    /// `waited` is the previous answer. Samples that are close together say little about the rate: a figure that did
    /// not change between them may fall again at once. So after a short wait the next one is at most twice as long.
    ///
    /// A threshold that will be reached in `t` at the current rate is sampled again after `t / 4`. Memory is near its
    /// threshold, and sampled at least every `near`, while less than a twentieth of the capacity and less than half of
    /// the threshold itself is left above it.
    #[must_use]
    pub fn next(
        &self,
        policy: &Policy,
        before: &Observations,
        now: &Observations,
        apart: Duration,
        waited: Duration,
    ) -> Duration {
        let rule = policy.memory_pressure.as_ref().map(|rule| rule.below);
        let limits = policy.thresholds().iter().map(|threshold| {
            (threshold.signal, move |capacity| threshold.quantity(capacity, false).value())
        });
        let soonest = limits
            .filter_map(|(signal, limit)| {
                let observed = now.get(signal)?;
                let limit = limit(observed.capacity);
                let before = before.get(signal);
                Some(self.for_one(&observed, before.as_ref(), limit, apart, signal.resource()))
            })
            .min();
        let memory = crate::signal::Signal::MemoryAvailable;
        let pressed = rule.zip(now.get(memory)).map(|(below, observed)| {
            let limit = below.of(observed.capacity).value();
            let before = before.get(memory);
            let next = self.for_one(&observed, before.as_ref(), limit, apart, Resource::Memory);
            // A pressure rule compares stall times between samples, so these must not be far apart.
            next.min(self.calm)
        });
        let most = if waited < self.near { waited.saturating_mul(2) } else { self.longest() };
        soonest.into_iter().chain(pressed).min().unwrap_or(self.calm).min(most)
    }

    fn longest(&self) -> Duration {
        self.far.max(self.calm)
    }

    fn for_one(
        &self,
        now: &Observation,
        before: Option<&Observation>,
        limit: i64,
        apart: Duration,
        resource: Resource,
    ) -> Duration {
        let left = now.available.saturating_sub(limit);
        if left <= 0 {
            return self.near;
        }
        let fallen = before.map_or(0, |before| before.available.saturating_sub(now.available));
        let paced = match (u128::try_from(left), u128::try_from(fallen)) {
            (Ok(left), Ok(fallen)) if fallen > 0 => {
                let apart = between(before, now).unwrap_or(apart);
                let quarter = apart.as_nanos().saturating_mul(left) / fallen / 4;
                u64::try_from(quarter).map_or(self.longest(), Duration::from_nanos)
            }
            _ => self.longest(),
        };
        // What can be gone within a second is sampled often near its threshold; disks and tasks follow the rate at which
        // they fall.
        let is_near = left < (now.capacity / 20).min(limit.max(1) / 2);
        let standing = if is_near && resource.row().is_sudden {
            self.near
        } else {
            let quarter = left.unsigned_abs().saturating_mul(250) / resource.row().fastest_use;
            Duration::from_millis(quarter).clamp(self.calm, self.longest())
        };
        let fastest = if resource.row().is_sudden { self.memory } else { self.fastest };
        paced.min(standing).max(fastest)
    }
}

/// The time between two measurements of a figure, if both have a timestamp.
fn between(before: Option<&Observation>, now: &Observation) -> Option<Duration> {
    Some(now.at?.saturating_duration_since(before?.at?))
}
