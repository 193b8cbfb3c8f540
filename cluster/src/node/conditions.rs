//! The node's conditions, with the kubelet's texts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use winddown_shared::PressureCondition;

/// The facts that determine the node's conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Why the node cannot run pods, in the order of the message; empty if it can.
    pub not_ready: Vec<Arc<str>>,
    /// Whether the node is going down.
    pub shutting_down: bool,
    /// Whether the node's pods are being terminated while it stays up.
    pub draining: DrainingNode,
    /// The pressure conditions that hold.
    pub pressure: Vec<PressureCondition>,
}

/// An operator's drain of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainingNode {
    /// There is no drain.
    #[default]
    No,
    /// Pods are being terminated.
    InProgress,
    /// The pods that had to terminate have terminated, and the node is kept empty.
    Done,
}

/// The condition that shows whether the node runs pods.
pub const READY: &str = "Ready";
/// A graceful shutdown is under way (KEP-5683).
pub const SHUTDOWN_IN_PROGRESS: &str = "GracefulNodeShutdownInProgress";
/// The node's pods are being terminated (KEP-5683).
pub const DRAIN_IN_PROGRESS: &str = "DrainInProgress";
/// The node's pods have been terminated (KEP-5683).
pub const DRAINED: &str = "Drained";

/// Every pod terminated before the node went down, and nothing stayed mounted: its volumes can be
/// attached elsewhere immediately. False while the node is up.
pub const CLEAN_SHUTDOWN: &str = "winddown.dev/CleanShutdown";

/// The reason that KEP-6249 gives to both conditions of a shutdown.
const NODE_SHUTDOWN: &str = "NodeShutdown";
/// The reason of a drain that an operator requested from this agent.
const NODE_DRAIN: &str = "NodeDrain";
/// What the node lifecycle controller writes over the conditions of a node that it lost (KEP-6249).
const UNREACHABLE: &str = "KubeletUnreachable";

/// The conditions of a Node object.
pub(super) fn of(node: &Node) -> &[NodeCondition] {
    let status = node.status.as_ref();
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// Returns the desired conditions, without times. `server` has the current ones: lifecycle
/// conditions are written only when they apply, and those of other writers stay.
pub(super) fn wanted(health: &NodeHealth, server: &[NodeCondition]) -> Vec<NodeCondition> {
    let of = |kind: PressureCondition| pressure(kind, health.pressure.contains(&kind));
    let mut wanted: Vec<NodeCondition> = PressureCondition::ALL.into_iter().map(of).collect();
    wanted.extend(lifecycle(health, server));
    wanted.push(ready(health));
    wanted
}

/// Returns the lifecycle conditions among them.
pub(super) fn lifecycle(health: &NodeHealth, server: &[NodeCondition]) -> Vec<NodeCondition> {
    let all = [shutdown(health, server), drain(health, server), drained(health, server)];
    all.into_iter().flatten().collect()
}

/// Whether the server has the same conditions, ignoring times.
pub(super) fn agree(wanted: &[NodeCondition], server: &[NodeCondition]) -> bool {
    wanted.iter().all(|want| find(server, &want.type_).is_some_and(|has| same_words(want, has)))
}

/// Fills in the times: the heartbeat is now, and the transition time changes only with the status.
pub(super) fn stamp(
    mut wanted: Vec<NodeCondition>,
    server: &[NodeCondition],
    now: &Time,
) -> Vec<NodeCondition> {
    for want in &mut wanted {
        let before = find(server, &want.type_).filter(|has| has.status == want.status);
        let since = before.and_then(|has| has.last_transition_time.clone());
        want.last_transition_time = Some(since.unwrap_or_else(|| now.clone()));
        want.last_heartbeat_time = Some(now.clone());
    }
    wanted
}

/// The condition of a type.
pub(super) fn find<'a>(conditions: &'a [NodeCondition], kind: &str) -> Option<&'a NodeCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Joins several reasons into one message, as the kubelet's library joins errors: one stands alone,
/// several become a list in brackets, without duplicates.
pub(super) fn joined(reasons: &[Arc<str>]) -> String {
    let mut once: Vec<&str> = Vec::with_capacity(reasons.len());
    for reason in reasons {
        if !once.contains(&&**reason) {
            once.push(reason);
        }
    }
    match once[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", once.join(", ")),
    }
}

