//! The barriers that keep new pods off the node, and who set them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The annotation that records that this agent cordoned the node, when and why. Remove it to keep
/// the cordon, which then counts as yours.
pub const CORDONED_BY: &str = "winddown.dev/cordoned-by";

/// The corresponding annotation for the taint.
pub const TAINTED_BY: &str = "winddown.dev/tainted-by";

/// The key of this agent's `NoSchedule` taint. Pods of a DaemonSet tolerate an unschedulable node,
/// so a cordon does not keep them off.
pub const TAINT: &str = "winddown.dev/cordoned";

const NO_SCHEDULE: &str = "NoSchedule";

/// The name under which winddown's writes appear in `metadata.managedFields`.
pub(super) const FIELD_MANAGER: &str = "winddown";

/// What keeps pods off a node. Each is set, owned and removed separately: an API server may allow only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// `spec.unschedulable`.
    Cordon,
    /// [`TAINT`].
    Taint,
}

/// Why this agent wants no new pods on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CordonReason {
    /// The node is going down.
    Shutdown,
    /// An operator drains the node.
    Drain,
}

/// The content of a barrier's annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The boot in which the barrier was set.
    pub(super) boot: Arc<str>,
    /// When the barrier was set, as RFC 3339.
    pub(super) since: Arc<str>,
    pub(super) reason: CordonReason,
    /// Whether another party has removed it since, and so decides about the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) released: bool,
}

/// What to write, provided that no other write has come in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CordonStep {
    Nothing,
    /// Set the barrier and record that this agent did it.
    Set(Mark),
    /// Remove the barrier and the mark.
    Undo,
    /// Leave the node as it is and record that the barrier is no longer this agent's.
    Release(Mark),
    /// Leave the node as it is and remove the mark.
    Forget,
}

/// Decides the step from the desired state and the Node object.
///
/// * A barrier without this agent's mark belongs to another party, and stays.
/// * A barrier that another party removed is not set again for the same reason in the same boot.
/// * This agent's barrier is removed when there is no reason for it any more and the node is
///   `ready`, also after a restart or a reboot.
pub(super) fn decide(
    barrier: Barrier,
    wanted_mark: Option<&Mark>,
    node: &Node,
    ready: bool,
    field_manager: &str,
) -> CordonStep {
    let is_set = barrier.is_set(node);
    let Some(mark) = barrier.mark_of(node) else {
        return match wanted_mark {
            Some(wanted_mark) if !is_set => CordonStep::Set(wanted_mark.clone()),
            _ => CordonStep::Nothing,
        };
    };
    let ours = is_set && !mark.released && !barrier.is_of_others(node, field_manager);
    match wanted_mark {
        Some(_) if ours => CordonStep::Nothing,
        Some(wanted_mark) if wanted_mark.is_same(&mark) && mark.released => CordonStep::Nothing,
        Some(wanted_mark) if wanted_mark.is_same(&mark) => CordonStep::Release(mark),
        // The reason of that mark is over: this is a new one.
        Some(_) if is_set => CordonStep::Forget,
        Some(wanted_mark) => CordonStep::Set(wanted_mark.clone()),
        None if ours && ready => CordonStep::Undo,
        None if ours => CordonStep::Nothing,
        None => CordonStep::Forget,
    }
}

/// Returns the patch of a step; `None` for [`CordonStep::Nothing`]. It applies only to the version of the
/// node that it was made from, because the API treats taints as one list.
pub(super) fn patch(barrier: Barrier, step: &CordonStep, node: &Node) -> Option<Value> {
    let annotation = match step {
        CordonStep::Nothing => return None,
        CordonStep::Set(mark) => serde_json::to_string(mark).unwrap_or_default().into(),
        CordonStep::Release(mark) => {
            let released = Mark { released: true, ..mark.clone() };
            serde_json::to_string(&released).unwrap_or_default().into()
        }
        CordonStep::Undo | CordonStep::Forget => Value::Null,
    };
    let mut patch = json!({
        "metadata": {
            "uid": node.metadata.uid,
            "resourceVersion": node.metadata.resource_version,
            "annotations": { barrier.annotation(): annotation },
        },
    });
    match step {
        CordonStep::Set(mark) => patch["spec"] = barrier.spec(node, Some(mark.reason)),
        CordonStep::Undo => patch["spec"] = barrier.spec(node, None),
        _ => {}
    }
    Some(patch)
}

/// `spec.unschedulable`.
pub(super) fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_own_taint(taint: &Taint) -> bool {
    taint.key == TAINT && taint.effect == NO_SCHEDULE
}

// === impl Barrier ===

impl Barrier {
    const fn annotation(self) -> &'static str {
        match self {
            Self::Cordon => CORDONED_BY,
            Self::Taint => TAINTED_BY,
        }
    }

    pub(super) fn is_set(self, node: &Node) -> bool {
        match self {
            Self::Cordon => is_unschedulable(node),
            Self::Taint => taints(node).iter().any(is_own_taint),
        }
    }

    /// The mark on the Node object. An unreadable mark is ignored: the barrier stays.
    pub(super) fn mark_of(self, node: &Node) -> Option<Mark> {
        let text = node.metadata.annotations.as_ref()?.get(self.annotation())?;
        serde_json::from_str(text).ok()
    }

    /// Whether the API server records that another client last changed it. This reveals a cordon
    /// that was removed and set again while this agent was not running. All taints are one field
    /// there, whose owner says nothing about this agent's.
    fn is_of_others(self, node: &Node, field_manager: &str) -> bool {
        if self == Self::Taint {
            return false;
        }
        let mut owners = node.metadata.managed_fields.iter().flatten().filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            fields.is_some_and(|fields| fields["f:spec"].get("f:unschedulable").is_some())
        });
        let mut known = false;
        let ours = owners.any(|entry| {
            known = true;
            entry.manager.as_deref() == Some(field_manager)
        });
        known && !ours
    }

    /// The node's `spec` with the barrier set for this reason, or without it.
    fn spec(self, node: &Node, on: Option<CordonReason>) -> Value {
        if self == Self::Cordon {
            return json!({ "unschedulable": on.map(|_| true) });
        }
        let others = taints(node).iter().filter(|taint| !is_own_taint(taint)).cloned();
        let ours = on.map(|reason| Taint {
            key: TAINT.to_owned(),
            value: Some(reason.as_str().to_owned()),
            effect: NO_SCHEDULE.to_owned(),
            time_added: None,
        });
        json!({ "taints": others.chain(ours).collect::<Vec<_>>() })
    }
}

// === impl CordonReason ===

impl CordonReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Drain => "drain",
        }
    }
}

// === impl Mark ===

impl Mark {
    /// Whether both have the same reason in the same boot. A restarted agent recognises its mark by that.
    fn is_same(&self, other: &Self) -> bool {
        self.boot == other.boot && self.reason == other.reason
    }
}
