//! The options that only matter with an API server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use winddown_shared::{SYSTEM_NODE_CRITICAL_PRIORITY, ShutdownWork, parse_duration};
use winddown_yaml::{Fields, Problem, Value as Tree, names};

use crate::reference::{
    Field, FieldReading, ListEntry, OptionValue, ValueKind, Word, at_restart, go, options, parsed,
    part, words,
};
use crate::{Config, Effect, Trust};

const AFTER_NODES: &str = "shutdownAfterNodes";
const AFTER_NODES_TIMEOUT: &str = "shutdownAfterNodesTimeout";
/// The range for how long the objects of terminated pods may be kept.
const TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 60 * 60);

// The defaults are the kubelet's, for options that it has.
options! {
    /// The options that only matter with an API server.
    // Over the limit because each option of the section is a field.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ClusterSettings {
        /// How the API server is reached. Unset: the service account of the agent's pod.
        kubeconfig: Option<PathBuf> = None
            => at_restart("kubeconfig", Effect::WithApiServer)
                .trusted(Trust::Secret)
                .example("/etc/winddown/kubeconfig");
        /// For a node that has no certificate yet, in place of `kubeconfig`: credentials that may only ask for one. The
        /// agent keeps the certificate in the state directory and renews it.
        bootstrap_kubeconfig: Option<PathBuf> = None
            => at_restart("bootstrapKubeconfig", Effect::WithApiServer)
                .trusted(Trust::Secret)
                .example("/etc/winddown/bootstrap-kubeconfig");
        /// Create this machine's Node object when the agent starts.
        register_node: bool = true => at_restart("registerNode", Effect::Cluster);
        /// Create the Node object again when it is deleted while the agent runs.
        recreate_node: bool = false => at_restart("recreateNode", Effect::Cluster);
        /// Taints that the Node object is created with.
        register_with_taints: Vec<NodeTaint> = Vec::new()
            => at_restart("registerWithTaints", Effect::Cluster)
                .example("- key: example.com/edge\n  value: here\n  effect: NoSchedule");
        /// The cloud's identifier of the machine, set when the Node object is created.
        provider_id: Option<String> = None
            => at_restart("providerID", Effect::Cluster).example("example://machine-1");
        /// The node's addresses, one or one of each family (10.0.0.5,fd00::5). Unset: the machine's own.
        // The primary address first.
        node_ips: Vec<IpAddr> = Vec::new()
            => at_restart("nodeIP", Effect::PODS)
                .kind(ValueKind::Address("IP address"))
                .example("10.0.0.5");
        /// The cluster's name servers. Pods with `dnsPolicy: ClusterFirst`, which is the default, ask them instead of
        /// the node's. Pods of other runtimes use the node's files.
        dns: Vec<IpAddr> = Vec::new()
            => at_restart("clusterDNS", Effect::Cri).example("[10.96.0.10]");
        /// The domain of the cluster's Services, which such pods search for short names.
        // Empty if there is none; without a dot at the end.
        domain: String = String::new()
            => at_restart("clusterDomain", Effect::Cri)
                .text("^[a-z0-9.-]*$")
                .check(domain)
                .example("cluster.local");
        /// The resolver file that pods get where they do not ask the cluster's name servers.
        /// Where it names only servers on this machine (systemd-resolved), pods with a network of their own get
        /// /run/systemd/resolve/resolv.conf instead.
        resolv_conf: PathBuf = PathBuf::from("/etc/resolv.conf")
            => at_restart("resolvConf", Effect::Cri)
                .trusted(Trust::Nothing)
                .zero_is_unset_for_kubelets();
        /// The duration that the node's lease names; the agent renews it four times within that.
        // No timer is faster than a second. The cluster judges a node by the time of the last renewal alone.
        node_lease_duration: Duration = Duration::from_secs(40)
            => at_restart("nodeLeaseDurationSeconds", Effect::Cluster)
                .seconds(4, 86_400)
                .zero_is_unset_for_kubelets();
        /// How often the status is written although it has not changed.
        node_status_report_frequency: Duration = Duration::from_secs(300)
            => at_restart("nodeStatusReportFrequency", Effect::Cluster)
                .kind(ValueKind::INTERVAL)
                .zero_is_unset();
        /// Make the node unschedulable when it goes down, and beside a kubelet taint it as well. Both are undone after
        /// the boot, unless they were there before.
        cordon_on_shutdown: bool = true => at_restart("cordonOnShutdown", Effect::WithApiServer);
        /// A label selector of nodes that go down before this node's control plane: a shutdown waits for them until
        /// their Node objects report a clean shutdown or are gone. Terms are `key`, `!key`, `key=value` and
        /// `key!=value`, with commas between them.
        after_nodes: Option<String> = None
            => at_restart(AFTER_NODES, Effect::WithApiServer)
                .check(selector)
                .example("\"!node-role.kubernetes.io/control-plane\"");
        /// How long it waits for them, whatever the API server does: a quarter of the shutdown's whole time at most.
        after_nodes_timeout: Duration = Duration::from_secs(5)
            => at_restart(AFTER_NODES_TIMEOUT, Effect::WithApiServer).duration("1s", "1h");
        /// The group that waits, with those after it: the one that terminates pods of this priority. Where groups are roles,
        /// 2000001001 is the control plane; where they are priorities, it is the highest group.
        // The priority of the control plane; with groups by priority, this is in the highest group.
        after_nodes_priority: i32 = SYSTEM_NODE_CRITICAL_PRIORITY + 1
            => at_restart("shutdownAfterNodesPriority", Effect::WithApiServer);
        /// What happens to the API objects of pods that this node has terminated (shutdown, drain, eviction, preemption):
        /// `keep`; `delete`, after the next boot; or `ttl` and how long after they terminated, 1s to 720h (`ttl 24h`).
        ended_pods: EndedPods = EndedPods::Keep => at_restart("endedPods", Effect::Cluster);
        /// What happens to pods that run when the agent starts but are unknown to the API server: `stop` (with their
        /// grace), `adopt` (they run on), or `report` (the same, and each is named in the log).
        orphaned_pods: OrphanedPods = OrphanedPods::Stop
            => at_restart("orphanedPods", Effect::Cluster);
        /// The address at which the API server asks this node for logs and the like; the port is usually 10250.
        /// Unset: disabled.
        node_api_address: Option<SocketAddr> = None
            => at_restart("nodeApiAddress", Effect::Cluster).example("0.0.0.0:10250");
        /// The authorities that certificates of `nodeApiAddress`'s clients come from, above all the API server's own.
        /// Unset: clients are known by tokens alone.
        client_ca_file: Option<PathBuf> = None
            => at_restart("clientCAFile", Effect::Cluster)
                .trusted(Trust::Read)
                .example("/etc/kubernetes/pki/ca.crt");
        /// The certificate that `nodeApiAddress` shows. Unset: the agent asks the cluster for one, which has to be
        /// approved, keeps it in the state directory and renews it.
        tls_cert_file: Option<PathBuf> = None
            => at_restart("tlsCertFile", Effect::Cluster)
                .trusted(Trust::Read)
                .example("/etc/winddown/node.crt");
        /// Its private key. Unset: in the same file.
        tls_private_key_file: Option<PathBuf> = None
            => at_restart("tlsPrivateKeyFile", Effect::Cluster)
                .trusted(Trust::Secret)
                .example("/etc/winddown/node.key");
    }
}

