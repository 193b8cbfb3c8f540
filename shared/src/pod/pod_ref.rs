//! The identity of a pod.

use std::fmt;
use std::sync::Arc;

use super::PodUid;

/// The identity of a pod in events and errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodRef {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: PodUid,
}

impl PodRef {
    /// The pod as the kubelet's messages name it: `name_namespace(uid)`.
    pub fn kubelet_title(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
