//! The trait for following the workers' steps.

use std::time::Duration;

use crate::{Pod, PodRef, StatusOverride};

/// Receives how long the workers' steps take, and what changes for terminating pods. Called outside every lock;
/// must not block. Every method does nothing unless it is overridden.
pub trait WorkerObserver: Send + Sync + 'static {
    /// Called when the first step of a pod begins, `waited` after its UID was first seen: the kubelet's
    /// `kubelet_pod_worker_start_duration_seconds`, and the time at which the kubelet counts the pod's containers.
    fn pod_started(&self, _pod: &Pod, _waited: Duration) {}

    /// Called when a step has succeeded or failed, `took` after the first of the updates that it answers.
    ///
    /// `operation` is the update's [`UpdateKind::as_str`](crate::UpdateKind::as_str), or
    /// `terminated` when the pod is finished: the kubelet's `kubelet_pod_worker_duration_seconds`.
    /// Steps that the workers take by themselves (retries, the next step of a terminating pod) are not reported, nor
    /// are kills by a controller: [`Event::PodStopped`](crate::Event::PodStopped) has their duration.
    fn step_ended(&self, _operation: &'static str, _took: Duration) {}

    /// Called when a further request to terminate a pod has changed how that goes on. The change takes effect when this
    /// returns.
    fn stop_changed(&self, _pod: &PodRef, _change: &StopChange) {}
}

/// What applies to a terminating pod since a further request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopChange {
    /// Its grace period from now on. One that would end later than before does not count.
    pub grace: Duration,
    /// Whether the node waits for this request ([`KillReason::node_waits`](crate::KillReason::node_waits)).
    pub node_waits: bool,
    /// The status that replaces its former one, if any does.
    pub status: Option<StatusOverride>,
    /// Whether this request evicts it ([`KillRequest::evict`](crate::KillRequest::evict)).
    pub evict: bool,
}

/// Ignores everything.
impl WorkerObserver for () {}
