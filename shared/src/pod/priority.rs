//! Source, mirror pods, priority and criticality.

use k8s_openapi::api::core::v1 as api;

use super::Pod;

#[cfg(test)]
mod tests;

/// The priority from which on a pod is critical: that of `system-cluster-critical`.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The priority of `system-node-critical`.
pub const SYSTEM_NODE_CRITICAL_PRIORITY: i32 = SYSTEM_CRITICAL_PRIORITY + 1000;

/// The annotation with the source of a pod: `file`, `http` or `api`.
pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// The annotation that marks the spec of a static pod whose manifest sets the UID, as its source gave it. By it, the next
/// agent sees that the manifest has changed. Without a UID in the manifest, the UID changes.
pub const CONFIG_SPEC_ANNOTATION: &str = "io.winddown.config.spec";
/// The annotation that marks a mirror pod, the API server's copy of a static pod.
pub const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The priority class that makes a critical pod node-critical.
const SYSTEM_NODE_CRITICAL_CLASS: &str = "system-node-critical";
/// The source of pods from the API server.
const API_SOURCE: &str = "api";

impl Pod {
    /// The source of the pod according to its annotation: `file`, `http`, `api`. `None` without the annotation.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        annotation(self, CONFIG_SOURCE_ANNOTATION)
    }

    /// Whether the pod comes from a manifest on this node: its source is not `api`. An empty source
    /// counts, a missing one does not.
    #[must_use]
    pub fn is_static(&self) -> bool {
        is_static(self)
    }

    /// The mark of the spec in its manifest, if that sets the UID ([`CONFIG_SPEC_ANNOTATION`]).
    #[must_use]
    pub fn spec_mark(&self) -> Option<&str> {
        annotation(self, CONFIG_SPEC_ANNOTATION)
    }

    /// Whether this is a mirror pod, the API server's copy of a static pod.
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        is_mirror(self)
    }

    /// `spec.priority`. A static pod has one only if its manifest does.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> Option<i32> {
        self.0.facts.priority
    }

    /// `spec.priority`, 0 when unset.
    #[must_use]
    pub fn priority_or_zero(&self) -> i32 {
        self.priority().unwrap_or(0)
    }

    /// Whether the pod is critical: it is static, a mirror pod, or of [`SYSTEM_CRITICAL_PRIORITY`]
    /// or more. The name of its priority class does not matter.
    #[inline]
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.0.facts.is_critical
    }

    /// Whether the pod is critical and has the class `system-node-critical`.
    #[must_use]
    pub fn is_node_critical(&self) -> bool {
        let class = self.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
        class == Some(SYSTEM_NODE_CRITICAL_CLASS) && self.is_critical()
    }

    /// Whether `victim` may be preempted to make room for this pod: this one is critical and the
    /// victim is not, or both have a priority and this one's is higher.
    ///
    /// Never true of a pod and itself. A critical pod without a priority preempts no critical pod.
    #[inline]
    #[must_use]
    pub fn may_preempt(&self, victim: &Pod) -> bool {
        let outranks = match (self.priority(), victim.priority()) {
            (Some(own), Some(other)) => own > other,
            _ => false,
        };
        outranks || (self.is_critical() && !victim.is_critical())
    }
}

pub(super) fn is_critical(pod: &api::Pod) -> bool {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
        || is_static(pod)
        || is_mirror(pod)
}

fn is_static(pod: &api::Pod) -> bool {
    annotation(pod, CONFIG_SOURCE_ANNOTATION).is_some_and(|source| source != API_SOURCE)
}

fn is_mirror(pod: &api::Pod) -> bool {
    annotation(pod, CONFIG_MIRROR_ANNOTATION).is_some()
}

fn annotation<'a>(pod: &'a api::Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
