//! Requests to the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::{ListParams, PostParams};
use winddown_shared::PodRef;

use super::eviction_requests::{self, Responding};

use winddown_api_client::list_in_pages;
use winddown_api_client::node_pods::{KubePods, PodApi, PodStream, RefusedRequest};
use winddown_api_client::refusal::Refusal;

/// The operations on the API server's pods that stopping them requires.
pub(crate) trait EndPods: AskResponders {
    /// Lists the pods of this node and then watches them.
    fn watch(&self) -> PodStream;

    /// The UID of this node's object.
    fn node_uid(&self) -> impl Future<Output = Result<String, RefusedRequest>> + Send;

    /// Asks for something that the API server answers from memory, to anyone: whether it answers at all.
    fn probe(&self) -> impl Future<Output = Result<(), RefusedRequest>> + Send;

    /// The disruption budgets of all namespaces.
    fn budgets(
        &self,
    ) -> impl Future<Output = Result<Vec<PodDisruptionBudget>, RefusedRequest>> + Send;

    /// Deletes the pod with this UID and grace period, unless a disruption budget forbids it.
    fn evict(
        &self,
        pod: &PodRef,
        grace: Duration,
    ) -> impl Future<Output = Result<(), RefusedRequest>> + Send;

    /// Deletes the pod with this UID and grace period.
    fn delete(
        &self,
        pod: &PodRef,
        grace: Duration,
    ) -> impl Future<Output = Result<(), RefusedRequest>> + Send;
}

/// The requests to a pod's responders (KEP-4563).
pub(crate) trait AskResponders: Send + Sync + 'static {
    /// Whether the API server serves `EvictionRequest` (KEP-4563), according to its discovery.
    fn serves_eviction_requests(&self)
    -> impl Future<Output = Result<bool, RefusedRequest>> + Send;

    /// Asks the pod's responders to stop it. An existing request stays.
    fn request_eviction(
        &self,
        pod: &PodRef,
    ) -> impl Future<Output = Result<(), RefusedRequest>> + Send;

    /// The state of that request.
    fn responding(
        &self,
        pod: &PodRef,
    ) -> impl Future<Output = Result<Responding, RefusedRequest>> + Send;
}

/// The pods of one node, accessed through a client.
pub(crate) struct NodePods {
    client: kube::Client,
    node: String,
    pods: KubePods,
}

// === impl NodePods ===

impl NodePods {
    pub(crate) fn new(client: kube::Client, node: String) -> Self {
        Self { pods: KubePods::new(client.clone(), node.clone()), client, node }
    }
}

impl EndPods for NodePods {
    fn watch(&self) -> PodStream {
        self.pods.watch()
    }

    async fn node_uid(&self) -> Result<String, RefusedRequest> {
        let nodes: Api<api::Node> = Api::all(self.client.clone());
        let found = nodes.get_metadata(&self.node).await;
        let found = found.map_err(|error| RefusedRequest::of("read this node's object", error))?;
        Ok(found.metadata.uid.unwrap_or_default())
    }

    async fn probe(&self) -> Result<(), RefusedRequest> {
        let version = self.client.apiserver_version().await;
        version.map(drop).map_err(|error| RefusedRequest::of("ask for the version", error))
    }

    async fn budgets(&self) -> Result<Vec<PodDisruptionBudget>, RefusedRequest> {
        let budgets: Api<PodDisruptionBudget> = Api::all(self.client.clone());
        let listed = list_in_pages(&budgets, ListParams::default()).await;
        listed.map_err(|error| RefusedRequest::of("list the budgets", error))
    }

    async fn evict(&self, pod: &PodRef, grace: Duration) -> Result<(), RefusedRequest> {
        // kube's own `evict` serialises the options under a name that no API server reads (`delete_options`): the grace
        // period and the precondition would be lost, and a new pod of the same name evicted.
        let eviction = Eviction {
            metadata: ObjectMeta { name: Some(pod.name.to_string()), ..ObjectMeta::default() },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: i64::try_from(grace.as_secs()).ok(),
                preconditions: Some(Preconditions {
                    uid: Some(pod.uid.as_str().to_owned()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            }),
        };
        let pods: Api<api::Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let params = PostParams::default();
        let result: Result<serde_json::Value, _> =
            pods.create_subresource("eviction", &pod.name, &params, &eviction).await;
        result.map(drop).map_err(|error| RefusedRequest::of("evict the pod", error))
    }

    async fn delete(&self, pod: &PodRef, grace: Duration) -> Result<(), RefusedRequest> {
        self.pods.delete(pod, grace).await
    }
}

impl AskResponders for NodePods {
    async fn serves_eviction_requests(&self) -> Result<bool, RefusedRequest> {
        let served = eviction_requests::served(&self.client).await;
        served.map_err(|error| RefusedRequest::of("discover eviction requests", error))
    }

    async fn request_eviction(&self, pod: &PodRef) -> Result<(), RefusedRequest> {
        let requests = eviction_requests::of(&self.client, &pod.namespace);
        let request = eviction_requests::request(pod);
        match requests.create(&PostParams::default(), &request).await {
            Err(error) if Refusal::of(&error) == Refusal::AlreadyExists => Ok(()),
            result => result
                .map(drop)
                .map_err(|error| RefusedRequest::of("request the pod's eviction", error)),
        }
    }

    async fn responding(&self, pod: &PodRef) -> Result<Responding, RefusedRequest> {
        let requests = eviction_requests::of(&self.client, &pod.namespace);
        let found = requests.get(&eviction_requests::name(pod)).await;
        found
            .map(|request| Responding::of(&request.data))
            .map_err(|error| RefusedRequest::of("read the request for the pod's eviction", error))
    }
}
