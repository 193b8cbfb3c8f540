//! How much time a pod has to terminate.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::WallTime;

#[cfg(test)]
mod tests;

/// The grace period of a pod that has to terminate. One that was asked to keeps what is left of it.
#[derive(Debug)]
pub(crate) struct DeletionGrace;

impl DeletionGrace {
    /// Returns what was granted to a pod with its deletion, from when the node hears of it; `None` if it is not deleted.
    /// A deletion without the field is not waited for.
    pub(crate) fn granted(pod: &api::Pod) -> Option<Duration> {
        pod.metadata.deletion_timestamp.as_ref()?;
        Some(pod.metadata.deletion_grace_period_seconds.map_or(Duration::ZERO, seconds))
    }

    /// Returns what is left for a pod that an earlier agent has asked to terminate, according to its record.
    ///
    /// `metadata.deletionTimestamp` is the end of the grace period by the API server's clock, and
    /// `api_time` is that clock's current time, as far as it is known. If the two disagree so much
    /// that more would be left than was ever granted, what was granted counts.
    pub(crate) fn left(asked: &api::Pod, api_time: WallTime) -> Option<Duration> {
        let end = asked.metadata.deletion_timestamp.as_ref()?.0;
        let left = Duration::try_from(end.duration_since(api_time)).unwrap_or(Duration::ZERO);
        Some(left.min(Self::granted(asked)?))
    }

    /// Returns the grace period of a pod whose object is gone: what was granted with its deletion, which is nothing by
    /// force; one that vanished otherwise has its own.
    pub(crate) fn after_removal(pod: &api::Pod) -> Duration {
        Self::granted(pod).unwrap_or_else(|| Self::own(pod))
    }

    /// The pod's own grace period.
    pub(crate) fn own(pod: &api::Pod) -> Duration {
        let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        own.map_or(winddown_shared::Grace::DEFAULT, seconds)
    }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}
