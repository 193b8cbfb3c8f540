//! The facts of this machine in the Node object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeFeatures, NodeRuntimeHandler, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::conditions;
use super::managed_keys::{LAST_APPLIED, ManagedKeys, is_reserved, taint_key};

/// Facts of this machine that the Node object tells the cluster. Other fields are not touched.
///
/// A key of an earlier version of the facts that is missing now is removed from the Node object;
/// everything that others wrote stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// `metadata.labels` that are ours.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations` that are ours.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints` that are ours. An API server with the NodeRestriction admission lets a node set
    /// them when it registers, and not later.
    pub taints: Vec<Taint>,
    /// `spec.providerID`, set when the node is registered and not later.
    pub provider_id: Option<String>,
    /// `status.addresses`. When there are any, the whole list is ours.
    pub addresses: Vec<NodeAddress>,
    /// `status.capacity`, as far as it is ours.
    pub capacity: BTreeMap<String, Quantity>,
    /// `status.allocatable`, as far as it is ours.
    pub allocatable: BTreeMap<String, Quantity>,
    /// `status.nodeInfo`: kernel, operating system, runtime, boot.
    pub info: NodeSystemInfo,
    /// The port of the node's own API, where it has one.
    pub port: Option<i32>,
    /// `status.images`, where they are known: at most as many as the node wants to tell.
    pub images: Vec<ContainerImage>,
    /// `status.features`.
    pub features: Option<NodeFeatures>,
    /// `status.runtimeHandlers`.
    pub runtime_handlers: Vec<NodeRuntimeHandler>,
    /// `status.declaredFeatures`, in order: what API servers from 1.36 on rely on.
    pub declared_features: Vec<String>,
    /// Further conditions of this node, by type; their times are filled in. Not those of
    /// [`Health`](super::Health).
    pub conditions: Vec<NodeCondition>,
}

/// Resources without which a node is not ready, as the kubelet has it.
const REQUIRED: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

impl NodeFacts {
    /// The Node object to register: these facts and `wanted` as its conditions.
    #[must_use]
    pub(super) fn to_node(&self, name: &str, wanted: Vec<NodeCondition>, now: &Time) -> Node {
        let mut annotations = self.annotations.clone();
        annotations.insert(LAST_APPLIED.to_owned(), self.claims().to_text());
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(self.labels.clone()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                provider_id: self.provider_id.clone(),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                addresses: some(&self.addresses),
                allocatable: Some(self.allocatable.clone()),
                capacity: Some(self.capacity.clone()),
                conditions: Some(conditions::stamp(wanted, &[], now)),
                daemon_endpoints: self.daemon_endpoints(),
                declared_features: some(&self.declared_features),
                features: self.features.clone(),
                images: some(&self.images),
                node_info: Some(self.info.clone()),
                runtime_handlers: some(&self.runtime_handlers),
                ..NodeStatus::default()
            }),
        }
    }

    /// What of the Node object they claim.
    pub(super) fn claims(&self) -> ManagedKeys {
        ManagedKeys {
            labels: self.labels.keys().cloned().collect(),
            annotations: self
                .annotations
                .keys()
                .filter(|name| !is_reserved(name))
                .cloned()
                .collect(),
            taints: self.taints.iter().map(taint_key).collect(),
            capacity: self.capacity.keys().cloned().collect(),
            allocatable: self.allocatable.keys().cloned().collect(),
            conditions: self.conditions.iter().map(|condition| condition.type_.clone()).collect(),
        }
    }

    /// `status.daemonEndpoints`.
    pub(super) fn daemon_endpoints(&self) -> Option<NodeDaemonEndpoints> {
        let port = self.port?;
        Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port }) })
    }

    /// The kubelet's words for required resources that the capacity lacks.
    pub(super) fn lacking(&self) -> Option<String> {
        let lacking: Vec<_> =
            REQUIRED.into_iter().filter(|name| !self.capacity.contains_key(*name)).collect();
        (!lacking.is_empty())
            .then(|| format!("missing node capacity for resources: {}", lacking.join(", ")))
    }
}

fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}
