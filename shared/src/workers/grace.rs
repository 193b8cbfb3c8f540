//! The effective grace period of a pod, as a pure function of the requests.

use std::time::Duration;

use crate::{Grace, Pod};

/// The effective grace period after a request, given the one before.
///
/// The shortest requested grace period wins (the deletion's, the request's, the earlier one); the
/// pod's own applies only without a request. Never below one second. Unlike in the kubelet, a
/// deletion with grace 0 counts as the shortest and not as "unset".
pub(super) fn effective(
    current: Option<Duration>,
    pod: Option<&Pod>,
    asked: Option<Duration>,
) -> Duration {
    [current, pod.and_then(of_deletion), asked]
        .into_iter()
        .flatten()
        .min()
        .or_else(|| pod.and_then(Pod::termination_grace_period))
        .unwrap_or(Grace::SHORTEST)
        .max(Grace::SHORTEST)
}

/// The grace period of the pod's deletion.
pub(super) fn of_deletion(pod: &Pod) -> Option<Duration> {
    let seconds = pod.metadata.deletion_grace_period_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
