//! The pod controller, which combines the parts.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use winddown_api_client::node_pods::{KubePods, PodApi};
use winddown_api_client::outage::Outage;
use winddown_shared::{ActiveDeadlines, DesiredPods, Pod, PodUidMap};

use super::config::PodControllerConfig;
use super::judgement::RefusedPods;
use super::known::KnownPods;
use super::parts::{Parts, Queues};
use super::queue::{QueueCounts, WorkerPanicked};
use super::seams::{AsItIs, KeepPods, MirrorSide, NodeSide, Prepare, StatusSide};

mod running;
#[cfg(test)]
mod tests;

use running::Running;

/// Makes the node run the pods that are bound to it, and removes terminated ones from the API.
///
/// It is a source of pods: [`wanted`](Self::wanted) is what the node should run, and [`NodeSide`] what the
/// node reports about that. Each decision is derived from the current state of both, so the controller can
/// be stopped and restarted at any moment: nothing is started twice and nothing is forgotten.
pub struct PodController<T, R = AsItIs> {
    client: kube::Client,
    setup: Setup<T, R>,
}

/// A controller without the API that it works on.
pub(crate) struct Setup<T, R> {
    config: PodControllerConfig,
    statuses: Arc<T>,
    prepare: Arc<R>,
    mirrors: Arc<dyn MirrorSide>,
    pub(crate) keep: Arc<dyn KeepPods>,
    known: Arc<KnownPods>,
    state: watch::Sender<RunState>,
    queues: Queues,
}

/// What an earlier agent of this boot gave to the node, according to [`KeepPods`]. Nothing is known by default.
#[derive(Clone, Debug, Default)]
pub struct EarlierPods {
    /// The pods. The `deletionGracePeriodSeconds` of one that has to terminate is what is left of its grace by now.
    pub pods: Vec<Pod>,
    /// Whether none is missing, because the API was listed in this boot.
    pub complete: bool,
}

/// Observes a controller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodControllerHandle {
    state: watch::Receiver<RunState>,
    queues: Queues,
}

/// The state of a controller.
#[derive(Clone, Debug)]
pub enum RunState {
    /// The API's pods are being listed.
    Starting,
    /// The pods are known, and unwanted ones have been handled.
    Ready,
    /// The controller has stopped; `Some` after a failure.
    Done(Option<Arc<RunError>>),
}

/// The sizes of a controller's queues, as they change.
#[derive(Clone, Debug)]
pub struct PodQueues {
    /// From the API to the node.
    pub sync: watch::Receiver<QueueCounts>,
    /// Removals from the API.
    pub removal: watch::Receiver<QueueCounts>,
}

/// Why a controller stopped by itself, or before it was ready.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It was cancelled before it knew the wanted pods.
    #[error("cancelled before the pods of this node were listed")]
    NotSynced,
    /// One of its workers panicked, which is a bug.
    #[error(transparent)]
    Worker(#[from] WorkerPanicked),
    /// One of its tasks stopped or panicked.
    #[error("the task that {task} exited{}", .message.as_deref().map(|m| format!(": {m}")).unwrap_or_default())]
    Task {
        /// What the task does.
        task: &'static str,
        /// The message of the panic, if there was one.
        message: Option<String>,
    },
}

// === impl PodController ===

impl<T: StatusSide> PodController<T> {
    /// A controller that gives pods to the node as they are in the API.
    pub fn new(client: kube::Client, statuses: Arc<T>, config: PodControllerConfig) -> Self {
        Self { client, setup: Setup::new(statuses, config, EarlierPods::default()) }
    }
}

impl<T: StatusSide, R: Prepare> PodController<T, R> {
    /// Uses `prepare` to resolve what pods refer to.
    #[must_use]
    pub fn with_prepare<R2: Prepare>(self, prepare: Arc<R2>) -> PodController<T, R2> {
        PodController { client: self.client, setup: self.setup.with_prepare(prepare) }
    }

    /// Continues with the pods that an earlier agent left, and keeps its own for the next one.
    #[must_use]
    pub fn with_keep(mut self, earlier: EarlierPods, keep: Arc<dyn KeepPods>) -> Self {
        self.setup.known = Arc::new(KnownPods::of_earlier(earlier.pods, earlier.complete));
        self.setup.keep = keep;
        self
    }

    /// Passes the API's mirror pods to `mirrors`.
    #[must_use]
    pub fn with_mirrors(mut self, mirrors: Arc<dyn MirrorSide>) -> Self {
        self.setup.mirrors = mirrors;
        self
    }

