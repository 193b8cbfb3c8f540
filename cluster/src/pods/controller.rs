//! The pod controller: its parts put together.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use winddown_shared::PodUidMap;

use super::config::PodControllerConfig;
use super::known::KnownPods;
use super::parts::{Parts, Queues};
use super::queue::{QueueCounts, WorkerPanicked};
use super::seams::{AsItIs, MirrorSide, NoEvents, PodEvents, Prepare, StatusSide};
use crate::provider::Notify;
use winddown_api_client::node_pods::{KubePods, PodApi};
use winddown_api_client::outage::Outage;

mod running;
#[cfg(test)]
mod tests;

use running::Running;

/// Passes the pods bound to this node to a provider, and removes ended ones from the API.
///
/// Each decision is derived from the API's and the provider's current state, so it can be stopped
/// and restarted at any moment: nothing is started twice and nothing is forgotten.
pub struct PodController<P, S, R = AsItIs> {
    client: kube::Client,
    setup: Setup<P, S, R>,
}

/// A controller without the API it works on.
pub(crate) struct Setup<P, S, R> {
    config: PodControllerConfig,
    provider: Arc<P>,
    statuses: Arc<S>,
    prepare: Arc<R>,
    events: Arc<dyn PodEvents>,
    mirrors: Arc<dyn MirrorSide>,
    state: watch::Sender<RunState>,
    queues: Queues,
}

/// Follows a controller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodControllerHandle {
    state: watch::Receiver<RunState>,
    queues: Queues,
}

/// How far a controller is.
#[derive(Clone, Debug)]
pub enum RunState {
    /// Running and wanted pods are being listed.
    Starting,
    /// Both are known, and unwanted pods have been handled.
    Ready,
    /// It has ended; `Some` after a failure.
    Done(Option<Arc<RunError>>),
}

/// The queues of a controller, as they change.
#[derive(Clone, Debug)]
pub struct PodQueues {
    /// From the API to the provider.
    pub sync: watch::Receiver<QueueCounts>,
    /// From the provider to the API: statuses.
    pub status: watch::Receiver<QueueCounts>,
    /// Objects that wait to be removed from the API.
    pub removal: watch::Receiver<QueueCounts>,
}

/// Why a controller ended without being asked to, or before it was ready.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It was cancelled before it knew the wanted pods.
    #[error("cancelled before the pods of this node were listed")]
    NotSynced,
    /// One of its workers panicked; the provider or another part has a defect.
    #[error(transparent)]
    Worker(#[from] WorkerPanicked),
    /// One of its tasks ended or panicked.
    #[error("the task that {task} ended{}", .message.as_deref().map(|m| format!(": {m}")).unwrap_or_default())]
    Task {
        /// What it does.
        task: &'static str,
        /// What it said when it panicked.
        message: Option<String>,
    },
}

// === impl PodController ===

impl<P: Notify, S: StatusSide> PodController<P, S> {
    /// A controller that passes pods on as they are in the API, and sends no events.
    pub fn new(
        client: kube::Client,
        provider: Arc<P>,
        statuses: Arc<S>,
        config: PodControllerConfig,
    ) -> Self {
        Self { client, setup: Setup::new(provider, statuses, config) }
    }
}

impl<P: Notify, S: StatusSide, R: Prepare> PodController<P, S, R> {
    /// The same, making pods literal with `prepare` first.
    #[must_use]
    pub fn with_prepare<R2: Prepare>(self, prepare: Arc<R2>) -> PodController<P, S, R2> {
        PodController { client: self.client, setup: self.setup.with_prepare(prepare) }
    }

    /// The same, telling `events` what happens.
    #[must_use]
    pub fn with_events(mut self, events: Arc<dyn PodEvents>) -> Self {
        self.setup.events = events;
        self
    }

    /// The same, handing what the API has of mirror pods to `mirrors`.
    #[must_use]
    pub fn with_mirrors(mut self, mirrors: Arc<dyn MirrorSide>) -> Self {
        self.setup.mirrors = mirrors;
        self
    }

    /// Follows this controller, also after it has ended.
    pub fn handle(&self) -> PodControllerHandle {
        self.setup.handle()
    }

    /// Runs until `cancel`, and then until every call that is under way has been answered or its deadline
    /// is over. Once: a controller is used up then. Dropping the future drops calls that are under way.
    ///
    /// # Errors
    /// See [`RunError`]; being cancelled is none, once the controller was ready.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), RunError> {
        let node = self.setup.config.node_name.clone();
        self.setup.run(KubePods::new(self.client, node), cancel).await
    }
}

// === impl Setup ===

impl<P: Notify, S: StatusSide> Setup<P, S, AsItIs> {
    pub(crate) fn new(provider: Arc<P>, statuses: Arc<S>, config: PodControllerConfig) -> Self {
        Self {
            config,
            provider,
            statuses,
            prepare: Arc::new(AsItIs),
            events: Arc::new(NoEvents),
            mirrors: Arc::new(()),
            state: watch::Sender::new(RunState::Starting),
            queues: Queues::new(),
        }
    }
}

impl<P: Notify, S: StatusSide, R: Prepare> Setup<P, S, R> {
    pub(crate) fn with_prepare<R2: Prepare>(self, prepare: Arc<R2>) -> Setup<P, S, R2> {
        let Self { config, provider, statuses, events, mirrors, state, queues, .. } = self;
        Setup { config, provider, statuses, prepare, events, mirrors, state, queues }
    }

    pub(crate) fn handle(&self) -> PodControllerHandle {
        PodControllerHandle { state: self.state.subscribe(), queues: self.queues.clone() }
    }

    /// The controller on any API.
    pub(crate) async fn run<A: PodApi>(
        self,
        api: A,
        cancel: CancellationToken,
    ) -> Result<(), RunError> {
        let state = self.state;
        let parts = Arc::new(Parts {
            removals: Semaphore::new(self.config.workers.max(1)),
            config: self.config,
            api,
            provider: self.provider,
            statuses: self.statuses,
            prepare: self.prepare,
            events: self.events,
            mirrors: self.mirrors,
            known: KnownPods::default(),
            queues: self.queues,
            // Ends with the first part that fails, too.
            cancel: cancel.child_token(),
            unsettled: watch::Sender::new(PodUidMap::default()),
            provider_outage: Outage::new("asking the provider about its pods"),
            api_outage: Outage::new("asking the API server about single pods"),
        });
        let result = Running::start(parts, &state).await;
        let error = result.as_ref().err().cloned().map(Arc::new);
        state.send_replace(RunState::Done(error));
        result
    }
}

// === impl PodControllerHandle ===

impl PodControllerHandle {
    /// Resolves when the controller is ready: `true`; `false` when it ended before that.
    pub async fn ready(&mut self) -> bool {
        let state = self.state.wait_for(|state| !matches!(state, RunState::Starting)).await;
        state.is_ok_and(|state| matches!(*state, RunState::Ready))
    }

    /// Resolves when the controller has ended: with the error that ended it, if there was one.
    pub async fn done(&mut self) -> Option<Arc<RunError>> {
        match self.state.wait_for(|state| matches!(state, RunState::Done(_))).await.as_deref() {
            Ok(RunState::Done(error)) => error.clone(),
            _ => None,
        }
    }

    /// How far the controller is.
    pub fn state(&self) -> RunState {
        self.state.borrow().clone()
    }

    /// How much there is to do.
    pub fn queues(&self) -> PodQueues {
        PodQueues {
            sync: self.queues.sync.counts(),
            status: self.queues.status.counts(),
            removal: self.queues.removal.counts(),
        }
    }
}
