//! The pods that hold shutdowns, each for a limited time. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize};
use winddown_shared::{Pod, ShutdownBlock, WallTime};
use winddown_shutdown::units::Seconds;

/// The label with which a pod asks, by the value `true`, that no shutdown begins while it runs.
pub const GUARD_LABEL: &str = "winddown.dev/shutdown-guard";

/// The namespaces whose pods may hold shutdowns, each with the longest time for one pod.
pub type GuardPolicy = BTreeMap<String, Duration>;

/// The pods that hold or have held shutdowns. A pod has one hold: once that is over, it gets no other while it runs.
/// Pods that replace one another share the time of one, which begins again as long after its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Guard {
    /// The holds by pod UID.
    holds: BTreeMap<String, Hold>,
    /// The times that pods share, by what makes them ([`sharers`]).
    #[serde(default)]
    shared: BTreeMap<String, SharedTime>,
}

/// The time that the pods which replace one another share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SharedTime {
    /// When the first of them was seen to ask for a hold.
    #[serde(rename = "sinceSeconds", with = "Seconds")]
    since: Duration,
    /// When another begins.
    #[serde(rename = "renewsSeconds", with = "Seconds")]
    renews: Duration,
}

/// The hold of one pod. The times count from the kernel's boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hold {
    /// `namespace/name`.
    pub(super) pod: String,
    /// `spec.priority`.
    #[serde(default)]
    pub(super) priority: i32,
    /// When the pod was first seen to ask for a hold.
    #[serde(rename = "sinceSeconds", with = "Seconds")]
    pub(super) since: Duration,
    #[serde(rename = "untilSeconds", with = "Seconds")]
    pub(super) until: Duration,
    pub(super) state: HoldState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HoldState {
    /// Shutdowns are refused.
    Holds,
    /// The pod is running but does not ask for the hold, or is not allowed it. Its time keeps running.
    #[serde(rename = "rests")]
    Suspended,
    Released,
    /// The hold's time is over.
    Expired,
}

// === impl Guard ===

impl Guard {
    /// Returns the next state at `now`, given the pods that are running and have not been requested to stop. `known`
    /// means that `pods` is complete; otherwise holds of pods that are not listed continue.
    #[must_use]
    pub(super) fn reconcile(
        &self,
        pods: &[Pod],
        known: bool,
        policy: &GuardPolicy,
        now: Duration,
    ) -> Self {
        let mut holds = if known { BTreeMap::new() } else { self.holds.clone() };
        let mut shared = self.shared.clone();
        shared.retain(|_, time| now < time.renews);
        for pod in pods {
            let most = policy.get(&**pod.namespace()).filter(|_| asks(pod));
            let before = self.holds.get(pod.uid().as_str());
            let hold = match (before, most) {
                (None, None) => continue,
                (Some(before), None) => Hold { state: before.state.suspended(), ..before.clone() },
                (Some(before), Some(most)) => {
                    let state = before.state.asking();
                    Hold { until: before.since.saturating_add(*most), state, ..before.clone() }
                }
                (None, Some(most)) => {
                    let since = shared.get(&sharers(pod)).map_or(now, |time| time.since);
                    Hold {
                        pod: full_name(pod),
                        priority: pod.priority_or_zero(),
                        since,
                        until: since.saturating_add(*most),
                        state: HoldState::Holds,
                    }
                }
            };
            let renews = most.map(|most| hold.until.saturating_add(*most));
            if let Some(renews) = renews.filter(|renews| now < *renews) {
                shared.entry(sharers(pod)).or_insert(SharedTime { since: hold.since, renews });
            }
            holds.insert(pod.uid().to_string(), hold);
        }
        for hold in holds.values_mut().filter(|hold| hold.until <= now) {
            hold.state = hold.state.expired();
        }
        Self { holds, shared }
    }

    /// Whether a change of this pod may change the guard: it asks for a hold, or has one.
    #[must_use]
    pub(super) fn concerns(&self, pod: &Pod) -> bool {
        self.holds.contains_key(pod.uid().as_str()) || asks(pod)
    }

