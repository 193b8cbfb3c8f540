//! The behaviour that a pod requests for a reboot of its node.

use crate::Pod;

/// The annotation by which a pod requests its behaviour during a reboot of its node.
pub const ON_REBOOT_ANNOTATION: &str = "winddown.dev/on-reboot";

/// The values of [`ON_REBOOT_ANNOTATION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnReboot {
    /// `restart`: the pod stays on the node and starts again on it.
    Restart,
    /// `survive`: the pod keeps running through a soft-reboot, and starts again after any other.
    Survive,
}

impl OnReboot {
    /// The behaviour that `pod` requests; `None` if it requests none, or an unknown one.
    pub fn of(pod: &Pod) -> Option<Self> {
        match pod.metadata.annotations.as_ref()?.get(ON_REBOOT_ANNOTATION)?.as_str() {
            "restart" => Some(Self::Restart),
            "survive" => Some(Self::Survive),
            _ => None,
        }
    }
}
