//! The grace that applies to a pod, as a pure function of what was asked for.

use std::time::Duration;

use crate::{Grace, Pod};

/// The grace after a request, given the one that applied before.
///
/// The smallest of all requested graces (the deletion's, the request's, the earlier one) wins; the
/// pod's own applies only without a request. Never below one second. Unlike the kubelet, a deletion
/// with grace 0 counts as the shortest and not as "unset".
pub(super) fn effective(
    current: Option<Duration>,
    pod: Option<&Pod>,
    asked: Option<Duration>,
) -> Duration {
    [current, pod.and_then(of_deletion), asked]
        .into_iter()
        .flatten()
        .min()
        .or_else(|| pod.and_then(Pod::own_grace))
        .unwrap_or(Grace::SHORTEST)
        .max(Grace::SHORTEST)
}

/// What the pod's deletion granted.
pub(super) fn of_deletion(pod: &Pod) -> Option<Duration> {
    let seconds = pod.metadata.deletion_grace_period_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
