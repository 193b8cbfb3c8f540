//! What a pod asks for while its node reboots.

use crate::Pod;

/// A pod says by this annotation what becomes of it while its node reboots.
pub const ON_REBOOT_ANNOTATION: &str = "winddown.dev/on-reboot";

/// Its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReboot {
    /// `restart`: the pod stays on the node, and starts again on it.
    Restart,
    /// `survive`: it runs on through a soft-reboot, and starts again after any other.
    Survive,
}

impl OnReboot {
    /// What `pod` asks for; none if it does not ask, or for something unknown.
    pub fn of(pod: &Pod) -> Option<Self> {
        match pod.metadata.annotations.as_ref()?.get(ON_REBOOT_ANNOTATION)?.as_str() {
            "restart" => Some(Self::Restart),
            "survive" => Some(Self::Survive),
            _ => None,
        }
    }
}
