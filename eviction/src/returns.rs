//! When a static pod that was ended comes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::Pod;

use crate::condition::{Condition, Conditions};

#[cfg(test)]
mod tests;

/// The first time a pod stays away for so long at least, then twice as long, …
const FIRST: Duration = Duration::from_secs(10);
/// … up to this.
const MOST: Duration = Duration::from_secs(5 * 60);
/// A pod that has not been ended for so long starts from the beginning.
const FORGIVEN: Duration = Duration::from_secs(10 * 60);

/// Static pods that were ended because the node ran short. Nobody else starts them anew: there is no
/// controller behind a manifest.
#[derive(Debug, Default)]
pub struct Returns {
    away: Vec<Away>,
    /// By name and namespace: a pod that comes back may have another UID.
    history: HashMap<Arc<str>, Evictions>,
}

#[derive(Debug)]
struct Away {
    pod: Pod,
    condition: Condition,
    not_before: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Evictions {
    count: u32,
    last: Instant,
}

impl Returns {
    /// A static pod has ended because the node ran short.
    pub fn note(&mut self, pod: &Pod, condition: Condition, now: Instant) {
        self.history.retain(|_, past| now.saturating_duration_since(past.last) < FORGIVEN + MOST);
        let past = self.history.entry(pod.full_name().clone());
        let past = past.or_insert(Evictions { count: 0, last: now });
        if now.saturating_duration_since(past.last) >= FORGIVEN {
            past.count = 0;
        }
        let wait = FIRST.saturating_mul(1 << past.count.min(10)).min(MOST);
        *past = Evictions { count: past.count.saturating_add(1), last: now };
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
