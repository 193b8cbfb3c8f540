//! What the pod workers drive: the four steps of a pod's life.

use std::sync::Arc;
use std::time::Duration;

use crate::{GateReason, Grace, NodeEnding, Pod, PodStopped, PodUid, RuntimePod, StatusOverride};

/// The four steps of a pod's life. [`RuntimeSyncer`](crate::RuntimeSyncer) is the one for real use.
///
/// For one UID the workers never run two of these at the same time; different UIDs run in parallel.
/// Every step may be tried again after an error, and must then pick up where it is.
pub trait PodSyncer: Send + Sync + 'static {
    /// Makes the pod run as its spec asks. The future is dropped when the pod is asked to end.
    ///
    /// # Errors
    /// The step failed; it is tried again after a back-off.
    fn sync_pod(
        &self,
        update: SyncUpdate,
    ) -> impl Future<Output = Result<Synced, SyncError>> + Send;

    /// Stops the pod's containers; resolves when none runs.
    ///
    /// # Errors
    /// Something may still run; the step is tried again after a back-off.
    fn sync_terminating_pod(
        &self,
        pod: Pod,
        stop: Stop,
    ) -> impl Future<Output = Result<PodStopped, SyncError>> + Send;

    /// Stops the containers of a pod that only the runtime knows.
    ///
    /// # Errors
    /// Something may still run; the step is tried again after a back-off.
    fn sync_terminating_runtime_pod(
        &self,
        pod: RuntimePod,
        grace: Grace,
    ) -> impl Future<Output = Result<PodStopped, SyncError>> + Send;

    /// Frees what the stopped pod still holds.
    ///
    /// # Errors
    /// Something could not be freed; the step is tried again after a back-off.
    fn sync_terminated_pod(&self, pod: Pod) -> impl Future<Output = Result<(), SyncError>> + Send;

    /// Mount points that the pod still holds on the host.
    ///
    /// # Errors
    /// They could not be read; the answer is unknown, not empty.
    fn mounts(&self, uid: &PodUid) -> impl Future<Output = Result<Vec<String>, SyncError>> + Send {
        let _ = uid;
        async { Ok(Vec::new()) }
    }

    /// How a pod ended that does not run, as the runtime has it; none where that is not known.
    fn unseen_end(&self, uid: &PodUid) -> impl Future<Output = Option<PodStopped>> + Send {
        let _ = uid;
        async { None }
    }

    /// Whether the pod would run on through a soft-reboot of the node, as it was started. Never blocks.
    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        let _ = uid;
        false
    }

    /// Tells the pods that all of them are about to end, until [`lame_duck`](Self::lame_duck) with `false` for the
    /// same reason. Never blocks.
    fn announce(&self, reason: GateReason, ending: NodeEnding) {
        let _ = (reason, ending);
    }

    /// Makes every pod not ready, now and until it is called with `false` for the same reason; with
    /// the last reason gone readiness is what the probes say again. Never blocks.
    fn lame_duck(&self, reason: GateReason, on: bool) {
        let _ = (reason, on);
    }

    /// The containers last seen running, for the error of a kill that took too long. Never blocks.
    fn last_seen_running(&self, _uid: &PodUid) -> Vec<String> {
        Vec::new()
    }

    /// What is known of a pod's containers without asking the runtime. Never blocks.
    ///
    /// Decides about pods that the workers see for the first time: one that is known to run nothing
    /// has nothing to stop. If that is unknown, it says so, and the pod is stopped to be sure.
    fn runtime_view(&self, _uid: &PodUid) -> RuntimeView {
        RuntimeView::NotYetKnown
    }
}

/// What is known of a pod's containers.
///
/// Three answers on purpose: an empty answer before the runtime was listed once is not "stopped".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RuntimeView {
    /// The runtime was not asked yet, or its answer is lost.
    #[default]
    NotYetKnown,
    /// No container of the pod runs.
    Stopped,
    /// Containers of the pod run, or ran when last looked.
    Running,
}

/// Why a sync was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpdateKind {
    /// Look again: something changed in the runtime, or time passed.
    #[default]
    Sync,
    /// The pod object changed.
    Update,
    /// The pod is new to its source.
    Create,
    /// The pod has to end.
    Kill,
}

impl UpdateKind {
    /// The label of the reference's metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            UpdateKind::Sync => "sync",
            UpdateKind::Update => "update",
            UpdateKind::Create => "create",
            UpdateKind::Kill => "kill",
        }
    }
}

/// One call of [`PodSyncer::sync_pod`].
#[derive(Clone, Debug)]
pub struct SyncUpdate {
    /// Why.
    pub kind: UpdateKind,
    /// The pod as last configured.
    pub pod: Pod,
    /// The API's mirror of a static pod. A call that follows from an update has what that update
    /// brought, so that a mirror that was deleted is seen to be gone; every other call has the last
    /// one that was brought.
    pub mirror: Option<Pod>,
}

/// The answer of [`PodSyncer::sync_pod`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// The pod has come to its end by itself: every container is done and none may restart, or its
    /// time is over.
    pub terminal: bool,
    /// What to write into the status of a pod that is over although its containers run.
    pub ended: Option<StatusOverride>,
    /// When to look again although nothing changes.
    pub again_in: Option<Duration>,
}

/// How a pod is to be stopped.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The grace that was computed for the pod; `None` when the pod came to its end unasked.
    pub grace: Option<Duration>,
    /// The end of the grace, counted from now; it can move closer while the stop is under way.
    pub until: Grace,
    /// What to write into the pod's status.
    pub status: Option<StatusOverride>,
}

/// Why a step failed, and when to try again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct SyncError {
    /// What failed.
    pub what: String,
    /// Its cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// When to try again.
    pub retry: Retry,
}

/// When a failed step is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// After the workers' ordinary back-off.
    #[default]
    Backoff,
    /// Soon: something outside the pod (its network) is about to be ready.
    Transient,
    /// When this much time has passed; capped by the resync interval.
    After(Duration),
}

impl SyncError {
    /// A failure without a cause of its own, tried again after the ordinary back-off.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None, retry: Retry::Backoff }
    }

    /// A failure caused by `source`.
    pub fn caused_by(
        what: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { what: what.into(), source: Some(Arc::new(source)), retry: Retry::Backoff }
    }

    /// The same failure, tried again at another time.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }
}