options! {
    /// The options that only matter in companion mode.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CompanionSettings {
        /// How long a pod's disruption budget is asked for its consent before the pod is deleted without it. Unless set,
        /// a third of the pod's grace, and at most 10s.
        eviction_timeout: Option<Duration> = None
            => at_restart("companionEvictionTimeout", Effect::Companion)
                .duration("0s", "1h")
                .example("5s");
        /// What is done when the API server is unavailable while the node goes down. `stopContainers` stops
        /// containers through the container runtime, `wait` waits.
        without_api: WithoutApi = WithoutApi::StopContainers
            => at_restart("companionWithoutApi", Effect::Companion);
        /// The kubelet's `--root-dir`, where it mounts the volumes of pods. They are released when nothing of
        /// them is mounted there.
        kubelet_root_dir: PathBuf = PathBuf::from("/var/lib/kubelet")
            => at_restart("kubeletRootDir", Effect::Companion).trusted(Trust::Read);
    }
}

options! {
    /// A taint of the node.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NodeTaint {
        /// The taint's key, a qualified name.
        key: String = String::new() => part("key").required().check(taint_key);
        /// Its value, as a label's; may be left out.
        value: String = String::new() => part("value").check(taint_value);
        /// What it does to pods that do not tolerate it.
        effect: &'static str = "" => part("effect").required();
    }
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

