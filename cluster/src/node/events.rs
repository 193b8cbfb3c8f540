//! What happened to the node, as input for Kubernetes Events.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition};

use super::conditions::find;
use super::cordon::is_unschedulable;

/// Takes events about the node. Must not block.
pub trait NodeEvents: Send + Sync + 'static {
    /// Takes one event.
    fn node_event(&self, event: NodeEvent);
}

/// Drops all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNodeEvents;

/// Something that happened to the node, in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// Whether it is a `Warning`; else it is `Normal`.
    pub warning: bool,
    /// The reason: `NodeReady`, `NodeHasDiskPressure`, …
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Which node.
    pub node: NodeRef,
}

/// Names a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`, once the node is registered.
    pub uid: Option<Arc<str>>,
}

/// The agent has begun to look after the node.
pub(super) fn starting(node: NodeRef) -> NodeEvent {
    NodeEvent { warning: false, reason: "Starting", message: "Starting kubelet.".to_owned(), node }
}

/// The changes between two states of the node. Among the conditions only those this node `wanted`:
/// other writers report their own.
pub(super) fn changes(
    name: &Arc<str>,
    before: &Node,
    after: &Node,
    wanted: &[NodeCondition],
) -> Vec<NodeEvent> {
    let node = NodeRef { name: name.clone(), uid: after.metadata.uid.as_deref().map(Into::into) };
    let mut reasons = Vec::new();
    for (kind, on, off) in CONDITIONS {
        if let Some(is_on) = turned(kind, before, after)
            && find(wanted, kind).is_some_and(|want| (want.status == "True") == is_on)
        {
            reasons.push(if is_on { on } else { off });
        }
    }
    match (is_unschedulable(before), is_unschedulable(after)) {
        (false, true) => reasons.push("NodeNotSchedulable"),
        (true, false) => reasons.push("NodeSchedulable"),
        _ => {}
    }
    let status_is = reasons.into_iter().map(|reason| NodeEvent {
        warning: false,
        reason,
        message: format!("Node {name} status is now: {reason}"),
        node: node.clone(),
    });
    rebooted(before, after, &node).into_iter().chain(status_is).collect()
}

/// Condition, and the reasons of the events when it turns true and when it turns false.
const CONDITIONS: [(&str, &str, &str); 4] = [
    ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
    ("Ready", "NodeReady", "NodeNotReady"),
];

fn turned(kind: &str, before: &Node, after: &Node) -> Option<bool> {
    let is = condition(after, kind)?.status.as_str();
    let was = condition(before, kind).map(|condition| condition.status.as_str());
    // The kubelet sends no event for the first readiness.
    let first_ready = kind == "Ready" && was.is_none() && is != "True";
    (was != Some(is) && !first_ready).then_some(is == "True")
}

fn rebooted(before: &Node, after: &Node, node: &NodeRef) -> Option<NodeEvent> {
    let (was, is) = (boot(before)?, boot(after)?);
    (!was.is_empty() && was != is).then(|| NodeEvent {
        warning: true,
        reason: "Rebooted",
        message: format!("Node {} has been rebooted, boot id: {is}", node.name),
        node: node.clone(),
    })
}

fn boot(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.boot_id.as_str())
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    find(node.status.as_ref()?.conditions.as_deref()?, kind)
}

// === impl NoNodeEvents ===

impl NodeEvents for NoNodeEvents {
    fn node_event(&self, _: NodeEvent) {}
}

impl<E: NodeEvents + ?Sized> NodeEvents for Arc<E> {
    fn node_event(&self, event: NodeEvent) {
        (**self).node_event(event);
    }
}
