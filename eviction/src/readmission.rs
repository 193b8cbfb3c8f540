//! When an evicted static pod is readmitted.

use tokio::time::Instant;
use winddown_shared::{Pod, PodUid, ReadmissionBackoff};

use crate::conditions::Conditions;

#[cfg(test)]
mod tests;

/// The evicted static pods. The agent must restart them, because static pods have no controller.
#[derive(Debug, Default)]
pub struct Readmission {
    evicted: Vec<EvictedPod>,
    delays: ReadmissionBackoff,
}

#[derive(Debug)]
struct EvictedPod {
    pod: Pod,
    conditions: Conditions,
    not_before: Instant,
}

impl Readmission {
    /// Notes the eviction of a static pod, which waits until none of `conditions` holds. Further evictions before its
    /// readmission add their conditions, and no delay.
    pub fn note(&mut self, pod: &Pod, conditions: impl Into<Conditions>, now: Instant) {
        let conditions = conditions.into();
        let before = self.evicted.iter_mut().find(|evicted| evicted.pod.uid() == pod.uid());
        if let Some(before) = before {
            before.conditions = before.conditions.union(conditions);
            return;
        }
        let wait = self.delays.next_delay(pod.full_name(), now);
        self.evicted.retain(|evicted| evicted.pod.full_name() != pod.full_name());
        self.evicted.push(EvictedPod { pod: pod.clone(), conditions, not_before: now + wait });
    }

    /// Forgets a pod that was not asked to stop after all.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.evicted.retain(|evicted| evicted.pod.uid() != uid);
    }

    /// Removes and returns the pods that may be readmitted now: their delay and the condition are over.
    pub fn due(&mut self, conditions: Conditions, now: Instant) -> Vec<Pod> {
        if self.evicted.is_empty() {
            return Vec::new();
        }
        let is_due = |evicted: &mut EvictedPod| {
            now >= evicted.not_before && !conditions.intersects(evicted.conditions)
        };
        self.evicted.extract_if(.., is_due).map(|evicted| evicted.pod).collect()
    }

    /// The evicted pods, and when each may be readmitted if the pressure is over by then.
    pub fn evicted(&self) -> impl Iterator<Item = (&Pod, Instant)> {
        self.evicted.iter().map(|evicted| (&evicted.pod, evicted.not_before))
    }
}
