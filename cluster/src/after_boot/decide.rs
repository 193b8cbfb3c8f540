//! Decides whether a pod that this node terminated is removed from the API. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::WallTime;

use super::TerminatedPod;
use crate::status::{BY_NODE, DISRUPTION_TARGET};

/// What happens to the pods that this node terminated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterBootPolicy {
    /// They are removed after the next boot.
    Delete,
    /// They stay until another party removes them.
    #[default]
    Keep,
    /// They are removed this long after they were terminated.
    After(Duration),
}

/// What to do about one of these pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterBootVerdict {
    /// It is not this node's business any more: drop it from the list.
    Forget,
    /// Check it again after this time, or on a change.
    Wait(Option<Duration>),
    /// Remove it from the API.
    Delete,
}

/// Decides what to do about `ended`. `in_api` is the pod with its name in the API. `boot`
/// identifies the current boot.
///
/// A pod is removed only if it has the same UID, has failed, and has the condition that this node
/// sets when it terminates a pod (`DisruptionTarget`, reason `TerminationByKubelet`).
pub fn decide(
    ended: &TerminatedPod,
    in_api: Option<&api::Pod>,
    policy: AfterBootPolicy,
    boot: Option<&str>,
    now: WallTime,
) -> AfterBootVerdict {
    let same = |pod: &&api::Pod| pod.metadata.uid.as_deref() == Some(ended.uid.as_str());
    let Some(pod) = in_api.filter(same) else {
        return AfterBootVerdict::Forget;
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return AfterBootVerdict::Forget;
    }
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Failed") => {}
        // The Job controller reads finished pods.
        Some("Succeeded") => return AfterBootVerdict::Forget,
        // Its final status has not reached the API yet.
        _ => return AfterBootVerdict::Wait(None),
    }
    let marks = status.and_then(|status| status.conditions.as_ref());
    let ours = marks.into_iter().flatten().any(|c| {
        c.type_ == DISRUPTION_TARGET && c.status == "True" && c.reason.as_deref() == Some(BY_NODE)
    });
    if ours { by_time(ended, policy, boot, now) } else { AfterBootVerdict::Forget }
}

/// Decides by time alone. `Delete` means that the pod's state in the API must be checked.
pub(super) fn by_time(
    ended: &TerminatedPod,
    policy: AfterBootPolicy,
    boot: Option<&str>,
    now: WallTime,
) -> AfterBootVerdict {
    match policy {
        AfterBootPolicy::Keep => AfterBootVerdict::Forget,
        // In the boot in which it was terminated, people may still want to inspect it.
        AfterBootPolicy::Delete if boot.is_some() && ended.boot.as_deref() == boot => {
            AfterBootVerdict::Wait(None)
        }
        AfterBootPolicy::Delete => AfterBootVerdict::Delete,
        AfterBootPolicy::After(ttl) => {
            // If the clock was set back, the age is zero.
            let age = Duration::try_from(now.duration_since(ended.at)).unwrap_or_default();
            match ttl.checked_sub(age) {
                Some(left) if !left.is_zero() => AfterBootVerdict::Wait(Some(left)),
                _ => AfterBootVerdict::Delete,
            }
        }
    }
}
