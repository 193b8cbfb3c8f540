//! How much time a pod has to terminate.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::time::Instant;
use winddown_shared::{WallTime, instant_after};

#[cfg(test)]
mod tests;

/// The grace period of a pod that has to terminate: what is left of it, never a new one.
#[derive(Debug)]
pub(crate) struct DeletionGrace;

impl DeletionGrace {
    /// Returns what is left for a pod whose deletion was requested; `None` if it was not.
    ///
    /// `metadata.deletionTimestamp` is the end of the grace period by the API server's clock, and
    /// `api_time` is that clock's current time, as far as it is known. If the two disagree so much
    /// that more would be left than was ever granted, what was granted counts.
    pub(crate) fn of_deletion(pod: &api::Pod, api_time: WallTime) -> Option<Duration> {
        let end = pod.metadata.deletion_timestamp.as_ref()?.0;
        let left = Duration::try_from(end.duration_since(api_time)).unwrap_or(Duration::ZERO);
        Some(left.min(granted(pod).unwrap_or(Duration::ZERO)))
    }

    /// Returns the end of the grace period of a pod whose object is gone.
    ///
    /// A pod that was deleted by force ends immediately; one that was being deleted keeps what was
    /// left; one that vanished otherwise has its own grace period.
    pub(crate) fn after_removal(pod: &api::Pod, now: Instant, api_time: WallTime) -> Instant {
        let left = Self::of_deletion(pod, api_time).unwrap_or_else(|| Self::own(pod));
        instant_after(now, left)
    }

    /// The pod's own grace period.
    pub(crate) fn own(pod: &api::Pod) -> Duration {
        let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        own.and_then(seconds).unwrap_or(winddown_shared::Grace::DEFAULT)
    }
}

/// The grace period granted with the deletion. Objects without the field are not waited for.
fn granted(pod: &api::Pod) -> Option<Duration> {
    seconds(pod.metadata.deletion_grace_period_seconds?)
}

fn seconds(number: i64) -> Option<Duration> {
    Some(Duration::from_secs(u64::try_from(number).unwrap_or(0)))
}
