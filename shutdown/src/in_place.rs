//! Which pods stay bound to the node while it reboots, and start again on it.

use std::collections::BTreeMap;

use winddown_shared::{OnReboot, Pod, ShutdownKind, StatusOverride};

#[cfg(test)]
mod tests;

/// What a pod's `Ready` condition says meanwhile.
const REASON: &str = "NodeReboot";
const MESSAGE: &str = "The node reboots; the pod stays on it and starts again.";

/// The namespaces whose pods may stay while the node reboots, and whether they may run on through a soft-reboot. None by
/// default.
pub type InPlacePolicy = BTreeMap<String, bool>;

/// Whether `pod` may stay and starts again when the node is back, however it goes down. The pod has to ask, its
/// namespace has to be one of the `policy`, and its containers have to be such as are started whatever their exit code:
/// with another restart policy a pod that was cut short would count as done, or as failed.
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

/// Whether `pod` may run on through a soft-reboot, if its runtime can do that.
pub fn may_survive(pod: &Pod, policy: &InPlacePolicy) -> bool {
    OnReboot::of(pod) == Some(OnReboot::Survive)
        && policy.get(&**pod.namespace()) == Some(&true)
        && may_stay(pod, policy)
}

/// Whether a node that goes down in this way comes back by itself. Where that was not said, or the node is lost by a
/// notice (`noticed`), it does not.
pub(crate) fn comes_back(kind: ShutdownKind, noticed: bool) -> bool {
    match kind {
        ShutdownKind::Reboot | ShutdownKind::Kexec | ShutdownKind::SoftReboot => !noticed,
        ShutdownKind::Unknown | ShutdownKind::PowerOff | ShutdownKind::Halt => false,
    }
}

/// What the status of a pod says that stays.
pub(crate) fn status_of_staying() -> StatusOverride {
    StatusOverride::staying(REASON, MESSAGE)
}
