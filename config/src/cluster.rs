//! Whether this node belongs to a cluster, and how it shows itself there.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use winddown_companion::WithoutApi;
use winddown_shared::SYSTEM_NODE_CRITICAL_PRIORITY;

/// Who says which pods run on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The manifests directory alone.
    #[default]
    Standalone,
    /// An API server as well: this agent is the node's kubelet.
    Cluster,
    /// A kubelet runs the pods, and this agent ends them.
    Companion,
}

/// Everything that only matters where there is an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `kubeconfig`: how the API server is reached. Without one and without
    /// [`bootstrap_kubeconfig`](Self::bootstrap_kubeconfig), the service account of the pod that the
    /// agent runs in.
    pub kubeconfig: Option<PathBuf>,
    /// `bootstrapKubeconfig`: credentials that may only ask for a certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `registerNode`: whether this agent makes its Node object.
    pub register_node: bool,
    /// `recreateNode`: whether it is made again when it is deleted while the agent runs.
    pub recreate_node: bool,
    /// `registerWithTaints`: taints the node gets when it is registered.
    pub register_with_taints: Vec<NodeTaint>,
    /// `nodeIP`: the node's addresses, the primary one first, at most one of each family. Empty: those
    /// of the machine.
    pub node_ips: Vec<IpAddr>,
    /// `clusterDNS`: name servers of the cluster, which containers of a CRI runtime ask first. Empty:
    /// those of the machine alone.
    pub dns: Vec<IpAddr>,
    /// `clusterDomain`: where such containers look for names of Services. Empty: nowhere.
    pub domain: String,
    /// `providerID`: what the cloud calls the machine.
    pub provider_id: Option<String>,
    /// `nodeLeaseDurationSeconds`: 4 to 86400.
    pub node_lease_duration: Duration,
    /// `nodeStatusReportFrequency`: how often an unchanged status is written; 1 s to 1 h.
    pub node_status_report_frequency: Duration,
    /// `cordonOnShutdown`: whether a shutdown makes the node unschedulable.
    pub cordon_on_shutdown: bool,
    /// `shutdownAfterNodes`: a label selector of the nodes that go down before this one's highest pods; none.
    pub after_nodes: Option<String>,
    /// `shutdownAfterNodesTimeout`: how long they are waited for; 1 s to 1 h.
    pub after_nodes_timeout: Duration,
    /// `shutdownAfterNodesPriority`: the lowest priority of the pods that wait.
    pub after_nodes_priority: i32,
    /// `endedPods`: what becomes of the API objects of pods that this node ended.
    pub ended_pods: EndedPods,
    /// `orphanedPods`: what becomes of pods that run when the agent starts and that the API does not
    /// have.
    pub orphaned_pods: OrphanedPods,
    /// `nodeApiAddress`: where the API server asks this node; none: nowhere.
    pub node_api_address: Option<SocketAddr>,
    /// `clientCAFile`: the authorities of its clients' certificates.
    pub client_ca_file: Option<PathBuf>,
    /// `tlsCertFile`: the certificate it shows; none: one that the cluster signs.
    pub tls_cert_file: Option<PathBuf>,
    /// `tlsPrivateKeyFile`: the key of that; none: in the same file.
    pub tls_private_key_file: Option<PathBuf>,
}

/// A taint of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTaint {
    /// A qualified name.
    pub key: String,
    /// A label's value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'static str,
}

/// What becomes of the API objects of pods that this node ended, once it is back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedPods {
    /// They are removed after the next boot.
    Delete,
    /// They stay.
    #[default]
    Keep,
    /// They are removed this long after they were ended; 1 s to 30 days.
    Ttl(Duration),
}

/// What becomes of pods that run when the agent starts and that the API does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanedPods {
    /// They end, with their own grace.
    #[default]
    Stop,
    /// They run on until a pod of their name comes.
    Adopt,
    /// The same, and a warning names each.
    Report,
}

/// Everything that only matters beside a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionSettings {
    /// `companionEvictionTimeout`: how long a pod's disruption budget is asked for its consent; none
    /// takes a third of the pod's grace, and at most ten seconds. 0 to 1 h.
    pub eviction_timeout: Option<Duration>,
    /// `companionWithoutApi`: what is done when the API server is away while the node goes down.
    pub without_api: WithoutApi,
    /// `kubeletRootDir`: where the kubelet keeps what it has for pods, its `--root-dir`.
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
    /// The kubelet's defaults where it has the field.
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
            // The control plane's, which is the highest where groups are of priorities.
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
    /// The node's addresses: those that are configured, else those that this machine speaks from to the
    /// rest of the world; none while it has no route there. Does not block.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<IpAddr> {
        match self.node_ips.as_slice() {
            [] => winddown_engine::environment::host_addresses(),
            own => own.to_vec(),
        }
    }
}
