//! Whether this node belongs to a cluster, and how it shows itself there.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::read::{HOUR, interval};
use super::shutdown::go;
use winddown_yaml::{Fields, Problem};

mod read;

pub(super) use read::one_of;
use read::{domain, ended_pods, file, lease, name_servers, node_ips, taints};

const MODE: &str = "mode";
const KUBECONFIG: &str = "kubeconfig";
const BOOTSTRAP: &str = "bootstrapKubeconfig";
const TAINTS: &str = "registerWithTaints";
const NODE_IP: &str = "nodeIP";
const DNS: &str = "clusterDNS";
const DOMAIN: &str = "clusterDomain";
const LEASE: &str = "nodeLeaseDurationSeconds";
const REPORT: &str = "nodeStatusReportFrequency";
const ENDED: &str = "endedPods";
const ORPHANED: &str = "orphanedPods";
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

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
    /// `recreateNode`: whether it is made again when somebody deletes it while the agent runs.
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
    /// `endedPods`: what becomes of the API objects of pods that this node ended.
    pub ended_pods: EndedPods,
    /// `orphanedPods`: what becomes of pods that run when the agent starts and that the API does not
    /// have.
    pub orphaned_pods: OrphanedPods,
}

/// A taint of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// They are removed so long after they were ended; 1 s to 30 days.
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
            ended_pods: EndedPods::default(),
            orphaned_pods: OrphanedPods::default(),
        }
    }
}

// === impl Mode ===

impl Mode {
    /// The mode's name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Cluster => "cluster",
            Self::Companion => "companion",
        }
    }

    pub(super) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let all = [Self::Standalone, Self::Cluster, Self::Companion];
        one_of(fields, MODE, &all.map(|mode| (mode.as_str(), mode))).unwrap_or_default()
    }
}

// === impl ClusterSettings ===

impl ClusterSettings {
    pub(super) fn read(
        fields: &mut Fields<'_, '_>,
        mode: Mode,
        warnings: &mut Vec<Problem>,
    ) -> Self {
        let defaults = Self::default();
        let flag = |fields: &mut Fields<'_, '_>, key, otherwise| {
            fields.bool(key).map_or(otherwise, |found| found.value)
        };
        let settings = Self {
            kubeconfig: file(fields, KUBECONFIG),
            bootstrap_kubeconfig: file(fields, BOOTSTRAP),
            register_node: flag(fields, "registerNode", defaults.register_node),
            recreate_node: flag(fields, "recreateNode", defaults.recreate_node),
            register_with_taints: taints(fields),
            node_ips: node_ips(fields),
            dns: name_servers(fields),
            domain: domain(fields),
            provider_id: fields
                .text("providerID")
                .map(|text| text.value.to_owned())
                .filter(|text| !text.is_empty()),
            node_lease_duration: lease(fields).unwrap_or(defaults.node_lease_duration),
            node_status_report_frequency: interval(fields, REPORT, HOUR)
                .unwrap_or(defaults.node_status_report_frequency),
            cordon_on_shutdown: flag(fields, "cordonOnShutdown", defaults.cordon_on_shutdown),
            ended_pods: ended_pods(fields).unwrap_or_default(),
            orphaned_pods: OrphanedPods::read(fields),
        };
        settings.check(fields, mode, warnings);
        settings
    }

    /// The node's addresses: those that are configured, else those that this machine speaks from to the
    /// rest of the world; none while it has no route there. Does not block.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<IpAddr> {
        match self.node_ips.as_slice() {
            [] => winddown_engine::environment::host_addresses(),
            own => own.to_vec(),
        }
    }

    fn check(&self, fields: &mut Fields<'_, '_>, mode: Mode, warnings: &mut Vec<Problem>) {
        let given =
            [KUBECONFIG, BOOTSTRAP].map(|key| fields.key_at(key).filter(|_| fields.has(key)));
        if let ([Some(_), Some(at)], true) =
            (given, self.kubeconfig.is_some() && self.bootstrap_kubeconfig.is_some())
        {
            let what = format!(
                "is for a node that has no {KUBECONFIG} yet: remove one of them (the signed \
                 certificate is kept in the state directory)"
            );
            fields.fail(BOOTSTRAP, at, what);
        }
        if mode == Mode::Standalone {
            for (key, at) in [KUBECONFIG, BOOTSTRAP].into_iter().zip(given) {
                let what = "has no effect with `mode: standalone`: write `mode: cluster`";
                warnings.extend(at.map(|at| Problem::new(at, key, what)));
            }
        }
        if self.recreate_node && !self.register_node {
            let at = fields.key_at("recreateNode").unwrap_or(fields.at());
            let what = "is true, but registerNode is false: remove one of them";
            fields.fail("recreateNode", at, what);
        }
    }

    /// The same fields as they would be written; those that only have a meaning when they are set are
    /// left out while they are not.
    pub(super) fn entries(&self) -> Vec<(&'static str, Json)> {
        let path = |path: &PathBuf| json!(path.to_string_lossy());
        let mut entries = Vec::new();
        entries.extend(self.kubeconfig.as_ref().map(|file| (KUBECONFIG, path(file))));
        entries.extend(self.bootstrap_kubeconfig.as_ref().map(|file| (BOOTSTRAP, path(file))));
        entries.extend([
            ("registerNode", json!(self.register_node)),
            ("recreateNode", json!(self.recreate_node)),
        ]);
        if !self.register_with_taints.is_empty() {
            let taints = self.register_with_taints.iter().map(NodeTaint::written).collect();
            entries.push((TAINTS, Json::Array(taints)));
        }
        if !self.node_ips.is_empty() {
            let ips: Vec<String> = self.node_ips.iter().map(ToString::to_string).collect();
            entries.push((NODE_IP, json!(ips.join(","))));
        }
        if !self.dns.is_empty() {
            entries.push((DNS, json!(self.dns)));
        }
        if !self.domain.is_empty() {
            entries.push((DOMAIN, json!(self.domain)));
        }
        entries.extend(self.provider_id.as_ref().map(|id| ("providerID", json!(id))));
        entries.extend([
            (LEASE, json!(self.node_lease_duration.as_secs())),
            (REPORT, json!(go(self.node_status_report_frequency))),
            ("cordonOnShutdown", json!(self.cordon_on_shutdown)),
            (ENDED, json!(self.ended_pods.to_string())),
            (ORPHANED, json!(self.orphaned_pods.as_str())),
        ]);
        entries
    }
}

// === impl NodeTaint ===

impl NodeTaint {
    fn written(&self) -> Json {
        let mut entry = Map::new();
        entry.insert("key".to_owned(), json!(self.key));
        if !self.value.is_empty() {
            entry.insert("value".to_owned(), json!(self.value));
        }
        entry.insert("effect".to_owned(), json!(self.effect));
        Json::Object(entry)
    }
}

// === impl EndedPods ===

impl std::fmt::Display for EndedPods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Delete => f.write_str("delete"),
            Self::Keep => f.write_str("keep"),
            Self::Ttl(after) => write!(f, "ttl {}", go(*after)),
        }
    }
}

// === impl OrphanedPods ===

impl OrphanedPods {
    /// The choice's name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Adopt => "adopt",
            Self::Report => "report",
        }
    }

    fn read(fields: &mut Fields<'_, '_>) -> Self {
        let all = [Self::Stop, Self::Adopt, Self::Report];
        one_of(fields, ORPHANED, &all.map(|choice| (choice.as_str(), choice))).unwrap_or_default()
    }
}
