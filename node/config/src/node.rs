//! The options of the node: its identity, its resources, and what is reserved.

use std::collections::BTreeMap;
use std::time::Duration;

use winddown_preemption::Strategy;
use winddown_shared::{Quantity, sysctl_namespace};
use winddown_yaml::{Fields, names};

use crate::reference::{
    FieldReading, Names, ValueKind, Word, at_restart, live, options, word, words,
};
use crate::{Config, Effect, Trust, with_scheme};

/// A mapping from resources that can be reserved to quantities.
const RESERVED: ValueKind = ValueKind::Map {
    names: Names::Like("^(cpu|memory|ephemeral-storage|pid|hugepages-[0-9A-Za-z.]+)$"),
    value: &ValueKind::Quantity,
};
const EXTENDED: ValueKind = ValueKind::Map {
    names: Names::Like("^[^/]+/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
    value: &ValueKind::Quantity,
};
const LABELS: ValueKind = ValueKind::Map {
    names: Names::Like("^([^/]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
    value: &ValueKind::Text { pattern: "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" },
};
const SYSCTLS: ValueKind = ValueKind::Texts("^(net|fs[./]mqueue|kernel)[./][-a-z0-9_./]*[*]?$");

options! {
    /// The options of the node: its identity, its resources, and what is reserved.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NodeOptions {
        /// Where this node's pods come from. `standalone`: the manifests directory alone. `cluster`: an API server as
        /// well; the agent registers the machine as a node and runs the pods that are bound to it. `companion`: a
        /// kubelet runs the pods, and the agent terminates them when the node goes down.
        mode: Mode = Mode::Standalone => at_restart("mode", Effect::Everywhere);
        /// What runs the containers: `process` (supervised processes on this host, no images), `cri` (a container
        /// runtime such as containerd or CRI-O) or `systemd` (transient services of this host, no images).
        runtime: RuntimeKind = RuntimeKind::Process => at_restart("runtime", Effect::Everywhere);
        /// The socket of the container runtime.
        // Always with the scheme once the file is read.
        container_runtime_endpoint: String = "unix:///run/containerd/containerd.sock".to_owned()
            => at_restart("containerRuntimeEndpoint", Effect::WithContainerRuntime)
                .text("^((unix://)?/.+)?$")
                .trusted(Trust::Socket)
                .zero_is_unset()
                .check(endpoint);
        /// The node's name, with which the name of every pod from a manifest ends. Unset: the host name in lower case.
        // See `Config::node_name_or`.
        name: Option<String> = None
            => at_restart("nodeName", Effect::Everywhere)
                .text("^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
                .check(node_name)
                .example("edge-1");
        /// The most pods this node runs.
        max_pods: u32 = 110
            => live("maxPods", Effect::ADMISSION).integer(1, 10_000).zero_is_unset_for_kubelets();
        /// Resources that are reserved for the system: cpu, memory, ephemeral-storage, pid. Unset: none.
        system_reserved: BTreeMap<String, String> = BTreeMap::new()
            => live("systemReserved", Effect::ADMISSION)
                .kind(RESERVED)
                .check(reserved)
                .example("cpu: 200m\nmemory: 256Mi");
        /// The same for node agents such as this one.
        kube_reserved: BTreeMap<String, String> = BTreeMap::new()
            => live("kubeReserved", Effect::ADMISSION)
                .kind(RESERVED)
                .check(reserved)
                .example("memory: 128Mi");
        /// Resources the machine does not report itself, in whole units. Pods that ask for more than is left do not
        /// fit.
        extended_resources: BTreeMap<String, String> = BTreeMap::new()
            => live("extendedResources", Effect::ADMISSION)
                .kind(EXTENDED)
                .check(extended)
                .example("example.com/dongle: 2");
        /// Labels of the node, for pods with a node selector or affinity. Those that every node has (kubernetes.io/os,
        /// kubernetes.io/arch, kubernetes.io/hostname) are there without being named.
        labels: BTreeMap<String, String> = BTreeMap::new()
            => live("nodeLabels", Effect::PODS)
                .kind(LABELS)
                .check(label)
                .example("example.com/rack: r1");
        /// Kernel parameters that pods may set for themselves in addition to the safe ones: names, or prefixes followed
        /// by `*`.
        allowed_unsafe_sysctls: Vec<String> = Vec::new()
            => live("allowedUnsafeSysctls", Effect::Cri)
                .kind(SYSCTLS)
                .check(sysctl)
                .example("[net.core.somaxconn, 'kernel.msg*']");
        /// How the agent chooses which pods to preempt so that a critical pod fits. `distance` chooses as the kubelet does.
        /// `minimal` preempts the least important pods, and as few as possible.
        preemption_strategy: Strategy = Strategy::default()
            => live("preemptionStrategy", Effect::ADMISSION);
        /// How often the node's addresses are read again where there is an API server. What else its status shows is
        /// written when it changes.
        status_update_frequency: Duration = Duration::from_secs(10)
            => live("nodeStatusUpdateFrequency", Effect::Cluster)
                .kind(ValueKind::INTERVAL)
                .zero_is_unset();
    }
}

words! {
    /// Where the pods of this node come from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Mode {
        /// Only from the manifests directory.
        #[default]
        Standalone = "standalone",
        /// Also from an API server: this agent is the node's kubelet.
        Cluster = "cluster",
        /// A kubelet runs the pods, and this agent only stops them.
        Companion = "companion",
    }
}

words! {
    /// The runtime of the containers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum RuntimeKind {
        /// Supervised processes on the host.
        #[default]
        Process = "process",
        /// A container runtime, over its CRI socket.
        Cri = "cri",
        /// Transient services of systemd.
        Systemd = "systemd",
    }
}

