//! What is asked of the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Api;
use kube::api::{ListParams, PostParams};
use winddown_shared::PodLabel;

use winddown_api_client::node_pods::{KubePods, PodApi, PodStream, Refused};

/// The API server's pods, as far as ending them requires.
pub(crate) trait EndPods: Send + Sync + 'static {
    /// Lists the pods of this node and then watches them.
    fn watch(&self) -> PodStream;

    /// The disruption budgets of all namespaces.
    fn budgets(&self) -> impl Future<Output = Result<Vec<PodDisruptionBudget>, Refused>> + Send;

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
