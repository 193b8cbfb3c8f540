//! The options that only matter with an API server.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value as Json, json};
use winddown_shared::{ShutdownWork, parse_duration};
use winddown_yaml::{Fields, Problem, Value as Tree, names};

use super::value::{OptionValue, Options, Word, go, parsed};
use super::{Field, FieldReading, OptionRow, OptionSection, Top, ValueKind};
use crate::{Config, EndedPods, Mode, NodeTaint, OrphanedPods, Trust, WithoutApi};

const FILE: ValueKind = ValueKind::Path { empty: true };
const AFTER_NODES: &str = "shutdownAfterNodes";
const AFTER_NODES_TIMEOUT: &str = "shutdownAfterNodesTimeout";
const DOMAIN: ValueKind = ValueKind::Text { pattern: "^[a-z0-9.-]*$" };
const ENDED_PODS: ValueKind = ValueKind::Text { pattern: "^(delete|keep|ttl .+)$" };
/// The range for how long the objects of terminated pods may be kept.
const TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 60 * 60);

// Over the limit because it is a table: one row per option, in the order of the default file.
pub(super) fn section() -> OptionSection {
    let rows = vec![
        Top::new("kubeconfig", |c| &mut c.cluster.kubeconfig, FILE).trusted(Trust::Secret)
            .doc(
                "How the API server is reached. Unset: the service account of the agent's pod.",
            )
            .example("/etc/winddown/kubeconfig"),
        Top::new("bootstrapKubeconfig", |c| &mut c.cluster.bootstrap_kubeconfig, FILE).trusted(Trust::Secret)
            .doc(
                "For a node that has no certificate yet, in place of `kubeconfig`: credentials that may \
                 only ask for one. The agent keeps the certificate in the state directory and renews it.",
            )
            .example("/etc/winddown/bootstrap-kubeconfig"),
        Top::new("registerNode", |c| &mut c.cluster.register_node, ValueKind::Flag)
            .doc("Create this machine's Node object when the agent starts."),
        Top::new("recreateNode", |c| &mut c.cluster.recreate_node, ValueKind::Flag)
            .doc("Create the Node object again when it is deleted while the agent runs."),
        Top::new(
            "registerWithTaints",
            |c| &mut c.cluster.register_with_taints,
            ValueKind::list::<NodeTaint>(),
        )
        .doc("Taints that the Node object is created with.")
        .example("- key: example.com/edge\n  value: here\n  effect: NoSchedule"),
        Top::new("providerID", |c| &mut c.cluster.provider_id, ValueKind::ANY_TEXT)
            .doc("The cloud's identifier of the machine, set when the Node object is created.")
            .example("example://machine-1"),
        Top::new("nodeIP", |c| &mut c.cluster.node_ips, ValueKind::Address("IP address"))
            .doc(
                "The node's addresses, one or one of each family (10.0.0.5,fd00::5). Unset: the \
                 machine's own.",
            )
            .example("10.0.0.5"),
        Top::new("clusterDNS", |c| &mut c.cluster.dns, ValueKind::Addresses)
            .doc(
                "The cluster's name servers. Pods with `dnsPolicy: ClusterFirst`, which is the default, \
                 ask them instead of the node's. With `runtime: cri` only: other runtimes' pods use the \
                 node's files.",
            )
            .example("[10.96.0.10]"),
        Top::new("clusterDomain", |c| &mut c.cluster.domain, DOMAIN)
            .doc("The domain of the cluster's Services, which such pods search for short names.")
            .check(domain)
            .example("cluster.local"),
        Top::new("resolvConf", |c| &mut c.resolv_conf, ValueKind::PATH).trusted(Trust::Nothing)
            .doc(
                "The resolver file that pods get where they do not ask the cluster's name servers. With \
                 `runtime: cri` only. Where it names only servers on this machine (systemd-resolved), \
                 pods with a network of their own get /run/systemd/resolve/resolv.conf instead.",
            )
            .zero_is_unset_for_kubelets(),
        // The lease is renewed four times within its duration, and no timer is faster than a second.
        Top::new(
            "nodeLeaseDurationSeconds",
            |c| &mut c.cluster.node_lease_duration,
            ValueKind::seconds(4, 86_400),
        )
        .doc("How long the cluster waits for the node's next heartbeat.")
        .zero_is_unset_for_kubelets(),
        Top::new(
            "nodeStatusReportFrequency",
            |c| &mut c.cluster.node_status_report_frequency,
            ValueKind::INTERVAL,
        )
        .doc("How often the status is written although it has not changed.")
        .zero_is_unset(),
        Top::new("cordonOnShutdown", |c| &mut c.cluster.cordon_on_shutdown, ValueKind::Flag).doc(
            "Make the node unschedulable when it goes down, and beside a kubelet taint it as well. Both \
             are undone after the boot, unless they were there before.",
        ),
        Top::new(AFTER_NODES, |c| &mut c.cluster.after_nodes, ValueKind::ANY_TEXT)
            .doc(
                "A label selector of nodes that go down before this node's control plane: a shutdown waits for them \
                 until their Node objects report a clean shutdown or are gone. Terms are `key`, `!key`, `key=value` \
                 and `key!=value`, with commas between them.",
            )
            .check(selector)
            .example("\"!node-role.kubernetes.io/control-plane\""),
        Top::new(
            AFTER_NODES_TIMEOUT,
            |c| &mut c.cluster.after_nodes_timeout,
            ValueKind::duration("1s", "1h"),
        )
        .doc(
            "How long it waits for them, whatever the API server does: a quarter of the shutdown's whole \
             time at most.",
        ),
        Top::new(
            "shutdownAfterNodesPriority",
            |c| &mut c.cluster.after_nodes_priority,
            ValueKind::integer(i32::MIN.into(), i32::MAX.into()),
        )
        .doc(
            "The group that waits, with those after it: the one that ends pods of this priority. Where groups are roles, \
             2000001001 is the control plane; where they are priorities, it is the highest group.",
        ),
        Top::new("endedPods", |c| &mut c.cluster.ended_pods, ENDED_PODS).doc(
            "What happens to the API objects of pods that this node has ended (shutdown, drain, \
             eviction, preemption): `keep`; `delete`, after the next boot; or `ttl` and how long \
             after they ended, 1s to 720h (`ttl 24h`).",
        ),
        Top::choice("orphanedPods", |c| &mut c.cluster.orphaned_pods).doc(
            "What happens to pods that run when the agent starts but are unknown to the API \
             server: `stop` (with their grace), `adopt` (they run on), or `report` (the same, and \
             each is named in the log).",
        ),
        Top::new("nodeApiAddress", |c| &mut c.cluster.node_api_address, ValueKind::Address("IP and port"))
            .doc(
                "The address at which the API server asks this node for logs and the like; the \
                 port is usually 10250. With `mode: cluster`. Unset: disabled.",
            )
            .example("0.0.0.0:10250"),
        Top::new("clientCAFile", |c| &mut c.cluster.client_ca_file, FILE).trusted(Trust::Read)
            .doc(
                "The authorities that certificates of `nodeApiAddress`'s clients come from, above all the \
                 API server's own. Unset: clients are known by tokens alone.",
            )
            .example("/etc/kubernetes/pki/ca.crt"),
        Top::new("tlsCertFile", |c| &mut c.cluster.tls_cert_file, FILE).trusted(Trust::Read)
            .doc(
                "The certificate that `nodeApiAddress` shows. Unset: the agent asks the cluster for one, \
                 which has to be approved, keeps it in the state directory and renews it.",
            )
            .example("/etc/winddown/node.crt"),
        Top::new("tlsPrivateKeyFile", |c| &mut c.cluster.tls_private_key_file, FILE).trusted(Trust::Secret)
            .doc("Its private key. Unset: in the same file.")
            .example("/etc/winddown/node.key"),
        Top::new(
            "companionEvictionTimeout",
            |c| &mut c.companion.eviction_timeout,
            ValueKind::duration("0s", "1h"),
        )
        .doc(
            "Beside a kubelet: how long a pod's disruption budget is asked for its consent before the \
             pod is deleted without it. Unset: a third of the pod's grace, and at most 10s.",
        )
        .example("5s"),
        Top::choice("companionWithoutApi", |c| &mut c.companion.without_api).doc(
            "Beside a kubelet: what is done when the API server is away while the node goes down. \
             `stopContainers` stops containers through the container runtime, `wait` waits.",
        ),
        Top::new("kubeletRootDir", |c| &mut c.companion.kubelet_root_dir, ValueKind::PATH).trusted(Trust::Read).doc(
            "Beside a kubelet: its `--root-dir`, where it mounts the volumes of pods. They are released \
             when nothing of them is mounted there.",
        ),
    ];
    OptionSection { title: "In a cluster (mode cluster or companion)", rows, relate }
}

