//! The options of the node: its identity, its resources, and what is reserved.

use winddown_preemption::Strategy;
use winddown_shared::{Quantity, sysctl_namespace};
use winddown_yaml::{Fields, names};

use super::value::Word;
use super::{FieldReading, Names, OptionSection, Top, ValueKind};
use crate::{Config, Mode, RuntimeKind, Trust, with_scheme};

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
const ENDPOINT: ValueKind = ValueKind::Text { pattern: "^((unix://)?/.+)?$" };
const NAME: ValueKind = ValueKind::Text { pattern: "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" };

// Over the limit because it is a table: one row per option, in the order of the default file.
pub(super) fn section() -> OptionSection {
    let rows = vec![
        Top::choice("mode", |c| &mut c.mode).doc(
            "Where this node's pods come from. `standalone`: the manifests directory alone. \
             `cluster`: an API server as well; the agent registers the machine as a node and runs \
             the pods that are bound to it. `companion`: a kubelet runs the pods, and the agent \
             ends them when the node goes down.",
        ),
        Top::choice("runtime", |c| &mut c.runtime).doc(
            "What runs the containers: `process` (supervised processes on this host, no images), `cri` \
             (a container runtime such as containerd or CRI-O) or `systemd` (transient services of \
             this host, no images).",
        ),
        Top::new("containerRuntimeEndpoint", |c| &mut c.container_runtime_endpoint, ENDPOINT).trusted(Trust::Socket)
            .doc("The socket of the container runtime; used with `runtime: cri` only.")
            .zero_is_unset()
            .check(endpoint),
        Top::new("nodeName", |c| &mut c.node_name, NAME)
            .doc(
                "The node's name, with which the name of every pod from a manifest ends. Unset: \
                 the host name in lower case.",
            )
            .check(node_name)
            .example("edge-1"),
        Top::new("maxPods", |c| &mut c.max_pods, ValueKind::integer(1, 10_000))
            .doc("The most pods this node runs.")
            .zero_is_unset_for_kubelets()
            .live(),
        Top::new("systemReserved", |c| &mut c.system_reserved, RESERVED)
            .doc(
                "Resources that are reserved for the system: cpu, memory, ephemeral-storage, pid. \
                 Unset: none.",
            )
            .check(reserved)
            .example("cpu: 200m\nmemory: 256Mi")
            .live(),
        Top::new("kubeReserved", |c| &mut c.kube_reserved, RESERVED)
            .doc("The same for node agents such as this one.")
            .check(reserved)
            .example("memory: 128Mi")
            .live(),
        Top::new("extendedResources", |c| &mut c.extended_resources, EXTENDED)
            .doc(
                "Resources the machine does not report itself, in whole units. Pods that ask for more than \
                 is left do not fit.",
            )
            .check(extended)
            .example("example.com/dongle: 2")
            .live(),
        Top::new("nodeLabels", |c| &mut c.node_labels, LABELS)
            .doc(
                "Labels of the node, for pods with a node selector or affinity. Those that every node \
                 has (kubernetes.io/os, kubernetes.io/arch, kubernetes.io/hostname) are there without \
                 being named.",
            )
            .check(label)
            .example("example.com/rack: r1")
            .live(),
        Top::new("allowedUnsafeSysctls", |c| &mut c.allowed_unsafe_sysctls, SYSCTLS)
            .doc(
                "Kernel parameters that pods may set for themselves in addition to the safe ones: \
                 names, or prefixes followed by `*`. Only with `runtime: cri`.",
            )
            .check(sysctl)
            .example("[net.core.somaxconn, 'kernel.msg*']")
            .live(),
        Top::choice("preemptionStrategy", |c| &mut c.preemption_strategy)
            .doc(
                "How the agent chooses which pods to end so that a critical pod fits. `distance` \
                 chooses as the kubelet does. `minimal` ends the least important pods, and as few \
                 as possible.",
            )
            .live(),
        Top::new(
            "nodeStatusUpdateFrequency",
            |c| &mut c.node_status_update_frequency,
            ValueKind::INTERVAL,
        )
        .doc("How often the node's status is checked for changes where there is an API server.")
        .zero_is_unset()
        .live(),
    ];
    OptionSection { title: "The node", rows, relate }
}

impl Word for Mode {
    const ALL: &'static [(&'static str, Self)] = &[
        ("standalone", Self::Standalone),
        ("cluster", Self::Cluster),
        ("companion", Self::Companion),
    ];
}

impl Word for RuntimeKind {
    const ALL: &'static [(&'static str, Self)] =
        &[("process", Self::Process), ("cri", Self::Cri), ("systemd", Self::Systemd)];
}

impl Word for Strategy {
    const ALL: &'static [(&'static str, Self)] =
        &[(Self::Distance.as_str(), Self::Distance), (Self::Minimal.as_str(), Self::Minimal)];
}

fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, _: &mut FieldReading) {
    // A path alone is enough for the kubelet.
    config.container_runtime_endpoint = with_scheme(&config.container_runtime_endpoint);
    if config.mode != Mode::Companion {
        return;
    }
    let runtime = std::mem::replace(&mut config.runtime, RuntimeKind::Cri);
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
