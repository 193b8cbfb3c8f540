//! When a static pod that was ended comes back.

use tokio::time::Instant;
use winddown_shared::{Pod, ReturnDelays};

use crate::condition::{Condition, Conditions};

#[cfg(test)]
mod tests;

/// Static pods that end or have ended because the node ran short. Nobody else starts them anew: there is no
/// controller behind a manifest.
#[derive(Debug, Default)]
pub struct Readmission {
    evicted: Vec<EvictedPod>,
    delays: ReturnDelays,
}

#[derive(Debug)]
struct EvictedPod {
    pod: Pod,
    condition: Condition,
    not_before: Instant,
}

impl Readmission {
    /// A static pod was asked to end because the node runs short. One that is asked again before it
    /// came back is sent away once.
    pub fn note(&mut self, pod: &Pod, condition: Condition, now: Instant) {
        if self.evicted.iter().any(|evicted| evicted.pod.uid() == pod.uid()) {
            return;
        }
        let wait = self.delays.next(pod.full_name(), now);
        self.evicted.retain(|evicted| evicted.pod.full_name() != pod.full_name());
        self.evicted.push(EvictedPod { pod: pod.clone(), condition, not_before: now + wait });
    }

    /// The pods that may come back now: their time is over and the condition is too.
    pub fn due(&mut self, conditions: Conditions, now: Instant) -> Vec<Pod> {
        if self.evicted.is_empty() {
            return Vec::new();
        }
        let is_due = |evicted: &mut EvictedPod| {
            now >= evicted.not_before && !conditions.contains(evicted.condition)
        };
        self.evicted.extract_if(.., is_due).map(|evicted| evicted.pod).collect()
    }

    /// Pods that are away, and when each may come back if the pressure is over by then.
    pub fn evicted(&self) -> impl Iterator<Item = (&Pod, Instant)> {
        self.evicted.iter().map(|evicted| (&evicted.pod, evicted.not_before))
    }
}
