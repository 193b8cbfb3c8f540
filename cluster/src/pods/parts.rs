//! State that all parts of the controller share.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_api_client::node_pods::RefusedRequest;
use winddown_api_client::outage::Outage;
use winddown_api_client::refusal::{self, Refusal};
use winddown_shared::{ActiveDeadlines, Backoff, Pod, PodRef, PodUid, PodUidMap, WallTime};

use super::config::PodControllerConfig;
use super::known::KnownPods;
use super::queue::{Bucket, PodQueue};
use super::seams::{KeepPods, MirrorSide, NodeSide, StatusSide};

/// A running controller: its surroundings, its state and its queues.
pub(crate) struct Parts<A, T, R> {
    pub(crate) config: PodControllerConfig,
    pub(crate) api: A,
    pub(crate) node: NodeSide,
    pub(crate) statuses: Arc<T>,
    pub(crate) prepare: Arc<R>,
    pub(crate) mirrors: Arc<dyn MirrorSide>,
    pub(crate) keep: Arc<dyn KeepPods>,
    pub(crate) known: Arc<KnownPods>,
    pub(crate) queues: Queues,
    pub(crate) cancel: CancellationToken,
    /// Limits how many pods are prepared at a time. Ends of pods do not wait for that.
    pub(crate) preparing: Semaphore,
    /// Limits the concurrent requests that remove objects.
    pub(crate) removals: Semaphore,
    /// Pods that ran here at the start, that the API was not seen to have, and that were not handled yet.
    pub(crate) unsettled: watch::Sender<PodUidMap<()>>,
    pub(crate) api_outage: Outage,
    /// The active deadlines of pods that wait; the node has those of the others.
    pub(crate) deadlines: ActiveDeadlines,
}

/// The two queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// From the API to the node.
    pub(crate) sync: PodQueue,
    /// Removals from the API.
    pub(crate) removal: PodQueue,
}

impl<A, T: StatusSide, R> Parts<A, T, R> {
    /// Sends one request about a pod to the API server, within its deadline. What is refused for good, by a right or a
    /// policy, is told once for the pod, and says nothing of the server.
    pub(crate) async fn request<V>(
        &self,
        what: &'static str,
        pod: &PodRef,
        request: impl Future<Output = Result<V, RefusedRequest>>,
    ) -> Result<V, RefusedRequest> {
        let answer = RefusedRequest::within(self.config.request_deadline, what, request).await;
        match &answer {
            Err(refused) if matches!(refused.refusal, Refusal::NoAnswer | Refusal::Busy { .. }) => {
                self.api_outage.failed(refused);
            }
            Err(refused) if !refused.refusal.is_gone() => {
                self.api_outage.worked();
                let text = refusal::chain(refused);
                if self.known.mark(&pod.uid, |known| known.fail(&text)) == Some(true) {
                    tracing::warn!(%pod, "{text}; retrying");
                }
            }
            _ => self.api_outage.worked(),
        }
        answer
    }

    /// Records that the API's object of this pod is certainly gone.
    pub(crate) fn gone(&self, uid: &PodUid, last: Option<&Pod>) {
        self.known.gone(uid, last, Instant::now());
        self.statuses.gone(uid);
        self.queues.sync.wake_fresh(uid);
    }

    pub(crate) fn api_time(&self) -> WallTime {
        self.config.api_clock.now()
    }
}

// === impl Queues ===

impl Queues {
    pub(crate) fn new() -> Self {
        // Work that a user waits for is retried more often than background work.
        let queue = |backoff| PodQueue::new(backoff, Bucket::new(50, 200));
        Self { sync: queue(Backoff::PATIENT), removal: queue(Backoff::EAGER) }
    }
}
