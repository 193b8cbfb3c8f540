//! The seam for measuring durations.

use std::time::Duration;

use crate::Pod;

/// Hears how long the workers' steps take. Called outside every lock, by the pod's task; it must
/// not block. Every method does nothing unless it is overridden.
pub trait WorkerObserver: Send + Sync + 'static {
    /// The first step of a pod begins, `waited` after its UID was first seen: the reference's
    /// `kubelet_pod_worker_start_duration_seconds`, and the moment at which it counts the pod's
    /// containers.
    fn pod_started(&self, _pod: &Pod, _waited: Duration) {}

    /// A step has ended, well or not, `took` after the first of the updates it answers came.
    ///
    /// `operation` is the update's [`UpdateKind::as_str`](crate::UpdateKind::as_str), or
    /// `terminated` when the pod is finished: the reference's
    /// `kubelet_pod_worker_duration_seconds`. Steps that the workers take by themselves (retries,
    /// the next step of an ending pod) are not told, and neither are kills by a controller: how
    /// long those take is in [`Event::PodStopped`](crate::Event::PodStopped).
    fn step_ended(&self, _operation: &'static str, _took: Duration) {}
}

/// Measures nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoObserver;

impl WorkerObserver for NoObserver {}