words! {
    /// What happens to pods that run when the agent starts, but are unknown to the API server.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OrphanedPods {
        /// They are stopped, with their own grace period.
        #[default]
        Stop = "stop",
        /// They keep running until a pod with the same name arrives.
        Adopt = "adopt",
        /// Like [`Adopt`](Self::Adopt), with a warning for each.
        Report = "report",
    }
}

words! {
    /// What to do if the API server is unreachable while the node goes down.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum WithoutApi {
        /// Stop containers through the container runtime, and the kubelet's service before that.
        #[default]
        StopContainers = "stopContainers",
        /// Stop nothing until the API server answers.
        Wait = "wait",
    }
}

/// The effects of a taint.
impl Word for &'static str {
    const ALL: &'static [(&'static str, Self)] = &[
        ("NoSchedule", "NoSchedule"),
        ("PreferNoSchedule", "PreferNoSchedule"),
        ("NoExecute", "NoExecute"),
    ];
}

// === impl ClusterSettings ===

impl ClusterSettings {
    /// Returns the node's addresses: the configured ones, or else the source addresses that this machine uses to reach
    /// other networks; none until it has had such a route. Does not block.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<IpAddr> {
        match self.node_ips.as_slice() {
            [] => winddown_host::host_addresses(),
            own => own.to_vec(),
        }
    }
}

// === impl NodeTaint ===

impl ListEntry for NodeTaint {
    fn conflict(&self, other: &Self) -> Option<String> {
        let twice = (&self.key, self.effect) == (&other.key, other.effect);
        twice.then(|| format!("{}:{} is listed twice: keep one", self.key, self.effect))
    }
}

fn taint_key(_: &str, key: &str) -> Option<String> {
    let valid = names::is_qualified_name(key);
    (!valid).then(|| format!("`{key}` is no taint's key: write, for example, example.com/a"))
}

fn taint_value(_: &str, value: &str) -> Option<String> {
    let what = "is no taint's value: write letters, digits, `-`, `_`, `.`";
    (!names::is_label_value(value)).then(|| format!("`{value}` {what}"))
}

/// Checks a label selector: the terms of the API server, without sets of values.
fn selector(_: &str, text: &str) -> Option<String> {
    let term = |term: &str| match term.split_once('=') {
        Some((key, value)) => {
            let key = key.strip_suffix('!').unwrap_or(key).trim();
            let value = value.strip_prefix('=').unwrap_or(value).trim();
            names::is_qualified_name(key) && names::is_label_value(value)
        }
        None => names::is_qualified_name(term.strip_prefix('!').unwrap_or(term).trim()),
    };
    let wrong = text.split(',').map(str::trim).find(|one| !text.is_empty() && !term(one))?;
    let what = "is no term of a selector: write key, !key, key=value or key!=value";
    Some(format!("`{wrong}` {what}"))
}

/// Checks a domain, which becomes a word in a resolver file.
fn domain(_: &str, text: &str) -> Option<String> {
    let plain = text.strip_suffix('.').unwrap_or(text);
    let valid =
        text.is_empty() || (plain.len() <= 253 && plain.split('.').all(names::is_dns_label));
    (!valid).then(|| format!("`{text}` is no domain: write, for example, cluster.local"))
}

