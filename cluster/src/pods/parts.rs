//! State that all parts of the controller share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_shared::{Pod, PodUid, PodUidMap, WallTime};

use super::config::PodControllerConfig;
use super::known::KnownPods;
use super::queue::{Bucket, Queue};
use super::seams::{MirrorSide, PodEvents, Prepare, StatusSide};
use crate::provider::{Notify, ProvidedPod, ProviderError};
use crate::status::StatusUpdate;
use winddown_api_client::node_pods::{PodApi, Refused};
use winddown_api_client::outage::Outage;
use winddown_shared::Backoff;

/// One running controller: its surroundings, its memory and its queues.
pub(crate) struct Parts<A, P, S, R> {
    pub(crate) config: PodControllerConfig,
    pub(crate) api: A,
    pub(crate) provider: Arc<P>,
    pub(crate) statuses: Arc<S>,
    pub(crate) prepare: Arc<R>,
    pub(crate) events: Arc<dyn PodEvents>,
    pub(crate) mirrors: Arc<dyn MirrorSide>,
    pub(crate) known: KnownPods,
    pub(crate) queues: Queues,
    pub(crate) cancel: CancellationToken,
    /// Requests that remove objects, side by side.
    pub(crate) removals: Semaphore,
    /// Pods that only the provider had at the start and that were not handled yet.
    pub(crate) unsettled: watch::Sender<PodUidMap<()>>,
    pub(crate) provider_outage: Outage,
    pub(crate) api_outage: Outage,
}

/// The three queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// From the API to the provider.
    pub(crate) sync: Queue,
    /// From the provider to the status side.
    pub(crate) status: Queue,
    /// Out of the API.
    pub(crate) removal: Queue,
}

/// A call of the provider did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// It said why.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// It did not answer.
    #[error("the provider did not answer within {0:?}")]
    Silent(Duration),
}

impl<A: PodApi, P: Notify, S: StatusSide, R: Prepare> Parts<A, P, S, R> {
    /// One call that changes something at the provider.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, CallError> {
        within(self.config.call_deadline, call).await
    }

    /// One question to the provider.
    pub(crate) async fn query<T>(
        &self,
        query: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, CallError> {
        within(self.config.query_deadline, query).await
    }

    /// One request to the API server, within its deadline.
    pub(crate) async fn request<T>(
        &self,
        what: &'static str,
        request: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        match timeout(self.config.request_deadline, request).await {
            Ok(result) => result,
            Err(_) => Err(Refused::silent(what)),
        }
    }

    /// What the provider says of a pod.
    pub(crate) async fn provided(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, CallError> {
        let answer = match self.query(self.provider.get_pod(uid)).await {
            Err(CallError::Provider(ProviderError::NotFound)) => Ok(None),
            answer => answer,
        };
        match &answer {
            Ok(_) => self.provider_outage.worked(),
            Err(error) => self.provider_outage.failed(error),
        }
        answer
    }

    /// Hands on a status, if it is news.
    pub(crate) fn say(&self, pod: &Pod, provided: &ProvidedPod) {
        let status = &provided.status;
        let is_news = self.known.mark(pod.uid(), |progress| progress.say(status, provided.ended));
        if is_news == Some(true) {
            self.statuses.submit(StatusUpdate {
                pod: pod.label().clone(),
                status: status.clone(),
                last: provided.ended,
                generation: provided.pod.metadata.generation,
            });
        }
    }

    /// The API's object of this pod is gone for sure.
    pub(crate) fn gone(&self, uid: &PodUid, last: Option<&Pod>) {
        self.known.gone(uid, last, Instant::now(), self.api_time());
        self.statuses.gone(uid);
        self.queues.sync.wake_fresh(uid);
    }

    pub(crate) fn api_time(&self) -> WallTime {
        self.config.api_clock.now()
    }
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, CallError> {
    match timeout(deadline, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(CallError::Silent(deadline)),
    }
}

// === impl Queues ===

impl Queues {
    pub(crate) fn new() -> Self {
        // Work that a user waits for is retried more often than background work.
        let queue = |backoff| Queue::new(backoff, Bucket::new(50, 200));
        Self {
            sync: queue(Backoff::PATIENT),
            status: queue(Backoff::EAGER),
            removal: queue(Backoff::EAGER),
        }
    }
}

// === impl CallError ===

impl CallError {
    /// When the provider wants to be asked again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Provider(ProviderError::Unavailable { after, .. }) => *after,
            _ => None,
        }
    }
}
