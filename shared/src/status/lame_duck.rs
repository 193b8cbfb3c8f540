//! Readiness while the node goes down: load balancers must turn away before the first SIGTERM, not
//! when connections are refused (k8s#116965).

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::WallTime;

/// The reason with which the kubelet rejects pods during a shutdown.
const REASON: &str = "NodeShutdown";
/// The message of the kubelet's own node condition during a shutdown.
const MESSAGE: &str = "node is shutting down";

/// Whether the pod, or all of its containers, count as ready.
pub(super) fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| speaks_of_readiness(c) && c.status == "True")
}

/// Makes the status not ready. Conditions that were not ready in `shown` keep their transition
/// time; the others change `now`, or at the time in the condition itself if `now` is `None`.
pub(crate) fn unready(status: &mut PodStatus, shown: Option<&PodStatus>, now: Option<WallTime>) {
    for condition in status.conditions.iter_mut().flatten().filter(|c| speaks_of_readiness(c)) {
        if condition.status == "True" {
            "False".clone_into(&mut condition.status);
            condition.reason = Some(REASON.to_owned());
            condition.message = Some(MESSAGE.to_owned());
            if let Some(now) = now {
                condition.last_transition_time = Some(Time(now));
            }
        }
        keep_time(condition, shown);
    }
}

/// Sets the transition times of the readiness from the probes: a condition that differs from `shown` changes `now`.
pub(super) fn restore(said: &mut PodStatus, shown: &PodStatus, now: WallTime) {
    for condition in said.conditions.iter_mut().flatten().filter(|c| speaks_of_readiness(c)) {
        if !keep_time(condition, Some(shown)) {
            condition.last_transition_time = Some(Time(now));
        }
    }
}

/// Copies the transition time from `shown` if the condition has not changed since. Returns whether that is so.
fn keep_time(condition: &mut PodCondition, shown: Option<&PodStatus>) -> bool {
    let mut shown = shown.and_then(|s| s.conditions.as_deref()).unwrap_or_default().iter();
    let same = shown.find(|c| c.type_ == condition.type_ && c.status == condition.status);
    if let Some(same) = same {
        condition.last_transition_time.clone_from(&same.last_transition_time);
    }
    same.is_some()
}

fn speaks_of_readiness(condition: &PodCondition) -> bool {
    matches!(condition.type_.as_str(), "Ready" | "ContainersReady")
}
