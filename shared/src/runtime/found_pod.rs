//! A pod as its container runtime describes it.

use std::collections::BTreeMap;

use crate::{PodUid, WallTime};

/// A pod with what its creator, such as a kubelet, recorded in its sandbox and containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPod {
    /// The UID by which the runtime knows the pod.
    pub uid: PodUid,
    /// The pod's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The sandbox's labels: the pod's own, and those of its creator.
    pub labels: BTreeMap<String, String>,
    /// The sandbox's annotations: the same.
    pub annotations: BTreeMap<String, String>,
    /// For each name, the newest container.
    pub containers: Vec<FoundContainer>,
}

/// A container of a [`FoundPod`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundContainer {
    /// Its name in the pod's spec.
    pub name: String,
    /// The runtime's ID of it.
    pub id: String,
    /// The image, as its creator named it.
    pub image: String,
    /// Since when it runs, as far as that is known: when it was created. `None` if it does not run.
    pub running_since: Option<WallTime>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What a stop of the containers of a pod of another agent has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoppedContainers {
    /// Whether any ran.
    pub ran: bool,
    /// Names of the containers whose preStop hook was to run and did not.
    pub without_hook: Vec<String>,
    /// Names of the containers whose preStop hook was to run and had begun before, by an earlier agent.
    pub hook_begun_before: Vec<String>,
    /// Whether the runtime did not answer, and the processes of the containers were signalled without it.
    pub without_runtime: bool,
}
