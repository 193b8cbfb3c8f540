//! The facts about this machine in the Node object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeFeatures, NodeRuntimeHandler, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::conditions;
use super::managed_keys::{LAST_APPLIED, ManagedKeys, address_key, is_reserved};

/// Facts about this machine that the Node object shows. Other fields are not touched.
///
/// A key that earlier facts had and these lack is removed from the Node object; everything that
/// others wrote stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// This agent's `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// This agent's `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`, set only when the node is registered: who they wait for takes them off.
    pub taints: Vec<Taint>,
    /// `spec.providerID`, set only when the node is registered.
    pub provider_id: Option<String>,
    /// This agent's part of `status.addresses`. If there are none, the list stays as it is.
    pub addresses: Vec<NodeAddress>,
    /// This agent's part of `status.capacity`.
    pub capacity: BTreeMap<String, Quantity>,
    /// This agent's part of `status.allocatable`.
    pub allocatable: BTreeMap<String, Quantity>,
    /// `status.nodeInfo`: kernel, operating system, runtime, boot.
    pub info: NodeSystemInfo,
    /// The port of the node's own API, if it has one.
    pub port: Option<i32>,
    /// `status.images`, if known: at most as many as the node wants to publish.
    pub images: Vec<ContainerImage>,
    /// `status.features`.
    pub features: Option<NodeFeatures>,
    /// `status.runtimeHandlers`.
    pub runtime_handlers: Vec<NodeRuntimeHandler>,
    /// `status.declaredFeatures`, in order: API servers rely on them from 1.36 on.
    pub declared_features: Vec<String>,
    /// Further conditions of this node, by type; their times are filled in. Does not include those
    /// of [`NodeHealth`](super::NodeHealth).
    pub conditions: Vec<NodeCondition>,
}

/// Resources without which a node is not ready, as in the kubelet.
const REQUIRED: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

impl NodeFacts {
    /// Returns the Node object to register, with these facts and `wanted` as its conditions.
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

    /// The keys of the Node object that these facts manage.
    pub(super) fn claims(&self) -> ManagedKeys {
        ManagedKeys {
            labels: self.labels.keys().cloned().collect(),
            annotations: self
                .annotations
                .keys()
                .filter(|name| !is_reserved(name))
                .cloned()
                .collect(),
            capacity: self.capacity.keys().cloned().collect(),
            allocatable: self.allocatable.keys().cloned().collect(),
            conditions: self.conditions.iter().map(|condition| condition.type_.clone()).collect(),
            addresses: self.addresses.iter().map(address_key).collect(),
        }
    }

    /// `status.daemonEndpoints`.
    pub(super) fn daemon_endpoints(&self) -> Option<NodeDaemonEndpoints> {
        let port = self.port?;
        Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port }) })
    }

    /// The kubelet's message about required resources that the capacity lacks.
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
