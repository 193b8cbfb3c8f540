//! The settings for cluster and companion mode.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::SYSTEM_NODE_CRITICAL_PRIORITY;

/// Where the pods of this node come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Only from the manifests directory.
    #[default]
    Standalone,
    /// Also from an API server: this agent is the node's kubelet.
    Cluster,
    /// A kubelet runs the pods, and this agent only stops them.
    Companion,
}

/// The settings that only matter with an API server.
// Over the limit because each field is an option of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `kubeconfig`: how the API server is reached. Without it and
    /// [`bootstrap_kubeconfig`](Self::bootstrap_kubeconfig), the agent uses the service account of its own pod.
    pub kubeconfig: Option<PathBuf>,
    /// `bootstrapKubeconfig`: credentials that may only request a certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `registerNode`: whether this agent creates its Node object.
    pub register_node: bool,
    /// `recreateNode`: whether the Node object is created again when it is deleted while the agent runs.
    pub recreate_node: bool,
    /// `registerWithTaints`: the taints that the node is registered with.
    pub register_with_taints: Vec<NodeTaint>,
    /// `nodeIP`: the node's addresses, the primary one first, at most one of each family. If empty, the machine's own.
    pub node_ips: Vec<IpAddr>,
    /// `clusterDNS`: the cluster's name servers, which containers of a CRI runtime query first. If empty, they only use
    /// the machine's.
    pub dns: Vec<IpAddr>,
    /// `clusterDomain`: the domain in which such containers look up names of Services. If empty, none.
    pub domain: String,
    /// `providerID`: the cloud's identifier of the machine.
    pub provider_id: Option<String>,
    /// `nodeLeaseDurationSeconds`: 4 to 86400.
    pub node_lease_duration: Duration,
    /// `nodeStatusReportFrequency`: how often an unchanged status is written; 1 s to 1 h.
    pub node_status_report_frequency: Duration,
    /// `cordonOnShutdown`: whether a shutdown makes the node unschedulable.
    pub cordon_on_shutdown: bool,
    /// `shutdownAfterNodes`: a label selector for the nodes that go down before this node's highest pods; `None` if
    /// there are none.
    pub after_nodes: Option<String>,
    /// `shutdownAfterNodesTimeout`: how long a shutdown waits for these nodes; 1 s to 1 h.
    pub after_nodes_timeout: Duration,
    /// `shutdownAfterNodesPriority`: the lowest priority of the pods that wait for these nodes.
    pub after_nodes_priority: i32,
    /// `endedPods`: what happens to the API objects of pods that this node terminated.
    pub ended_pods: EndedPods,
    /// `orphanedPods`: what happens to pods that run when the agent starts, but are unknown to the API server.
    pub orphaned_pods: OrphanedPods,
    /// `nodeApiAddress`: the address on which this node serves requests of the API server; `None` disables that.
    pub node_api_address: Option<SocketAddr>,
    /// `clientCAFile`: the CA certificates for clients of that address.
    pub client_ca_file: Option<PathBuf>,
    /// `tlsCertFile`: the certificate of that address; `None` for one signed by the cluster.
    pub tls_cert_file: Option<PathBuf>,
    /// `tlsPrivateKeyFile`: the private key of that certificate; `None` if it is in the same file.
    pub tls_private_key_file: Option<PathBuf>,
}

/// A taint of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTaint {
    /// The key, a qualified name.
    pub key: String,
    /// The value, in the format of a label's value; may be empty.
    pub value: String,
    /// The effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'static str,
}

/// What happens to the API objects of pods that this node terminated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedPods {
    /// They are deleted after the next boot.
    Delete,
    /// They are kept.
    #[default]
    Keep,
    /// They are deleted this long after the pods terminated; 1 s to 30 days.
    Ttl(Duration),
}

/// What happens to pods that run when the agent starts, but are unknown to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanedPods {
    /// They are stopped, with their own grace period.
    #[default]
    Stop,
    /// They keep running until a pod with the same name arrives.
    Adopt,
    /// Like [`Adopt`](Self::Adopt), with a warning for each.
    Report,
}

/// What to do if the API server is unreachable while the node goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutApi {
    /// Stop containers through the container runtime, and the kubelet's service before that.
    #[default]
    StopContainers,
    /// Stop nothing until the API server answers.
    Wait,
}

/// The settings that only matter in companion mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionSettings {
    /// `companionEvictionTimeout`: how long to retry while a disruption budget refuses a pod's eviction; 0 to 1 h.
    /// `None` takes a third of the pod's grace period, at most 10 s.
    pub eviction_timeout: Option<Duration>,
    /// `companionWithoutApi`: what to do if the API server is unreachable while the node goes down.
    pub without_api: WithoutApi,
    /// `kubeletRootDir`: the kubelet's `--root-dir`, where it mounts the volumes of pods.
    pub kubelet_root_dir: PathBuf,
}

impl Default for CompanionSettings {
    fn default() -> Self {
        Self {
            eviction_timeout: None,
            without_api: WithoutApi::default(),
            kubelet_root_dir: "/var/lib/kubelet".into(),
        }
    }
}

impl Default for ClusterSettings {
    /// The kubelet's defaults, for fields that it has.
    fn default() -> Self {
        Self {
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            register_node: true,
            recreate_node: false,
            register_with_taints: Vec::new(),
            node_ips: Vec::new(),
            dns: Vec::new(),
            domain: String::new(),
            provider_id: None,
            node_lease_duration: Duration::from_secs(40),
            node_status_report_frequency: Duration::from_secs(300),
            cordon_on_shutdown: true,
            after_nodes: None,
            after_nodes_timeout: Duration::from_secs(5),
            // The priority of the control plane; with groups by priority, this is in the highest group.
            after_nodes_priority: SYSTEM_NODE_CRITICAL_PRIORITY + 1,
            ended_pods: EndedPods::default(),
            orphaned_pods: OrphanedPods::default(),
            node_api_address: None,
            client_ca_file: None,
            tls_cert_file: None,
            tls_private_key_file: None,
        }
    }
}

// === impl ClusterSettings ===

impl ClusterSettings {
    /// Returns the node's addresses: the configured ones, or else the source addresses that this machine uses to reach
    /// other networks; none while it has no such route. Does not block.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<IpAddr> {
        match self.node_ips.as_slice() {
            [] => winddown_host::host_addresses(),
            own => own.to_vec(),
        }
    }
}
