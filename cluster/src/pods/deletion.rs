//! How much time a pod has to terminate.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;

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
