//! The interface that the pod workers drive: the four steps of a pod's life.

use std::sync::Arc;
use std::time::Duration;

use crate::base::lock::Mutex;
use crate::{
    Delays, Grace, KillReason, NodeEndListener, Pod, PodStopped, PodUid, Retry, RuntimePod,
    StatusOverride,
};

/// The four steps of a pod's life. [`RuntimeSyncer`](crate::RuntimeSyncer) is the real implementation.
///
/// For one UID the workers never run two of these at the same time; different UIDs run in parallel.
/// Every step may be retried after an error, and must then continue from the current state.
pub trait PodSyncer: RuntimeStateProvider + NodeEndListener {
    /// Makes the pod run as its spec asks. The future is dropped when the pod is requested to terminate.
    ///
    /// # Errors
    /// The step failed; it is retried with backoff.
    fn sync_pod(
        &self,
        update: SyncUpdate,
    ) -> impl Future<Output = Result<Synced, SyncError>> + Send;

    /// Stops the pod's containers; resolves when none runs.
    ///
    /// # Errors
    /// Something may still run; the step is retried with backoff.
    fn sync_terminating_pod(
        &self,
        pod: Pod,
        stop: Stop,
    ) -> impl Future<Output = Result<PodStopped, SyncError>> + Send;

    /// Stops the containers of a pod that only the runtime knows.
    ///
    /// # Errors
    /// Something may still run; the step is retried with backoff.
    fn sync_terminating_runtime_pod(
        &self,
        pod: RuntimePod,
        grace: Grace,
    ) -> impl Future<Output = Result<PodStopped, SyncError>> + Send;

    /// Frees what the stopped pod still holds.
    ///
    /// # Errors
    /// Something could not be freed; the step is retried with backoff.
    fn sync_terminated_pod(&self, pod: Pod) -> impl Future<Output = Result<(), SyncError>> + Send;
}

/// What the runtime says of a pod, beside the steps.
pub trait RuntimeStateProvider: Send + Sync + 'static {
    /// Mount points that the pod still holds on the host.
    ///
    /// # Errors
    /// The mounts could not be read; they are unknown, not empty.
    fn mounts(&self, _uid: &PodUid) -> impl Future<Output = Result<Vec<String>, SyncError>> + Send {
        async { Ok(Vec::new()) }
    }

    /// How a pod that does not run terminated, according to the runtime; `None` if that is unknown.
    fn unseen_end(&self, _uid: &PodUid) -> impl Future<Output = Option<PodStopped>> + Send {
        async { None }
    }

    /// Whether the pod, as it was started, would keep running through a soft-reboot of the node. Never blocks.
    fn survives_soft_reboot(&self, _uid: &PodUid) -> bool {
        false
    }

    /// Why the pod would not be stopped for this reason, so that the request is refused; `None` if it would. Never
    /// blocks.
    fn refuses_stop(&self, _uid: &PodUid, _reason: KillReason) -> Option<Arc<str>> {
        None
    }

    /// The containers last seen running, for the error of a kill that took too long. Never blocks.
    fn last_seen_running(&self, _uid: &PodUid) -> Vec<String> {
        Vec::new()
    }

    /// What is known of a pod's containers without querying the runtime. Never blocks.
    ///
    /// Used for pods that the workers see for the first time: a pod that is known to run nothing
    /// has nothing to stop. While that is unknown, the pod is stopped to be sure.
    fn runtime_view(&self, _uid: &PodUid) -> RuntimeView {
        RuntimeView::NotYetKnown
    }
}

/// What is known of a pod's containers.
///
/// Three states on purpose: an empty answer before the first listing of the runtime is not "stopped".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RuntimeView {
    /// The runtime has not been queried yet, or its answer is lost.
    #[default]
    NotYetKnown,
    /// No container of the pod runs.
    Stopped,
    /// No container of the pod runs, and none will start.
    Completed,
    /// Containers of the pod run, or ran when last checked.
    Running,
}

/// Why a sync was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpdateKind {
    /// Check again: something changed in the runtime, or time passed.
    #[default]
    Sync,
    /// The pod object changed.
    Update,
    /// The pod is new to its source.
    Create,
    /// The pod has to terminate.
    Kill,
}

impl UpdateKind {
    /// The label of the kubelet's metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            UpdateKind::Sync => "sync",
            UpdateKind::Update => "update",
            UpdateKind::Create => "create",
            UpdateKind::Kill => "kill",
        }
    }
}

/// The argument of [`PodSyncer::sync_pod`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncUpdate {
    /// The reason for the call.
    pub kind: UpdateKind,
    /// The pod as last configured.
    pub pod: Pod,
    /// The mirror pod (API object) of a static pod. A call that follows an update has the mirror of
    /// that update, so that a deleted mirror is noticed; every other call has the last known one.
    pub mirror: Option<Pod>,
}

/// The result of [`PodSyncer::sync_pod`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Whether the pod has completed by itself: every container is done and none may restart, or
    /// its active deadline has passed.
    pub terminal: bool,
    /// The status to write for a pod that is over although its containers run.
    pub ended: Option<StatusOverride>,
    /// When to check again if nothing changes.
    pub again_in: Option<Duration>,
}

/// How to stop a pod.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stop {
    /// The grace period computed for the pod; `None` when the pod completed by itself.
    pub grace: Option<Duration>,
    /// The end of the grace period, counted from now; it can move closer while the stop is in flight.
    pub until: Grace,
    /// The status to write into the pod, to be read when it has stopped.
    pub status: Arc<Mutex<Option<StatusOverride>>>,
}

/// A failed step, and when to retry it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
#[non_exhaustive]
pub struct SyncError {
    /// What failed.
    pub what: String,
    /// The cause.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// The row of [`Retry`] by which it is retried. A failed stop is retried as [`Retry::STOP`], whatever this says.
    pub retry: Delays,
}

impl SyncError {
    /// Creates a failure without a cause, retried as [`Retry::STEP`].
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None, retry: Retry::STEP }
    }

    /// Creates a failure caused by `source`, retried as [`Retry::STEP`].
    pub fn caused_by(
        what: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { what: what.into(), source: Some(Arc::new(source)), retry: Retry::STEP }
    }

    /// Sets how the step is retried.
    pub fn retry(mut self, retry: Delays) -> Self {
        self.retry = retry;
        self
    }
}
