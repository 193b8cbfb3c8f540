//! The growth rate of pods' memory.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Pod, PodStats, PodUid, PodUidMap};

use crate::observation::signed;

#[cfg(test)]
mod tests;

/// The shortest interval between two measurements that yields a rate.
const MIN_MEASUREMENT_INTERVAL: Duration = Duration::from_millis(500);
/// The age at which a measurement is dropped, because it says nothing about the current rate.
const MEASUREMENT_MAX_AGE: Duration = Duration::from_secs(30);

/// The last measurement of each pod.
#[derive(Debug, Default)]
pub(crate) struct Growth(PodUidMap<SeenUsage>);

#[derive(Clone, Copy, Debug)]
struct SeenUsage {
    at: Instant,
    bytes: i64,
    /// Bytes per second.
    rate: Option<i64>,
}

impl Growth {
    /// Adds a measurement of `pods`; `stats` is in the same order.
    pub(crate) fn note(&mut self, pods: &[Pod], stats: &[Option<PodStats>], now: Instant) {
        self.0.retain(|_, seen| now.saturating_duration_since(seen.at) < MEASUREMENT_MAX_AGE);
        for (pod, stats) in pods.iter().zip(stats) {
            let Some(stats) = stats else { continue };
            let Some(bytes) = stats.memory_working_set else { continue };
            let bytes = signed(bytes.saturating_add(stats.swap.unwrap_or(0)));
            let before = self.0.get(pod.uid()).copied();
            let apart = before.map(|before| now.saturating_duration_since(before.at));
            let seen = match before.zip(apart) {
                Some((before, apart)) if apart < MIN_MEASUREMENT_INTERVAL => before,
                Some((before, apart)) => SeenUsage {
                    at: now,
                    bytes,
                    rate: Some(rate(bytes.saturating_sub(before.bytes), apart)),
                },
                None => SeenUsage { at: now, bytes, rate: None },
            };
            self.0.insert(pod.uid().clone(), seen);
        }
    }

    /// The rate between a pod's last two measurements, in bytes per second; negative if the pod shrank.
    pub(crate) fn of(&self, uid: &PodUid) -> Option<i64> {
        self.0.get(uid)?.rate
    }
}

fn rate(bytes: i64, time: Duration) -> i64 {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX).max(1);
    bytes.saturating_mul(1000) / millis
}
