//! Readiness while the node goes down: load balancers must turn away before the first SIGTERM, not
//! when its connections are refused (k8s#116965).

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::WallTime;

/// What the kubelet says of pods that it refuses for a shutdown.
const REASON: &str = "NodeShutdown";
/// What the kubelet says of the node's own readiness then.
const MESSAGE: &str = "node is shutting down";

/// Whether the pod, or all of its containers, count as ready.
pub(super) fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| speaks_of_readiness(c) && c.status == "True")
}

/// Makes it not ready. What was not ready before, in `shown`, has not changed with that; what was
/// changes `now`, or when the condition itself says.
pub(super) fn unready(status: &mut PodStatus, shown: Option<&PodStatus>, now: Option<WallTime>) {
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

/// Dates what the probes said of readiness: where it differs from `shown` it changes `now`.
pub(super) fn restore(said: &mut PodStatus, shown: &PodStatus, now: WallTime) {
    for condition in said.conditions.iter_mut().flatten().filter(|c| speaks_of_readiness(c)) {
        if !keep_time(condition, Some(shown)) {
            condition.last_transition_time = Some(Time(now));
        }
    }
}

/// The time of the transition that was shown, if the condition has not changed since. Says whether
/// that is so.
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