impl Word for OrphanedPods {
    const ALL: &'static [(&'static str, Self)] =
        &[("stop", Self::Stop), ("adopt", Self::Adopt), ("report", Self::Report)];
}

impl Word for WithoutApi {
    const ALL: &'static [(&'static str, Self)] =
        &[("stopContainers", Self::StopContainers), ("wait", Self::Wait)];
}

/// The effects of a taint.
impl Word for &'static str {
    const ALL: &'static [(&'static str, Self)] = &[
        ("NoSchedule", "NoSchedule"),
        ("PreferNoSchedule", "PreferNoSchedule"),
        ("NoExecute", "NoExecute"),
    ];
}

impl Options for NodeTaint {
    fn rows() -> Vec<OptionRow<Self>> {
        vec![
            OptionRow::<Self>::new("key", |taint| &mut taint.key, ValueKind::ANY_TEXT)
                .doc("The taint's key, a qualified name.")
                .required()
                .check(taint_key),
            OptionRow::<Self>::new("value", |taint| &mut taint.value, ValueKind::ANY_TEXT)
                .doc("Its value, as a label's; may be left out.")
                .check(taint_value),
            OptionRow::<Self>::choice("effect", |taint| &mut taint.effect)
                .doc("What it does to pods that do not tolerate it.")
                .required(),
        ]
    }