impl OptionValue for EndedPods {
    fn kind() -> ValueKind {
        ValueKind::Text { pattern: "^(delete|keep|ttl .+)$" }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        parsed(field, fields, |text| {
            let why = match (text, text.strip_prefix("ttl ")) {
                ("delete", _) => return Ok(Self::Delete),
                ("keep", _) => return Ok(Self::Keep),
                (_, None) => "is unknown",
                (_, Some(after)) => match parse_duration(after.trim()) {
                    Ok(after) if TTL.contains(&after) => return Ok(Self::Ttl(after)),
                    Ok(_) => "is out of range, which is 1s to 720h",
                    Err(_) => "has no duration",
                },
            };
            Err(format!("`{text}` {why}: write delete, keep, or ttl and a duration (ttl 24h)"))
        })
    }

    fn written(&self, _: &Field) -> Json {
        json!(match self {
            Self::Delete => "delete".to_owned(),
            Self::Keep => "keep".to_owned(),
            Self::Ttl(after) => format!("ttl {}", go(*after)),
        })
    }
}

pub(crate) fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let cluster = &mut config.cluster;
    if cluster.domain.ends_with('.') {
        cluster.domain.pop();
    }
    node_ips(fields, &mut cluster.node_ips);
    let given = ["kubeconfig", "bootstrapKubeconfig"]
        .map(|key| (key, fields.key_at(key).filter(|_| fields.has(key))));
    if let [(_, Some(_)), (key, Some(at))] = given
        && cluster.kubeconfig.is_some()
        && cluster.bootstrap_kubeconfig.is_some()
    {
        let what = "is for a node that has no kubeconfig yet: remove one of them (the signed \
                    certificate is kept in the state directory)";
        fields.fail(key, at, what);
    }
    if let Some(at) = fields.key_at("tlsPrivateKeyFile")
        && cluster.tls_private_key_file.is_some()
        && cluster.tls_cert_file.is_none()
    {
        let what = "has no effect without tlsCertFile";
        reading.warnings.push(Problem::new(at, "tlsPrivateKeyFile", what));
    }
    if let Some(dns) = fields.node("clusterDNS").filter(|_| reading.kubelet)
        && let Tree::List(items) = &dns.value.value
    {
        for item in items.iter().filter(|item| !item.text().is_some_and(is_address)) {
            let what = format!("{} is no address: it is left out", item.describe());
            reading.warnings.push(Problem::new(item.at, "clusterDNS", what));
        }
    }
    after_nodes(fields, config, reading);
    let cluster = &config.cluster;
    if cluster.recreate_node && !cluster.register_node {
        let at = fields.key_at("recreateNode").unwrap_or(fields.at());
        let what = "is true, but registerNode is false: remove one of them";
        fields.fail("recreateNode", at, what);
    }
}

/// Checks that others can reach the node at each of its addresses, and that there is one of each family at most.
fn node_ips(fields: &mut Fields<'_, '_>, node_ips: &mut Vec<IpAddr>) {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in std::mem::take(node_ips) {
        let what = if ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() {
            format!("`{ip}` is no address that others can reach this node at")
        } else if addresses.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) {
            "has two addresses of one family: write one, or an IPv4 and an IPv6 one".to_owned()
        } else {
            addresses.push(ip);
            continue;
        };
        fields.fail("nodeIP", fields.key_at("nodeIP").unwrap_or(fields.at()), what);
    }
    *node_ips = addresses;
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// Warns if the wait for other nodes gets less time than configured.
fn after_nodes(fields: &Fields<'_, '_>, config: &Config, reading: &mut FieldReading) {
    let Some(at) = fields.key_at(AFTER_NODES).filter(|_| config.cluster.after_nodes.is_some())
    else {
        return;
    };
    let (timeout, whole) = (config.cluster.after_nodes_timeout, config.shutdown.total());
    if timeout > whole / ShutdownWork::PART && !whole.is_zero() {
        let (at, part) =
            (fields.key_at(AFTER_NODES_TIMEOUT).unwrap_or(at), whole / ShutdownWork::PART);
        let what = format!(
            "is {}, but a shutdown of {} waits {} at most, a quarter of it: allow the shutdown more time",
            go(timeout),
            go(whole),
            go(part)
        );
        reading.warnings.push(Problem::new(at, AFTER_NODES_TIMEOUT, what));
    }
}