    /// The UIDs of the pods that have a hold in any state.
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.holds.keys().map(String::as_str)
    }

    /// Drops holds from before the system started, because /run outlives a soft reboot.
    #[must_use]
    pub(super) fn since(mut self, system_start: Duration) -> Self {
        self.holds.retain(|_, hold| hold.since >= system_start);
        self.shared.retain(|_, time| time.since >= system_start);
        self
    }

    /// The holds that cause shutdowns to be refused, with the pods' UIDs, highest priority first.
    pub(super) fn holding(&self) -> impl Iterator<Item = (&str, &Hold)> {
        let holds = self.holds.iter().filter(|(_, hold)| hold.state == HoldState::Holds);
        let mut holds: Vec<(&str, &Hold)> = holds.map(|(uid, hold)| (&**uid, hold)).collect();
        holds.sort_by_key(|&(_, hold)| (Reverse(hold.priority), &hold.pod));
        holds.into_iter()
    }

    /// The holds whose time is over.
    pub(super) fn expired(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values().filter(|hold| hold.state == HoldState::Expired)
    }

    /// When the next active hold expires.
    pub(super) fn next_end(&self) -> Option<Duration> {
        self.holding().map(|(_, hold)| hold.until).min()
    }

    /// Releases a pod's hold for good. Returns false if the pod has no active hold.
    pub(super) fn release(&mut self, uid: &str) -> bool {
        let hold = self.holds.get_mut(uid).filter(|hold| hold.state == HoldState::Holds);
        hold.map(|hold| hold.state = HoldState::Released).is_some()
    }

    /// Returns the block to show to users who request a shutdown; none if there is no active hold. `wall` converts a
    /// time since boot to wall time.
    pub(super) fn block(
        &self,
        wall: impl Fn(Duration) -> Option<WallTime>,
    ) -> Option<ShutdownBlock> {
        let last = self.holding().map(|(_, hold)| hold.until).max()?;
        let pods: Vec<&str> = self.holding().map(|(_, hold)| &*hold.pod).collect();
        let first = pods.first()?;
        let (who, next) = match pods.len() {
            1 => (format!("winddown: pod {first}"), format!("`winddown release {first}`")),
            n => (
                format!("winddown: pod {first} and {} more", n - 1),
                "`winddown status`".to_owned(),
            ),
        };
        let until = wall(last).map(|at| format!(", until {} at most", at.strftime("%FT%TZ")));
        let until = until.unwrap_or_default();
        let why = format!("must not be interrupted{until}; to shut down all the same: {next}");
        Some(ShutdownBlock { who, why })
    }
}

/// The key of the pods that share their time with this one: the UID of its controller; without one, `namespace/name`. A
/// rollout gives a Deployment's pods another ReplicaSet, so the key of these is `namespace/name-` of the Deployment.
fn sharers(pod: &Pod) -> String {
    let owners = pod.metadata.owner_references.iter().flatten();
    // A mirror pod's is the node, which all of them share.
    let is_own = |owner: &&OwnerReference| owner.controller == Some(true) && owner.kind != "Node";
    let Some(controller) = owners.into_iter().find(is_own) else { return full_name(pod) };
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    let deployment = hash.and_then(|hash| controller.name.strip_suffix(hash.as_str()));
    match deployment.filter(|name| controller.kind == "ReplicaSet" && name.ends_with('-')) {
        Some(deployment) => format!("{}/{deployment}", pod.namespace()),
        None => controller.uid.clone(),
    }
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn asks(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(GUARD_LABEL)).is_some_and(|value| value == "true")
}

// === impl HoldState ===

impl HoldState {
    const fn suspended(self) -> Self {
        match self {
            Self::Holds | Self::Suspended => Self::Suspended,
            over => over,
        }
    }

    const fn asking(self) -> Self {
        match self {
            Self::Holds | Self::Suspended => Self::Holds,
            over => over,
        }
    }

    const fn expired(self) -> Self {
        match self {
            Self::Holds | Self::Suspended => Self::Expired,
            over => over,
        }
    }
}

#[cfg(test)]
mod tests;
