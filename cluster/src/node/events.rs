//! Kubernetes Events about the node, with the kubelet's texts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use winddown_shared::PressureCondition;

use super::conditions::find;
use super::cordon::is_unschedulable;
use crate::events::{EventDraft, EventKind, NodeRef, Subject};

/// The event that the agent has started to manage the node.
pub(super) fn starting(name: &Arc<str>) -> EventDraft {
    normal(name, "Starting", "Starting kubelet.")
}

/// Returns the changes between two states of the node. Of the conditions only those that this node
/// `wanted` count: other writers report their own.
pub(super) fn changes(
    name: &Arc<str>,
    before: &Node,
    after: &Node,
    wanted: &[NodeCondition],
) -> Vec<EventDraft> {
    let mut reasons = Vec::new();
    for (kind, on, off) in conditions() {
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
    let status_is = reasons
        .into_iter()
        .map(|reason| normal(name, reason, &format!("Node {name} status is now: {reason}")));
    rebooted(name, before, after).into_iter().chain(status_is).collect()
}

/// Each condition, and the reasons of the events when it turns true and when it turns false.
fn conditions() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let pressure = PressureCondition::ALL
        .into_iter()
        .map(|one| (one.as_str(), one.text(true).event, one.text(false).event));
    pressure.chain([("Ready", "NodeReady", "NodeNotReady")])
}

fn turned(kind: &str, before: &Node, after: &Node) -> Option<bool> {
    let is = condition(after, kind)?.status.as_str();
    let was = condition(before, kind).map(|condition| condition.status.as_str());
    // A node that starts as not ready gets no event, as with the kubelet.
    let first_ready = kind == "Ready" && was.is_none() && is != "True";
    (was != Some(is) && !first_ready).then_some(is == "True")
}

fn rebooted(name: &Arc<str>, before: &Node, after: &Node) -> Option<EventDraft> {
    let (was, is) = (boot(before)?, boot(after)?);
    (!was.is_empty() && was != is).then(|| {
        let message = format!("Node {name} has been rebooted, boot id: {is}");
        EventDraft { kind: EventKind::Warning, ..normal(name, "Rebooted", &message) }
    })
}

fn normal(name: &Arc<str>, reason: &'static str, message: &str) -> EventDraft {
    let about = Subject::node(&NodeRef::new(Arc::clone(name)));
    EventDraft::normal(about, reason, message).decided()
}

fn boot(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.boot_id.as_str())
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    find(node.status.as_ref()?.conditions.as_deref()?, kind)
}
