//! The node's cordon, and who decided it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The annotation that records that this agent cordoned the node, when and why. To keep the cordon,
/// remove the annotation: the cordon is yours then.
pub const CORDONED_BY: &str = "winddown.dev/cordoned-by";

/// The name under which this agent's writes appear in `metadata.managedFields`.
pub(super) const FIELD_MANAGER: &str = "winddown";

/// Why this agent wants no new pods bound to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CordonReason {
    /// The node is going down.
    Shutdown,
    /// An operator drains the node.
    Drain,
}

/// What the annotation holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The boot in which the node was cordoned.
    pub(super) boot: Arc<str>,
    /// When, as RFC 3339.
    pub(super) since: Arc<str>,
    pub(super) reason: CordonReason,
    /// The cordon was lifted by another party since; the node's state is now theirs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) released: bool,
}

/// What has to be written, on the condition that no other write came in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CordonAction {
    Nothing,
    /// Make the node unschedulable and record that it was us.
    Cordon(Mark),
    /// Make it schedulable again and drop the mark.
    Uncordon,
    /// Leave the node as it is and note that the cordon is no longer ours.
    Release(Mark),
    /// Leave the node as it is and drop the mark.
    Forget,
}

/// Decides the action from the desired cordon and the Node object.
///
/// * A node that is unschedulable without our mark was cordoned by another party, and stays so.
/// * A cordon of ours that another party lifted is not made again for the same reason in the same
///   boot.
/// * Our own cordon is undone when nothing asks for it any more and the node is `ready`, also after a
///   restart or a boot.
pub(super) fn decide(wish: Option<&Mark>, node: &Node, ready: bool) -> CordonAction {
    let unschedulable = is_unschedulable(node);
    let Some(mark) = mark_of(node) else {
        return match wish {
            Some(wish) if !unschedulable => CordonAction::Cordon(wish.clone()),
            _ => CordonAction::Nothing,
        };
    };
    let ours = unschedulable && !mark.released && !is_of_others(node);
    match wish {
        Some(_) if ours => CordonAction::Nothing,
        Some(wish) if wish.is_same(&mark) && mark.released => CordonAction::Nothing,
        Some(wish) if wish.is_same(&mark) => CordonAction::Release(mark),
        // Whatever that mark was about is over: this is another reason to cordon.
        Some(_) if unschedulable => CordonAction::Forget,
        Some(wish) => CordonAction::Cordon(wish.clone()),
        None if ours && ready => CordonAction::Uncordon,
        None if ours => CordonAction::Nothing,
        None => CordonAction::Forget,
    }
}

/// The patch of a step; nothing for [`CordonAction::Nothing`].
pub(super) fn patch(step: &CordonAction, node: &Node) -> Option<Value> {
    let annotation = match step {
        CordonAction::Nothing => return None,
        CordonAction::Cordon(mark) => serde_json::to_string(mark).unwrap_or_default().into(),
        CordonAction::Release(mark) => {
            let released = Mark { released: true, ..mark.clone() };
            serde_json::to_string(&released).unwrap_or_default().into()
        }
        CordonAction::Uncordon | CordonAction::Forget => Value::Null,
    };
    let mut patch = json!({
        "metadata": {
            "uid": node.metadata.uid,
            "resourceVersion": node.metadata.resource_version,
            "annotations": { CORDONED_BY: annotation },
        },
    });
    match step {
        CordonAction::Cordon(_) => patch["spec"] = json!({ "unschedulable": true }),
        CordonAction::Uncordon => patch["spec"] = json!({ "unschedulable": null }),
        _ => {}
    }
    Some(patch)
}

/// `spec.unschedulable`.
pub(super) fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// The mark on the Node object. An unreadable mark is ignored: the cordon stays.
pub(super) fn mark_of(node: &Node) -> Option<Mark> {
    let text = node.metadata.annotations.as_ref()?.get(CORDONED_BY)?;
    serde_json::from_str(text).ok()
}

/// Whether the API server records that another client last changed `spec.unschedulable`. It reveals
/// a cordon that was lifted and made anew while this agent was not running.
fn is_of_others(node: &Node) -> bool {
    let mut owners = node.metadata.managed_fields.iter().flatten().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:spec"].get("f:unschedulable").is_some())
    });
    let mut known = false;
    let ours = owners.any(|entry| {
        known = true;
        entry.manager.as_deref() == Some(FIELD_MANAGER)
    });
    known && !ours
}

// === impl Mark ===

impl Mark {
    /// The same cordon: the same reason in the same boot. An agent that was restarted in between
    /// knows it again by that.
    fn is_same(&self, other: &Self) -> bool {
        self.boot == other.boot && self.reason == other.reason
    }
}
