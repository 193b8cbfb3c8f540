//! The controller's requests to the API server about pods.

use std::time::Duration;

use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1 as api;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::runtime::watcher::{self, Config, Event};
use winddown_shared::PodRef;

use crate::list_and_watch::list_and_watch;
use crate::refusal::{Refusal, is_of_plugin, misses_webhook};
use crate::within::within;

/// The pods of this node and their changes.
pub type PodStream = BoxStream<'static, watcher::Result<Event<api::Pod>>>;

/// The API server's pods, as far as this controller needs them.
pub trait PodApi: Send + Sync + 'static {
    /// Lists the pods of this node and then watches them, as [`list_and_watch`](crate::list_and_watch()) does.
    fn watch(&self) -> PodStream;

    /// Reads the object that has this pod's name now, if there is one.
    fn get(
        &self,
        pod: &PodRef,
    ) -> impl Future<Output = Result<Option<api::Pod>, RefusedRequest>> + Send;

    /// Deletes the object with this UID and grace period, in whole seconds; zero removes it immediately.
    fn delete(
        &self,
        pod: &PodRef,
        grace: Duration,
    ) -> impl Future<Output = Result<(), RefusedRequest>> + Send;
}

/// A request that the API server did not carry out.
#[derive(Debug, thiserror::Error)]
#[error("the API server could not {what}")]
pub struct RefusedRequest {
    /// What was requested.
    pub what: &'static str,
    /// What the error means for the caller.
    pub refusal: Refusal,
    /// The client's error; `None` if there was no answer in time.
    pub source: Option<kube::Error>,
}

/// The pods of one node, accessed through a client.
#[derive(Clone)]
pub struct KubePods {
    client: kube::Client,
    node: String,
}

// === impl KubePods ===

impl KubePods {
    /// The pods that are bound to `node`.
    pub fn new(client: kube::Client, node: String) -> Self {
        Self { client, node }
    }

    fn of(&self, pod: &PodRef) -> Api<api::Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
}

impl PodApi for KubePods {
    fn watch(&self) -> PodStream {
        let config = Config::default().fields(&format!("spec.nodeName={}", self.node));
        list_and_watch(Api::all(self.client.clone()), config)
    }

    async fn get(&self, pod: &PodRef) -> Result<Option<api::Pod>, RefusedRequest> {
        let error = match self.of(pod).get(&pod.name).await {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        match Refusal::of(&error) {
            Refusal::NotFound => return Ok(None),
            // With a node's own credentials only pods that are bound to it can be read, so reading a
            // pod that does not exist is forbidden. Listing what is bound to the node is allowed.
            Refusal::NotAllowed => {}
            _ => return Err(RefusedRequest::of("read the pod", error)),
        }
        let fields = format!("metadata.name={},spec.nodeName={}", pod.name, self.node);
        match self.of(pod).list(&ListParams::default().fields(&fields)).await {
            Ok(list) => Ok(list.items.into_iter().next()),
            Err(error) => Err(RefusedRequest::of("read the pod", error)),
        }
    }

    async fn delete(&self, pod: &PodRef, grace: Duration) -> Result<(), RefusedRequest> {
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let params = DeleteParams::default().grace_period(seconds).preconditions(Preconditions {
            uid: Some(pod.uid.as_str().to_owned()),
            resource_version: None,
        });
        let result = self.of(pod).delete(&pod.name, &params).await;
        result.map(drop).map_err(|error| RefusedRequest::of("delete the pod", error))
    }
}

// === impl RefusedRequest ===

impl RefusedRequest {
    /// The error that `what` was not possible because of `error`.
    pub fn of(what: &'static str, error: kube::Error) -> Self {
        Self { what, refusal: Refusal::of(&error), source: Some(error) }
    }

    /// Whether a policy or a webhook refuses what was requested, and may agree later, or could not be asked.
    pub fn is_denied(&self) -> bool {
        let Some(kube::Error::Api(status)) = &self.source else { return false };
        match self.refusal {
            Refusal::NotAllowed => is_of_plugin(status),
            Refusal::Busy { .. } => misses_webhook(status),
            refusal => refusal == Refusal::Denied,
        }
    }

    /// Waits for the request at most this long, as [`within`] does.
    ///
    /// # Errors
    /// What the request or [`within`] returns.
    pub async fn within<T>(
        limit: Duration,
        what: &'static str,
        request: impl Future<Output = Result<T, Self>>,
    ) -> Result<T, Self> {
        within(limit, request).await.unwrap_or_else(|late| Err(Self::of(what, late)))
    }
}

#[cfg(test)]
mod tests {
    use winddown_apiserver::{ApiServer, Fault};
    use winddown_shared::PodUid;

    use super::*;

    #[tokio::test]
    async fn a_page_of_something_in_front_of_the_server_does_not_mean_that_a_pod_is_gone() {
        let server = ApiServer::in_memory().unwrap();
        let pods = KubePods::new(kube::Client::new(server.service(), "default"), "n1".into());
        let uid = PodUid::new("u1");
        let pod = PodRef { namespace: "default".into(), name: "web".into(), uid };
        assert_eq!(pods.get(&pod).await.unwrap(), None);
        server.fault(Fault::on("get", "pods").status(404).garble());
        assert_eq!(pods.get(&pod).await.unwrap_err().refusal, Refusal::NoAnswer);
    }
}