impl Word for Strategy {
    const ALL: &'static [(&'static str, Self)] =
        &[(Self::Distance.as_str(), Self::Distance), (Self::Minimal.as_str(), Self::Minimal)];
}

// === impl RuntimeKind ===

impl RuntimeKind {
    /// Returns the runtime's name in the configuration.
    pub fn as_str(self) -> &'static str {
        word(self)
    }
}

impl std::fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(crate) fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, _: &mut FieldReading) {
    // A path alone is enough for the kubelet.
    let node = &mut config.node;
    node.container_runtime_endpoint = with_scheme(&node.container_runtime_endpoint);
    if node.mode == Mode::Cluster {
        for name in node.labels.keys().filter(|name| !is_own_label(name)) {
            let at = fields.entry_at("nodeLabels", name).unwrap_or(fields.at());
            fields.fail_below("nodeLabels", name, at, FORBIDDEN_LABEL);
        }
    }
    if node.mode != Mode::Companion {
        return;
    }
    let runtime = std::mem::replace(&mut node.runtime, RuntimeKind::Cri);
    if let Some(at) = fields.key_at("runtime").filter(|_| runtime != RuntimeKind::Cri) {
        let what = format!(
            "is {runtime}, but with `mode: companion` a kubelet runs the pods on its container \
             runtime: remove the line, or write `runtime: cri`"
        );
        fields.fail("runtime", at, what);
    }
}

fn endpoint(_: &str, text: &str) -> Option<String> {
    let is_absolute =
        with_scheme(text).strip_prefix("unix://").is_some_and(|path| path.starts_with('/'));
    (!is_absolute).then(|| {
        format!(
            "`{text}` is no socket: write unix:// and an absolute path, for example \
             unix:///run/containerd/containerd.sock"
        )
    })
}

fn node_name(_: &str, name: &str) -> Option<String> {
    let what = "is not a node name: use lower-case letters, digits, `-`, `.`; at most 253";
    (!names::is_dns_subdomain(name)).then(|| format!("`{name}` {what}"))
}

fn reserved(name: &str, text: &str) -> Option<String> {
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage" | "pid");
    if !known && !name.starts_with("hugepages-") {
        let what = "is not a resource that can be reserved: write cpu, memory, ephemeral-storage, \
                    pid or hugepages-<size>";
        return Some(what.to_owned());
    }
    quantity(text).err()
}

fn extended(name: &str, text: &str) -> Option<String> {
    let own = name.split_once('/').is_some_and(|(domain, _)| {
        !domain.contains("kubernetes.io") && !domain.starts_with("requests.")
    });
    if !own || !names::is_qualified_name(name) {
        let what = "is no extended resource: write a domain of your own and a name, for example \
                    example.com/dongle";
        return Some(what.to_owned());
    }
    match quantity(text) {
        Ok(amount) => {
            let whole = Quantity::new(amount.value(), amount.format());
            let what = "is not whole: extended resources are counted in units";
            (amount.as_nanos() != whole.as_nanos()).then(|| format!("`{text}` {what}"))
        }
        Err(what) => Some(what),
    }
}

/// Parses a quantity of 0 or more.
fn quantity(text: &str) -> Result<Quantity, String> {
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.is_negative() => {
            Err(format!("`{text}` is negative: write 0 or more"))
        }
        Ok(quantity) => Ok(quantity),
        Err(error) => Err(error.to_string()),
    }
}

fn sysctl(_: &str, pattern: &str) -> Option<String> {
    let is_form = pattern.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./*".contains(&b))
        && pattern.find('*').is_none_or(|at| at + 1 == pattern.len());
    let what = "is no kernel parameter that pods have for themselves: write one that begins with `net.`, `fs.mqueue.`, \
                `kernel.msg`, `kernel.shm`, or `kernel.sem`";
    (!is_form || sysctl_namespace(pattern).is_none()).then(|| what.to_owned())
}

/// What is said of a label that [`is_own_label`] forbids.
const FORBIDDEN_LABEL: &str = "no node may set this label itself: have an administrator of the cluster set it, or write a \
                               label of another domain; of kubernetes.io and k8s.io, a node may set \
                               kubelet.kubernetes.io/*, node.kubernetes.io/*, kubernetes.io/hostname, \
                               topology.kubernetes.io/region and topology.kubernetes.io/zone";

/// Whether a node may set the label on its own Node object, as the NodeRestriction admission plugin and the kubelet's
/// `--node-labels` have it: outside the project's domains any, and in them those of a list.
fn is_own_label(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |whole: &str| {
        domain.strip_suffix(whole).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
    };
    let is_listed = matches!(
        name,
        "kubernetes.io/hostname"
            | "beta.kubernetes.io/os"
            | "beta.kubernetes.io/arch"
            | "beta.kubernetes.io/instance-type"
            | "topology.kubernetes.io/region"
            | "topology.kubernetes.io/zone"
            | "failure-domain.beta.kubernetes.io/region"
            | "failure-domain.beta.kubernetes.io/zone"
    );
    let is_kubernetes = is_of("kubernetes.io") || is_of("k8s.io");
    !is_kubernetes || is_listed || is_of("kubelet.kubernetes.io") || is_of("node.kubernetes.io")
}

fn label(name: &str, value: &str) -> Option<String> {
    const FORM: &str = "write letters, digits, `-`, `_` and `.`, at most 63";
    if !names::is_qualified_name(name) {
        return Some(format!("is no label: {FORM}, with a domain and `/` before them if you like"));
    }
    if matches!(name, "kubernetes.io/os" | "kubernetes.io/arch") {
        return Some("is what the machine says itself: remove it".to_owned());
    }
    let valid = names::is_label_value(value);
    (!valid).then(|| format!("`{value}` is no label's value: {FORM}"))
}
