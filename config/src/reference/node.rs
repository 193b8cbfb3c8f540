//! The node: what it is, what it has, and what is kept from its pods.

use super::{Field, Kind, Names, Section};

/// Resources that can be reserved.
const RESERVED: Names = Names::Like("^(cpu|memory|ephemeral-storage|pid|hugepages-[0-9A-Za-z.]+)$");
const DOMAIN_AND_NAME: Names = Names::Like("^[^/]+/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$");
const LABEL: Names = Names::Like("^([^/]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$");

pub(super) const SECTION: Section = Section {
    title: "The node",
    fields: &[
        Field::new(
            "mode",
            Kind::Choice(&["standalone", "cluster", "companion"]),
            "Who says which pods run here. `standalone`: the manifests directory alone. `cluster`: an API \
             server as well; this agent registers the machine as a node and runs the pods that are bound \
             to it. `companion`: a kubelet runs the pods, and this agent ends them when the node goes \
             down.",
        ),
        Field::new(
            "runtime",
            Kind::Choice(&["process", "cri", "systemd"]),
            "What runs the containers: `process` (supervised processes on this host, no images), `cri` \
             (a container runtime such as containerd or CRI-O) or `systemd` (transient services of this \
             host, no images).",
        ),
        Field::new(
            "containerRuntimeEndpoint",
            Kind::Text { pattern: "^(unix:///.+)?$" },
            "The socket of the container runtime; used with `runtime: cri` only.",
        ),
        Field::new(
            "nodeName",
            Kind::Text { pattern: "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" },
            "The node's name. It ends the name of every pod that comes from a manifest. Left out, it is \
             the host name in lower case.",
        )
        .example("edge-1"),
        Field::new("maxPods", Kind::integer(1, 10_000), "The most pods this node runs.").live(),
        Field::new(
            "systemReserved",
            Kind::Map { names: RESERVED, value: &Kind::Quantity },
            "What is kept from the pods for the system: cpu, memory, ephemeral-storage, pid. Left out, \
             nothing is kept.",
        )
        .example("cpu: 200m\nmemory: 256Mi")
        .live(),
        Field::new(
            "kubeReserved",
            Kind::Map { names: RESERVED, value: &Kind::Quantity },
            "The same for node agents such as this one.",
        )
        .example("memory: 128Mi")
        .live(),
        Field::new(
            "extendedResources",
            Kind::Map { names: DOMAIN_AND_NAME, value: &Kind::Quantity },
            "What the node has that the machine does not tell by itself, in whole units. Pods that ask for \
             more than is left do not fit.",
        )
        .example("example.com/dongle: 2")
        .live(),
        Field::new(
            "nodeLabels",
            Kind::Map {
                names: LABEL,
                value: &Kind::Text { pattern: "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" },
            },
            "Labels of the node, for pods with a node selector or affinity. Those that every node has \
             (kubernetes.io/os, kubernetes.io/arch, kubernetes.io/hostname) are there without being named.",
        )
        .example("example.com/rack: r1")
        .live(),
        Field::new(
            "preemptionStrategy",
            Kind::Choice(&["distance", "minimal"]),
            "How the pods are chosen that end so that a critical pod fits. `distance` chooses as the \
             kubelet does. `minimal` ends the least important pods, and as few as there can be.",
        )
        .live(),
        Field::new(
            "nodeStatusUpdateFrequency",
            Kind::INTERVAL,
            "How often the node's status is looked at where there is an API server.",
        )
        .live(),
    ],
};
