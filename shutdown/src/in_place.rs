//! Decides which pods stay bound to the node while it reboots, and start again on it.

use std::collections::BTreeMap;

use winddown_shared::{OnReboot, Pod, ShutdownKind, StatusOverride};

#[cfg(test)]
mod tests;

/// The reason and message of a pod's `Ready` condition while the node reboots.
const REASON: &str = "NodeReboot";
const MESSAGE: &str = "The node reboots; the pod stays on it and starts again.";

/// The namespaces whose pods may stay while the node reboots, and whether they may keep running through a soft
/// reboot. Empty by default.
pub type InPlacePolicy = BTreeMap<String, bool>;

/// Whether `pod` may stay on the node, and start again when the node is back, however it goes down. The pod has to ask
/// for it, its namespace has to be in `policy`, and the restart policy of all of its containers has to be `Always`:
/// otherwise a pod that was interrupted would count as succeeded or failed.
pub fn may_stay(pod: &Pod, policy: &InPlacePolicy) -> bool {
    let restarts = pod.spec.as_ref().is_some_and(|spec| {
        let regular = spec.containers.iter();
        let own = regular.filter_map(|container| container.restart_policy.as_deref());
        let pods = spec.restart_policy.as_deref().unwrap_or("Always");
        own.chain([pods]).all(|policy| policy == "Always")
    });
    OnReboot::of(pod).is_some()
        && restarts
        && pod.metadata.deletion_timestamp.is_none()
        && policy.contains_key(&**pod.namespace())
}

/// Whether `pod` may keep running through a soft reboot, if its runtime supports that.
pub fn may_survive(pod: &Pod, policy: &InPlacePolicy) -> bool {
    OnReboot::of(pod) == Some(OnReboot::Survive)
        && policy.get(&**pod.namespace()) == Some(&true)
        && may_stay(pod, policy)
}

/// Whether a node that goes down in this way comes back by itself. It does not if the way is unknown, or if a notice
/// says that the node is lost (`noticed`).
pub(crate) fn comes_back(kind: ShutdownKind, noticed: bool) -> bool {
    match kind {
        ShutdownKind::Reboot | ShutdownKind::Kexec | ShutdownKind::SoftReboot => !noticed,
        ShutdownKind::Unknown | ShutdownKind::PowerOff | ShutdownKind::Halt => false,
    }
}

pub(crate) fn status_of_staying() -> StatusOverride {
    StatusOverride::staying(REASON, MESSAGE)
}
