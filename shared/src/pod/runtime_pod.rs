//! A pod as its runtime knows it.

use std::sync::Arc;
use std::time::Duration;

use super::{Pod, PodLabel, PodUid, Requests};

/// A pod of which the runtime holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimePod {
    /// The UID it was started with.
    pub uid: PodUid,
    /// `metadata.name` it was started with.
    pub name: Arc<str>,
    /// `metadata.namespace` it was started with.
    pub namespace: Arc<str>,
    /// Whether any container runs; otherwise only remains are left.
    pub running: bool,
    /// The grace period in its spec when it was started, if the runtime kept it.
    pub grace: Option<Duration>,
    /// The resources that it requested when it was started, if the runtime kept them.
    pub requests: Option<Requests>,
}

impl RuntimePod {
    /// The running pod that [`Pod::of_runtime`] stands for.
    pub(crate) fn of_stand_in(pod: &Pod) -> Self {
        let PodLabel { namespace, name, uid } = pod.label().clone();
        let (grace, requests) = (pod.own_grace(), pod.kept_requests());
        Self { uid, name, namespace, running: true, grace, requests }
    }

    /// The label that identifies the pod in events and errors.
    pub fn label(&self) -> PodLabel {
        PodLabel {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}
