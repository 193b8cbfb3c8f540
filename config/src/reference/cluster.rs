//! What only matters where there is an API server.

use super::{Field, Kind, Section};

pub(super) const SECTION: Section = Section {
    title: "In a cluster (mode cluster or companion)",
    fields: &[
        Field::new(
            "kubeconfig",
            Kind::Path { empty: true },
            "How the API server is reached. Left out, it is the service account of the pod that the agent \
             runs in.",
        )
        .example("/etc/winddown/kubeconfig"),
        Field::new(
            "bootstrapKubeconfig",
            Kind::Path { empty: true },
            "For a node that has no certificate yet, in place of `kubeconfig`: credentials that may only \
             ask for one. The agent keeps the certificate in the state directory and renews it.",
        )
        .example("/etc/winddown/bootstrap-kubeconfig"),
        Field::new(
            "registerNode",
            Kind::Flag,
            "Make the Node object of this machine at the start.",
        ),
        Field::new(
            "recreateNode",
            Kind::Flag,
            "Make it again when somebody deletes it while the agent runs.",
        ),
        Field::new(
            "registerWithTaints",
            Kind::List {
                of: &[
                    Field::new("key", Kind::ANY_TEXT, "The taint's key, a qualified name."),
                    Field::new("value", Kind::ANY_TEXT, "Its value, as a label's; may be left out."),
                    Field::new(
                        "effect",
                        Kind::Choice(&["NoSchedule", "PreferNoSchedule", "NoExecute"]),
                        "What it does to pods that do not tolerate it.",
                    ),
                ],
                required: &["key", "effect"],
            },
            "Taints that the node gets when its object is made.",
        )
        .example("- key: example.com/edge\n  value: here\n  effect: NoSchedule"),
        Field::new(
            "providerID",
            Kind::ANY_TEXT,
            "What the cloud calls the machine; set when the object is made.",
        )
        .example("example://machine-1"),
        Field::new(
            "nodeIP",
            Kind::ANY_TEXT,
            "The node's addresses, one or one of each family (10.0.0.5,fd00::5). Left out, the machine's \
             own.",
        )
        .example("10.0.0.5"),
        Field::new(
            "clusterDNS",
            Kind::Addresses,
            "The cluster's name servers. Pods with `dnsPolicy: ClusterFirst`, which is the default, ask them \
             instead of the node's. With `runtime: cri` only: other runtimes' pods use the node's files.",
        )
        .example("[10.96.0.10]"),
        Field::new(
            "clusterDomain",
            Kind::Text { pattern: "^[a-z0-9.-]*$" },
            "The domain of the cluster's Services, which such pods search for short names.",
        )
        .example("cluster.local"),
        Field::new(
            "resolvConf",
            Kind::PATH,
            "The resolver file that pods get where they do not ask the cluster's name servers. With \
             `runtime: cri` only. Where it names only servers on this machine (systemd-resolved), pods with \
             a network of their own get /run/systemd/resolve/resolv.conf instead.",
        ),
        Field::new(
            "nodeLeaseDurationSeconds",
            Kind::Integer { least: 4, most: 86_400, unit: "seconds" },
            "How long the cluster waits for a sign of life.",
        ),
        Field::new(
            "nodeStatusReportFrequency",
            Kind::INTERVAL,
            "How often a status that has not changed is written all the same.",
        ),
        Field::new(
            "cordonOnShutdown",
            Kind::Flag,
            "Make the node unschedulable when it goes down. It is made schedulable again after the boot, \
             unless somebody else had made it unschedulable.",
        ),
        Field::new(
            "endedPods",
            Kind::Text { pattern: "^(delete|keep|ttl .+)$" },
            "What becomes of the API objects of pods that this node has ended (shutdown, drain, eviction, \
             preemption): `keep`; `delete`, after the next boot; or `ttl` and how long after they ended, \
             1s to 720h (`ttl 24h`).",
        ),
        Field::new(
            "orphanedPods",
            Kind::Choice(&["stop", "adopt", "report"]),
            "What becomes of pods that run when the agent starts and that the API server does not have: \
             `stop` (with their grace), `adopt` (they run on), or `report` (the same, and each is named in \
             the log).",
        ),
        Field::new(
            "companionEvictionTimeout",
            Kind::Duration { least: "0s", most: "1h", zero: true },
            "Beside a kubelet: how long a pod's disruption budget is asked for its consent before the pod \
             is deleted without it. Left out, a third of the pod's grace, and at most 10s.",
        )
        .example("5s"),
        Field::new(
            "companionWithoutApi",
            Kind::Choice(&["stopContainers", "wait"]),
            "Beside a kubelet: what is done when the API server is away while the node goes down. \
             `stopContainers` stops containers through the container runtime, `wait` waits.",
        ),
    ],
};
