//! The seam to whatever runs pods.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio_util::sync::CancellationToken;
use winddown_shared::{Pod, PodUid};

mod changes;
mod polling;

pub use changes::{ChangeSender, Changes, changes};
pub use polling::{PollTimes, Polled};

/// Runs pods for the [pod controller](crate::pods).
///
/// A pod's identity is its UID: two pods of one name are two pods, and the controller has the older
/// one ended before it creates the newer. Calls that change a pod never overlap for one UID; calls for
/// different pods run in parallel, and pods are asked about ([`get_pod`](Self::get_pod),
/// [`list_pods`](Self::list_pods)) at any time. Every call is bounded by the controller's deadline and
/// may be repeated after an error, so each must be idempotent. A call's future is never dropped before
/// its deadline, unless the controller itself is dropped.
///
/// A provider owns what a pod *does*: restarts, probes, back-off, hooks, the order of containers. The
/// controller owns when a pod begins and when it has to end.
pub trait Provider: Send + Sync + 'static {
    /// Realises the pod. What it refers to (ConfigMaps, Secrets, fields) is already literal.
    ///
    /// A provider that will never run this pod can say so in two ways: [`ProviderError::Invalid`]
    /// leaves the pod waiting until its spec changes; `Ok` and a status with phase `Failed` is the end
    /// of it, so that its controller makes another one.
    ///
    /// # Errors
    /// See [`ProviderError`]; the controller tries again with a back-off and never gives up.
    fn create_pod(&self, pod: &Pod) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Takes over a pod that it runs and of which something changed that may change: labels,
    /// annotations, images, `activeDeadlineSeconds`, tolerations, resources, ephemeral containers.
    ///
    /// # Errors
    /// As for [`create_pod`](Self::create_pod).
    fn update_pod(&self, pod: &Pod) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Begins to end the pod, or shortens the grace of an end that is under way. Returns as soon as
    /// that is asked for; that all containers have ended is told by the pod's status.
    ///
    /// `grace` is what is left of the pod's grace; zero means at once. Asked again with less grace when
    /// somebody shortened it, and with zero when the grace is over and the pod has not ended.
    ///
    /// # Errors
    /// [`ProviderError::NotFound`] counts as done; everything else is tried again.
    fn delete_pod(
        &self,
        pod: &Pod,
        grace: Duration,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// The pod as it was given to the provider, with its status now. `None`: unknown.
    ///
    /// # Errors
    /// The provider does not know at the moment; that is never taken for "unknown pod".
    fn get_pod(
        &self,
        uid: &PodUid,
    ) -> impl Future<Output = Result<Option<ProvidedPod>, ProviderError>> + Send;

    /// All pods that the provider runs for this node and that came from the API.
    ///
    /// # Errors
    /// The provider does not know at the moment; nothing is torn down then.
    fn list_pods(&self) -> impl Future<Output = Result<Vec<ProvidedPod>, ProviderError>> + Send;

    /// Forgets a pod whose API object is gone and whose containers have ended. Until then it has to be
    /// listed, so that its last status can be asked for.
    fn forget_pod(&self, uid: &PodUid) -> impl Future<Output = ()> + Send {
        let _ = uid;
        async {}
    }
}

/// A provider that says by itself when something changed. One that cannot is wrapped in [`Polled`].
pub trait Notify: Provider {
    /// UIDs of pods whose status changed. Asked for once, before any other call; what happens before
    /// somebody listens is found by [`Provider::list_pods`]. [`changes`] makes such a channel.
    fn notifications(&self) -> Changes;

    /// What has to be done so that changes are noticed. The controller runs it until `cancel`; it must not
    /// end before.
    fn drive(&self, cancel: CancellationToken) -> impl Future<Output = ()> + Send {
        async move { cancel.cancelled().await }
    }
}

impl<P: Provider> Provider for Arc<P> {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        P::create_pod(self, pod).await
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        P::update_pod(self, pod).await
    }

    async fn delete_pod(&self, pod: &Pod, grace: Duration) -> Result<(), ProviderError> {
        P::delete_pod(self, pod, grace).await
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        P::get_pod(self, uid).await
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        P::list_pods(self).await
    }

    async fn forget_pod(&self, uid: &PodUid) {
        P::forget_pod(self, uid).await;
    }
}

/// A pod as its provider knows it.
#[derive(Clone, Debug)]
pub struct ProvidedPod {
    /// The pod as it was created or last updated. A provider that wants it to go sets
    /// `metadata.deletionTimestamp` and `deletionGracePeriodSeconds` here; the API is asked for it then.
    pub pod: Pod,
    /// Its status now. The same object as long as nothing changed.
    pub status: Arc<api::PodStatus>,
    /// Nothing of it runs, and nothing will: `status` is its last word.
    pub ended: bool,
}

/// Why a provider could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// There is no such pod.
    #[error("the provider has no such pod")]
    NotFound,
    /// The pod asks for something that this provider does not do; trying again will not help until
    /// its spec changes.
    #[error("{field}: {why}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// The provider cannot do anything at the moment.
    #[error("{what}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// When to try again; `None` leaves it to the back-off.
        after: Option<Duration>,
    },
    /// Anything else.
    #[error("{what}")]
    Failed {
        /// What was attempted.
        what: String,
        /// What came back.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
}
