//! What a container is to its pod.

use k8s_openapi::api::core::v1 as api;

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always` (KEP-753): runs alongside the regular ones and stops after them.
    Sidecar,
    /// An ordinary container.
    Regular,
    /// Added to a running pod to debug it (`kubectl debug`): runs once, and nothing depends on it.
    Ephemeral,
}

impl ContainerKind {
    /// The kind of an entry of `spec.initContainers`.
    pub fn of_init(container: &api::Container) -> Self {
        match container.restart_policy.as_deref() {
            Some("Always") => Self::Sidecar,
            _ => Self::Init,
        }
    }
}