    fn conflict(&self, other: &Self) -> Option<String> {
        let twice = (&self.key, self.effect) == (&other.key, other.effect);
        twice.then(|| format!("{}:{} is listed twice: keep one", self.key, self.effect))
    }
}

fn taint_key(_: &str, key: &str) -> Option<String> {
    let valid = names::is_qualified_name(key);
    (!valid).then(|| format!("`{key}` is no taint's key: write such as example.com/a"))
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
    (!valid).then(|| format!("`{text}` is no domain: write such as cluster.local"))
}

impl OptionValue for EndedPods {
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

fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
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
    if let Some(at) = fields.key_at("nodeApiAddress")
        && cluster.node_api_address.is_some()
        && config.mode != Mode::Cluster
    {
        let what = "has no effect without `mode: cluster`";
        reading.warnings.push(Problem::new(at, "nodeApiAddress", what));
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
    if config.mode == Mode::Standalone {
        let what = "has no effect with `mode: standalone`: write `mode: cluster`";
        let unused = given.into_iter().filter_map(|(key, at)| Some(Problem::new(at?, key, what)));
        reading.warnings.extend(unused);
    }
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

/// Warns if the wait for other nodes has no effect, or gets less time than configured.
fn after_nodes(fields: &Fields<'_, '_>, config: &Config, reading: &mut FieldReading) {
    let Some(at) = fields.key_at(AFTER_NODES).filter(|_| config.cluster.after_nodes.is_some())
    else {
        return;
    };
    if config.mode == Mode::Standalone {
        let what = "has no effect with `mode: standalone`: write `mode: cluster`";
        reading.warnings.push(Problem::new(at, AFTER_NODES, what));
    }
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