    /// The pods that the node has, as they change; at first those of an earlier agent. One with a deletion timestamp must
    /// terminate within its `deletionGracePeriodSeconds`. One with a terminal phase (`Succeeded`, `Failed`), or whose final
    /// status was written into the statuses, has terminated and stays listed until the API has that: do not run it again.
    pub fn wanted(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        self.setup.wanted()
    }

    /// The admission check of the node that goes with [`PodControllerConfig::admission`].
    pub fn refusals(&self) -> RefusedPods {
        self.setup.refusals()
    }

    /// Returns a handle, which remains usable after the controller has stopped.
    pub fn handle(&self) -> PodControllerHandle {
        self.setup.handle()
    }

    /// Runs until `cancel`, and then until every pending call has been answered or has timed out.
    /// Consumes the controller. Dropping the future drops pending calls.
    ///
    /// # Errors
    /// See [`RunError`]. Cancelling it is no error once the controller was ready.
    pub async fn run(self, node: NodeSide, cancel: CancellationToken) -> Result<(), RunError> {
        let name = self.setup.config.node_name.clone();
        self.setup.run(KubePods::new(self.client, name), node, cancel).await
    }
}

// === impl Setup ===

impl<T: StatusSide> Setup<T, AsItIs> {
    pub(crate) fn new(statuses: Arc<T>, config: PodControllerConfig, earlier: EarlierPods) -> Self {
        Self {
            config,
            statuses,
            prepare: Arc::new(AsItIs),
            mirrors: Arc::new(()),
            keep: Arc::new(()),
            known: Arc::new(KnownPods::of_earlier(earlier.pods, earlier.complete)),
            state: watch::Sender::new(RunState::Starting),
            queues: Queues::new(),
        }
    }
}

impl<T: StatusSide, R: Prepare> Setup<T, R> {
    pub(crate) fn with_prepare<R2: Prepare>(self, prepare: Arc<R2>) -> Setup<T, R2> {
        let Self { config, statuses, mirrors, keep, known, state, queues, .. } = self;
        Setup { config, statuses, prepare, mirrors, keep, known, state, queues }
    }

    pub(crate) fn wanted(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        self.known.wanted()
    }

    pub(crate) fn refusals(&self) -> RefusedPods {
        RefusedPods::of(&self.known)
    }

    pub(crate) fn handle(&self) -> PodControllerHandle {
        PodControllerHandle { state: self.state.subscribe(), queues: self.queues.clone() }
    }

    /// Runs the controller on any API.
    pub(crate) async fn run<A: PodApi>(
        self,
        api: A,
        node: NodeSide,
        cancel: CancellationToken,
    ) -> Result<(), RunError> {
        let state = self.state;
        let parts = Arc::new(Parts {
            preparing: Semaphore::new(self.config.workers.max(1)),
            removals: Semaphore::new(self.config.workers.max(1)),
            config: self.config,
            api,
            node,
            statuses: self.statuses,
            prepare: self.prepare,
            mirrors: self.mirrors,
            keep: self.keep,
            known: self.known,
            queues: self.queues,
            // Also cancelled by the first part that fails.
            cancel: cancel.child_token(),
            unsettled: watch::Sender::new(PodUidMap::default()),
            api_outage: Outage::new("asking the API server about single pods"),
            deadlines: ActiveDeadlines::default(),
        });
        let result = Running::start(parts, &state).await;
        let error = result.as_ref().err().cloned().map(Arc::new);
        state.send_replace(RunState::Done(error));
        result
    }
}

// === impl PodControllerHandle ===

impl PodControllerHandle {
    /// Waits until the controller is ready: `true`, or `false` if it stopped before that.
    pub async fn ready(&mut self) -> bool {
        let state = self.state.wait_for(|state| !matches!(state, RunState::Starting)).await;
        state.is_ok_and(|state| matches!(*state, RunState::Ready))
    }

    /// Waits until the controller has stopped. Returns the error that stopped it, if there was one.
    pub async fn done(&mut self) -> Option<Arc<RunError>> {
        match self.state.wait_for(|state| matches!(state, RunState::Done(_))).await.as_deref() {
            Ok(RunState::Done(error)) => error.clone(),
            _ => None,
        }
    }

    /// The state of the controller.
    pub fn state(&self) -> RunState {
        self.state.borrow().clone()
    }

    /// The sizes of the queues.
    pub fn queues(&self) -> PodQueues {
        PodQueues { sync: self.queues.sync.counts(), removal: self.queues.removal.counts() }
    }
}
