//! Which pods stay bound to the node while it reboots, and start again on it.

use std::collections::BTreeSet;

use winddown_shared::{Pod, ShutdownKind, StatusOverride};

#[cfg(test)]
mod tests;

/// A pod with the value `restart` asks to stay while its node reboots, and to start again on it.
pub const ON_REBOOT_ANNOTATION: &str = "winddown.dev/on-reboot";

/// Its value.
const RESTART: &str = "restart";

/// What a pod's `Ready` condition says meanwhile.
const REASON: &str = "NodeReboot";
const MESSAGE: &str = "The node reboots; the pod stays on it and starts again.";

/// The namespaces whose pods may stay while the node reboots. None by default.
pub type InPlacePolicy = BTreeSet<String>;

/// Whether `pod` may stay and starts again when the node is back, however it goes down. The pod has to ask, its
/// namespace has to be one of the `policy`, and its containers have to be such as are started whatever their exit code:
/// with another restart policy a pod that was cut short would count as done, or as failed.
pub fn may_stay(pod: &Pod, policy: &InPlacePolicy) -> bool {
    let asked = pod.metadata.annotations.as_ref().and_then(|all| all.get(ON_REBOOT_ANNOTATION));
    let restarts = pod.spec.as_ref().is_some_and(|spec| {
        let regular = spec.containers.iter();
        let own = regular.filter_map(|container| container.restart_policy.as_deref());
        let pods = spec.restart_policy.as_deref().unwrap_or("Always");
        own.chain([pods]).all(|policy| policy == "Always")
    });
    asked.is_some_and(|asked| asked == RESTART)
        && restarts
        && pod.metadata.deletion_timestamp.is_none()
        && policy.contains(&**pod.namespace())
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
    StatusOverride {
        reason: REASON.into(),
        message: MESSAGE.into(),
        disruption_message: None,
        stays: true,
    }
}
