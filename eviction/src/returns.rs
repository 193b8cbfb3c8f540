//! When a static pod that was ended comes back.

use tokio::time::Instant;
use winddown_shared::{Pod, ReturnDelays};

use crate::condition::{Condition, Conditions};

#[cfg(test)]
mod tests;

/// Static pods that end or have ended because the node ran short. Nobody else starts them anew: there is no
/// controller behind a manifest.
#[derive(Debug, Default)]
pub struct Returns {
    away: Vec<Away>,
    delays: ReturnDelays,
}

#[derive(Debug)]
struct Away {
    pod: Pod,
    condition: Condition,
    not_before: Instant,
}

impl Returns {
    /// A static pod was asked to end because the node runs short. One that is asked again before it
    /// came back is sent away once.
    pub fn note(&mut self, pod: &Pod, condition: Condition, now: Instant) {
        if self.away.iter().any(|away| away.pod.uid() == pod.uid()) {
            return;
        }
        let wait = self.delays.next(pod.full_name(), now);
        self.away.retain(|away| away.pod.full_name() != pod.full_name());
        self.away.push(Away { pod: pod.clone(), condition, not_before: now + wait });
    }

    /// The pods that may come back now: their time is over and the condition is too.
    pub fn due(&mut self, conditions: Conditions, now: Instant) -> Vec<Pod> {
        if self.away.is_empty() {
            return Vec::new();
        }
        let is_due =
            |away: &mut Away| now >= away.not_before && !conditions.contains(away.condition);
        self.away.extract_if(.., is_due).map(|away| away.pod).collect()
    }

    /// Pods that are away, and when each may come back if the pressure is over by then.
    pub fn away(&self) -> impl Iterator<Item = (&Pod, Instant)> {
        self.away.iter().map(|away| (&away.pod, away.not_before))
    }
}
