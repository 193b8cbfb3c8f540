//! The role of a pod, which decides when it stops unless configured otherwise.

use std::fmt;

use winddown_shared::{Pod, SYSTEM_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY};

mod control_plane;
mod programs;
#[cfg(test)]
mod tests;

/// The role of a pod, in the order in which pods stop.
///
/// | role | pods |
/// |---|---|
/// | `Ordinary` | all other pods |
/// | `System` | system pods: priority 2000000000 and above, or of a DaemonSet |
/// | `Node` | priority 2000001000 and above; system pods on the host's network; static pods without a priority; drivers |
/// | `ControlPlane` | API server, controllers, scheduler, and the proxies before the API server |
/// | `Datastore` | etcd, or what stands for it |
/// | `Unknown` | other pods that only the runtime knows |
///
/// A pod that matches several rows has the last of these roles. Being on the host's network alone does not
/// make a system pod: if containers are processes of the host, every pod is on it.
///
/// The parts of a control plane are known by what they are: their label [`ROLE_LABEL`], the labels that distributions
/// give them, and the names of their programs, images and containers. Only pods that no tenant can make may be parts:
/// static pods of this node and pods in `kube-system`. A static pod of an application (outside of `kube-*` and
/// `openshift-*`, with a priority below 2000000000) and a pod in `kube-system` that is neither critical nor of a
/// DaemonSet are parts by [`ROLE_LABEL`] only. Of a pod that only the runtime knows, namespace and name decide.
///
/// Drivers are pods that other pods' volumes, devices or networks need: pods with the label [`ROLE_LABEL`]
/// and the value `driver` and, if that label is absent, DaemonSet and static pods that mount a host
/// directory in which drivers register, and pods that Longhorn, JuiceFS, Mountpoint for S3, Rook and Mayastor label as
/// their volumes' own. They stop after all other pods of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The workloads that the node exists for.
    Ordinary,
    /// Pods that serve other pods: name service, log shipping.
    System,
    /// Pods that the node itself relies on: network, storage, devices.
    Node,
    /// Pods that the cluster relies on: API server, controllers, scheduler.
    ControlPlane,
    /// Pods that the control plane relies on.
    Datastore,
    /// Pods of unknown purpose: the manifest is gone or cannot be read.
    Unknown,
}

/// The label with which a pod's author says what it is. `driver`: other pods need it for their volumes, devices or
/// networks. `control-plane` and `etcd`: a part of the control plane; only on pods that no tenant can make ([`Role`]).
/// Any other value: none of these, whatever it looks like.
pub const ROLE_LABEL: &str = "winddown.dev/role";

/// The directories in which drivers register, as two consecutive path components: distributions move the folders
/// of the kubelet and of CNI. Directories below them count too.
const OF_DRIVERS: [[&str; 2]; 5] = [
    ["kubelet", "plugins"],
    ["kubelet", "plugins_registry"],
    ["kubelet", "device-plugins"],
    ["cni", "net.d"],
    ["cni", "bin"],
];

/// The labels of pods that serve volumes to others of their node, and mount none of these directories: name, and value
/// unless any counts.
const LABELS_OF_DRIVERS: [(&str, Option<&str>); 7] = [
    // Each block device of a Longhorn volume is a process of the one, each shared volume an NFS server in the other.
    ("longhorn.io/component", Some("instance-manager")),
    ("longhorn.io/component", Some("share-manager")),
    // The FUSE processes of volumes.
    ("app.kubernetes.io/name", Some("juicefs-mount")),
    ("s3.csi.aws.com/mountpoint-version", None),
    ("app", Some("rook-ceph-osd")),
    // Each volume in use on the node is a target in this process of Mayastor; the second name is the older.
    ("app", Some("io-engine")),
    ("app", Some("mayastor")),
];

impl Role {
    /// All roles except `Unknown`, in the order in which pods stop.
    pub const ALL: [Self; 5] =
        [Self::Ordinary, Self::System, Self::Node, Self::ControlPlane, Self::Datastore];

    /// Returns the role of `pod`.
    pub fn of(pod: &Pod) -> Self {
        let role = Self::unless_of_control_plane(pod);
        control_plane::part(pod, role).unwrap_or(role)
    }

    fn unless_of_control_plane(pod: &Pod) -> Self {
        if pod.is_runtime_only() {
            return Self::Unknown;
        }
        let priority = pod.priority();
        if priority.is_some_and(|priority| priority >= SYSTEM_NODE_CRITICAL_PRIORITY)
            || (priority.is_none() && is_static(pod))
            || is_driver(pod)
        {
            return Self::Node;
        }
        let is_system = priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
            || is_of_daemon_set(pod);
        match is_system {
            true if pod.is_on_host_network() => Self::Node,
            true => Self::System,
            false => Self::Ordinary,
        }
    }

    /// The role's name for people, in the plural: `ordinary pods`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary pods",
            Self::System => "system pods",
            Self::Node => "pods of the node itself",
            Self::ControlPlane => "control plane",
            Self::Datastore => "etcd",
            Self::Unknown => "pods without a manifest",
        }
    }

    /// A number that sorts like the roles, for readers that identify groups by priority. It need not be
    /// the priority of any pod.
    pub fn priority(self) -> i32 {
        match self {
            Self::Ordinary => 0,
            Self::System => SYSTEM_CRITICAL_PRIORITY,
            Self::Node => SYSTEM_NODE_CRITICAL_PRIORITY,
            Self::ControlPlane => SYSTEM_NODE_CRITICAL_PRIORITY + 1,
            Self::Datastore => SYSTEM_NODE_CRITICAL_PRIORITY + 2,
            Self::Unknown => i32::MAX,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether other pods need this one for their volumes, devices or networks until they have stopped.
pub fn is_driver(pod: &Pod) -> bool {
    let label = |name: &str| pod.metadata.labels.as_ref()?.get(name);
    if let Some(role) = label(ROLE_LABEL) {
        return role == "driver";
    }
    let is_labelled = |(name, value): &(&str, Option<&str>)| {
        label(name).is_some_and(|is| value.is_none_or(|value| is == value))
    };
    if LABELS_OF_DRIVERS.iter().any(is_labelled) {
        return true;
    }
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut paths = volumes.iter().filter_map(|volume| volume.host_path.as_ref());
    // Other kinds of pods may mount these directories as well, but they come and go.
    (is_of_daemon_set(pod) || is_static(pod)) && paths.any(|host| is_of_drivers(&host.path))
}

fn is_of_drivers(path: &str) -> bool {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    names.windows(2).any(|pair| OF_DRIVERS.iter().any(|of| of == pair))
}

fn is_static(pod: &Pod) -> bool {
    pod.is_static() || pod.is_mirror()
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true))
}
