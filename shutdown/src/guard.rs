//! Which pods hold shutdowns, so that logind refuses them, and for how long.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::{Pod, ShutdownBlock, WallTime};

use crate::report::units::Seconds;

/// A pod with the value `true` asks that no shutdown begins while it runs.
pub const GUARD_LABEL: &str = "winddown.dev/shutdown-guard";

/// The namespaces whose pods may hold shutdowns, each with the longest time for one pod.
pub type GuardPolicy = BTreeMap<String, Duration>;

/// The pods that hold shutdowns, or did. A pod has one hold: when it is over, it is over for as long as the pod runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// By UID.
    holds: BTreeMap<String, Hold>,
}

/// What one pod has of its time. The times count from the kernel's boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// `namespace/name`.
    pub pod: String,
    /// `spec.priority`.
    #[serde(default)]
    pub priority: i32,
    /// When it was first seen to ask.
    #[serde(rename = "sinceSeconds", with = "Seconds")]
    pub since: Duration,
    /// When its time is over.
    #[serde(rename = "untilSeconds", with = "Seconds")]
    pub until: Duration,
    /// How it stands.
    pub state: HoldState,
}

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HoldState {
    /// Shutdowns are refused.
    Holds,
    /// The pod runs and does not ask, or may not. Its time goes on.
    Rests,
    /// An operator has released it.
    Released,
    /// Its time is over.
    Expired,
}

// === impl Guard ===

impl Guard {
    /// What becomes of it `now`, when these pods run and were not asked to end. `known`: no other pod runs; a hold of one
    /// that is not listed goes on where that is not known.
    #[must_use]
    pub fn after(&self, pods: &[Pod], known: bool, policy: &GuardPolicy, now: Duration) -> Self {
        let mut holds = if known { BTreeMap::new() } else { self.holds.clone() };
        for pod in pods {
            let most = policy.get(&**pod.namespace()).filter(|_| asks(pod));
            let before = self.holds.get(pod.uid().as_str());
            let hold = match (before, most) {
                (None, None) => continue,
                (Some(before), None) => Hold { state: before.state.resting(), ..before.clone() },
                (Some(before), Some(most)) => {
                    let state = before.state.asking();
                    Hold { until: before.since.saturating_add(*most), state, ..before.clone() }
                }
                (None, Some(most)) => Hold {
                    pod: format!("{}/{}", pod.namespace(), pod.name()),
                    priority: pod.priority_or_zero(),
                    since: now,
                    until: now.saturating_add(*most),
                    state: HoldState::Holds,
                },
            };
            holds.insert(pod.uid().to_string(), hold);
        }
        for hold in holds.values_mut().filter(|hold| hold.until <= now) {
            hold.state = hold.state.expired();
        }
        Self { holds }
    }

    /// Whether a change of this pod may be one of the guard: it asks, or has a hold.
    #[must_use]
    pub fn concerns(&self, pod: &Pod) -> bool {
        self.holds.contains_key(pod.uid().as_str()) || asks(pod)
    }

    /// The UIDs of the pods that have a hold, however it stands.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.holds.keys().map(String::as_str)
    }

    /// Forgets what began before the system did: /run outlives a soft reboot.
    #[must_use]
    pub fn since(mut self, system_start: Duration) -> Self {
        self.holds.retain(|_, hold| hold.since >= system_start);
        self
    }

    /// The holds because of which shutdowns are refused, with the pods' UIDs; those of the highest priority first.
    pub fn holding(&self) -> impl Iterator<Item = (&str, &Hold)> {
        let holds = self.holds.iter().filter(|(_, hold)| hold.state == HoldState::Holds);
        let mut holds: Vec<(&str, &Hold)> = holds.map(|(uid, hold)| (&**uid, hold)).collect();
        holds.sort_by_key(|&(_, hold)| (Reverse(hold.priority), &hold.pod));
        holds.into_iter()
    }

    /// The pods that ask in vain, because their time is over.
    pub fn expired(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values().filter(|hold| hold.state == HoldState::Expired)
    }

    /// When the next hold is over.
    pub fn next_end(&self) -> Option<Duration> {
        self.holding().map(|(_, hold)| hold.until).min()
    }

    /// Ends the hold of a pod for good; false if it has none that lasts.
    pub fn release(&mut self, uid: &str) -> bool {
        let hold = self.holds.get_mut(uid).filter(|hold| hold.state == HoldState::Holds);
        hold.map(|hold| hold.state = HoldState::Released).is_some()
    }

    /// What those are told who ask for a shutdown; none while no pod holds it. `wall` is the wall time at an offset from
    /// the boot.
    pub fn block(&self, wall: impl Fn(Duration) -> Option<WallTime>) -> Option<ShutdownBlock> {
        let last = self.holding().map(|(_, hold)| hold.until).max()?;
        let pods: Vec<&str> = self.holding().map(|(_, hold)| &*hold.pod).collect();
        let first = pods.first()?;
        let (who, next) = match pods.len() {
            1 => (format!("winddown: pod {first}"), format!("winddown release {first}")),
            n => {
                (format!("winddown: pod {first} and {} more", n - 1), "winddown status".to_owned())
            }
        };
        let until = wall(last).map(|at| format!(", until {} at most", at.strftime("%FT%TZ")));
        let until = until.unwrap_or_default();
        let why = format!("must not be interrupted{until}; to shut down all the same: {next}");
        Some(ShutdownBlock { who, why })
    }
}

fn asks(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(GUARD_LABEL)).is_some_and(|value| value == "true")
}

// === impl HoldState ===

impl HoldState {
    const fn resting(self) -> Self {
        match self {
            Self::Holds | Self::Rests => Self::Rests,
            over => over,
        }
    }

    const fn asking(self) -> Self {
        match self {
            Self::Holds | Self::Rests => Self::Holds,
            over => over,
        }
    }

    const fn expired(self) -> Self {
        match self {
            Self::Holds | Self::Rests => Self::Expired,
            over => over,
        }
    }
}

#[cfg(test)]
mod tests;