fn ready(health: &NodeHealth) -> NodeCondition {
    let mut reasons = health.not_ready.clone();
    if health.shutting_down {
        reasons.push("node is shutting down".into());
    }
    if reasons.is_empty() {
        return condition(READY, true, "KubeletReady", "kubelet is posting ready status");
    }
    condition(READY, false, "KubeletNotReady", &joined(&reasons))
}

fn pressure(kind: PressureCondition, holds: bool) -> NodeCondition {
    let text = kind.text(holds);
    condition(kind.as_str(), holds, text.reason, text.message)
}

fn shutdown(health: &NodeHealth, server: &[NodeCondition]) -> Option<NodeCondition> {
    if health.shutting_down {
        let message = "Kubelet received a shutdown signal and is terminating pods";
        return Some(condition(SHUTDOWN_IN_PROGRESS, true, NODE_SHUTDOWN, message));
    }
    find(server, SHUTDOWN_IN_PROGRESS)?;
    Some(condition(SHUTDOWN_IN_PROGRESS, false, NODE_SHUTDOWN, "No shutdown is in progress"))
}

fn drain(health: &NodeHealth, server: &[NodeCondition]) -> Option<NodeCondition> {
    let has = find(server, DRAIN_IN_PROGRESS);
    let draining = health.shutting_down || health.draining == DrainingNode::InProgress;
    if draining && has.is_some_and(|has| has.status == "True" && !is_ours(has)) {
        // Another party drains this node as well, and will report when that is over. Readers
        // consider only the type and the status.
        return None;
    }
    if health.shutting_down {
        let message = "Graceful node shutdown is draining pods on this node";
        return Some(condition(DRAIN_IN_PROGRESS, true, NODE_SHUTDOWN, message));
    }
    if draining {
        let message = "The pods of this node are being terminated";
        return Some(condition(DRAIN_IN_PROGRESS, true, NODE_DRAIN, message));
    }
    let has = has.filter(|has| is_ours(has))?;
    let reason = if has.reason.as_deref() == Some(NODE_DRAIN) { NODE_DRAIN } else { NODE_SHUTDOWN };
    Some(condition(DRAIN_IN_PROGRESS, false, reason, "No drain is in progress"))
}

fn drained(health: &NodeHealth, server: &[NodeCondition]) -> Option<NodeCondition> {
    if health.draining == DrainingNode::Done {
        let message = "The pods of this node have been terminated";
        return Some(condition(DRAINED, true, NODE_DRAIN, message));
    }
    find(server, DRAINED).filter(|has| is_ours(has))?;
    let (reason, message) = if health.shutting_down {
        (NODE_SHUTDOWN, "The node is shutting down and admits no pods")
    } else if health.draining == DrainingNode::InProgress {
        (NODE_DRAIN, "The pods of this node are being terminated; it admits none")
    } else {
        (NODE_DRAIN, "The node admits pods")
    };
    Some(condition(DRAINED, false, reason, message))
}

/// Whether this agent wrote the condition. Administrators write lifecycle conditions, too
/// (KEP-5683), so only those with one of this agent's reasons are cleared.
fn is_ours(condition: &NodeCondition) -> bool {
    matches!(condition.reason.as_deref(), Some(NODE_SHUTDOWN | NODE_DRAIN | UNREACHABLE))
}

fn same_words(want: &NodeCondition, has: &NodeCondition) -> bool {
    want.status == has.status && want.reason == has.reason && want.message == has.message
}

/// A condition of this type that is true or false, without times.
pub fn condition(kind: &str, on: bool, reason: &str, message: &str) -> NodeCondition {
    NodeCondition {
        type_: kind.to_owned(),
        status: if on { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..NodeCondition::default()
    }
}
