//! What is asked of the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::{ListParams, PostParams};
use winddown_shared::PodLabel;

use super::eviction_requests::{self, Responding};

use winddown_api_client::node_pods::{KubePods, PodApi, PodStream, Refused};
use winddown_api_client::refusal::Refusal;

/// The API server's pods, as far as ending them requires.
pub(crate) trait EndPods: Send + Sync + 'static {
    /// Lists the pods of this node and then watches them.
    fn watch(&self) -> PodStream;

    /// The disruption budgets of all namespaces.
    fn budgets(&self) -> impl Future<Output = Result<Vec<PodDisruptionBudget>, Refused>> + Send;

    /// Whether it serves `EvictionRequest` (KEP-4563), as its discovery says.
    fn serves_eviction_requests(&self) -> impl Future<Output = Result<bool, Refused>> + Send;

    /// Asks the pod's responders to end it. What was asked for before stays.
    fn request_eviction(&self, pod: &PodLabel) -> impl Future<Output = Result<(), Refused>> + Send;

    /// What became of that.
    fn responding(
        &self,
        pod: &PodLabel,
    ) -> impl Future<Output = Result<Responding, Refused>> + Send;

    /// Deletes the pod of this UID with this grace if no disruption budget is against it.
    fn evict(
        &self,
        pod: &PodLabel,
        grace: Duration,
    ) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Deletes the pod of this UID with this grace.
    fn delete(
        &self,
        pod: &PodLabel,
        grace: Duration,
    ) -> impl Future<Output = Result<(), Refused>> + Send;
}

/// The pods of one node, over a client.
pub(crate) struct NodePods {
    client: kube::Client,
    pods: KubePods,
}

// === impl NodePods ===

impl NodePods {
    pub(crate) fn new(client: kube::Client, node: String) -> Self {
        Self { pods: KubePods::new(client.clone(), node), client }
    }
}

impl EndPods for NodePods {
    fn watch(&self) -> PodStream {
        self.pods.watch()
    }

    async fn budgets(&self) -> Result<Vec<PodDisruptionBudget>, Refused> {
        let budgets: Api<PodDisruptionBudget> = Api::all(self.client.clone());
        let listed = budgets.list(&ListParams::default()).await;
        listed.map(|list| list.items).map_err(|error| Refused::of("list the budgets", error))
    }

    async fn serves_eviction_requests(&self) -> Result<bool, Refused> {
        let served = eviction_requests::served(&self.client).await;
        served.map_err(|error| Refused::of("discover eviction requests", error))
    }

    async fn request_eviction(&self, pod: &PodLabel) -> Result<(), Refused> {
        let requests = eviction_requests::of(&self.client, &pod.namespace);
        let request = eviction_requests::request(pod);
        match requests.create(&PostParams::default(), &request).await {
            Err(error) if Refusal::of(&error) == Refusal::AlreadyExists => Ok(()),
            result => {
                result.map(drop).map_err(|error| Refused::of("request the pod's eviction", error))
            }
        }
    }

    async fn responding(&self, pod: &PodLabel) -> Result<Responding, Refused> {
        let requests = eviction_requests::of(&self.client, &pod.namespace);
        let found = requests.get(&eviction_requests::name(pod)).await;
        found
            .map(|request| Responding::of(&request.data))
            .map_err(|error| Refused::of("read the request for the pod's eviction", error))
    }

    async fn evict(&self, pod: &PodLabel, grace: Duration) -> Result<(), Refused> {
        // kube's own `evict` names the options as no API server reads them (`delete_options`): the grace
        // and the precondition would be lost, and a pod of the same name evicted.
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
        result.map(drop).map_err(|error| Refused::of("evict the pod", error))
    }

    async fn delete(&self, pod: &PodLabel, grace: Duration) -> Result<(), Refused> {
        self.pods.delete(pod, grace).await
    }
}
