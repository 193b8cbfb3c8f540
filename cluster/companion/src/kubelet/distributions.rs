//! The distributions of kubelets: how each starts one, and where it keeps the kubelet's files.

use std::path::{Path, PathBuf};

use super::rancher::{Rancher, flag, is_true};
use super::trusted::read;
use super::unit::UnitStart;

/// A distribution, as far as it starts its kubelet in a way of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Distribution {
    /// The units that start the kubelet, or a program that contains one.
    pub(super) units: &'static [&'static str],
    /// The programs that units by other names start.
    pub(super) programs: &'static [&'static str],
    /// The names of the processes that contain a kubelet. Those of others are called `kubelet`.
    pub(super) processes: &'static [&'static str],
    /// Where the kubelet's arguments come from.
    pub(super) source: ArgumentsSource,
    /// The container runtime endpoint if nothing names one.
    pub(super) endpoint: &'static str,
    /// Who writes the kubelet's configuration again, wherever that is, and where to make a change that lasts; empty if nobody
    /// does.
    pub(super) rewritten: &'static str,
}

/// Where a kubelet's arguments come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArgumentsSource {
    /// From the unit, or from the command line of the process.
    CommandLine,
    /// From the settings of the program that contains it.
    Rancher(Rancher),
    /// From a file with one argument in a line, in which variables of the snap stand for directories.
    ArgumentsFile(&'static str),
    /// Only a running kubelet shows them.
    Process,
    /// Nothing shows them: options of the installation say what a companion needs.
    Nowhere,
}

/// kubeadm and most others: the kubelet is a service of its own.
pub(super) const KUBELET: Distribution = Distribution {
    units: &["kubelet.service"],
    programs: &["kubelet", "hyperkube"],
    processes: &["kubelet"],
    source: ArgumentsSource::CommandLine,
    endpoint: "unix:///run/containerd/containerd.sock",
    rewritten: "",
};

const RANCHERS_CONTAINERD: &str = "unix:///run/k3s/containerd/containerd.sock";

/// A snap whose program is the kubelet, which a script starts with the arguments of a file.
const fn snap(units: &'static [&'static str], arguments: &'static str) -> Distribution {
    let source = ArgumentsSource::ArgumentsFile(arguments);
    Distribution { units, programs: &[], source, ..KUBELET }
}

pub(super) static DISTRIBUTIONS: [&Distribution; 9] = [
    &KUBELET,
    // EKS on Ubuntu
    &snap(&["snap.kubelet-eks.daemon.service"], "/var/snap/kubelet-eks/current/args"),
    // Charmed Kubernetes
    &snap(&["snap.kubelet.daemon.service"], "/var/snap/kubelet/current/args"),
    // Canonical Kubernetes
    &snap(&["snap.k8s.kubelet.service"], "/var/snap/k8s/common/args/kubelet"),
    &Distribution {
        units: &["k3s.service", "k3s-agent.service"],
        programs: &["k3s"],
        processes: &["k3s", "k3s-server", "k3s-agent"],
        source: ArgumentsSource::Rancher(Rancher {
            variables: "K3S",
            config: "/etc/rancher/k3s/config.yaml",
            data: "/var/lib/rancher/k3s",
        }),
        endpoint: RANCHERS_CONTAINERD,
        rewritten: "",
    },
    // Its kubelet is a process of its own in the unit of its parent.
    &Distribution {
        units: &["rke2-server.service", "rke2-agent.service"],
        programs: &["rke2"],
        processes: &[],
        source: ArgumentsSource::Rancher(Rancher {
            variables: "RKE2",
            config: "/etc/rancher/rke2/config.yaml",
            data: "/var/lib/rancher/rke2",
        }),
        endpoint: RANCHERS_CONTAINERD,
        rewritten: "",
    },
    &Distribution {
        units: &["snap.microk8s.daemon-kubelite.service", "snap.microk8s.daemon-kubelet.service"],
        programs: &["kubelite"],
        processes: &["kubelite"],
        source: ArgumentsSource::ArgumentsFile("/var/snap/microk8s/current/args/kubelet"),
        endpoint: "unix:///var/snap/microk8s/common/run/containerd.sock",
        rewritten: "",
    },
    // Its kubelet is a process of its own too; its settings are not read here.
    &Distribution {
        units: &["k0scontroller.service", "k0sworker.service"],
        programs: &["k0s"],
        processes: &[],
        source: ArgumentsSource::Process,
        endpoint: "unix:///run/k0s/containerd.sock",
        rewritten: "k0s writes it at each start: make the change in the node's profile, spec.workerProfiles of the \
                    cluster's configuration, from which the file follows",
    },
    // Its kubelet is part of it, as is the API server.
    &Distribution {
        units: &["microshift.service"],
        programs: &["microshift"],
        processes: &["microshift"],
        source: ArgumentsSource::Nowhere,
        endpoint: "unix:///run/crio/crio.sock",
        rewritten: "",
    },
];

/// The files of a kubelet whose command line is not known.
pub(super) struct Layout {
    /// The configuration.
    pub(super) config: &'static str,
    /// The directory of files that override it.
    pub(super) config_dir: Option<&'static str>,
    /// The credentials.
    pub(super) kubeconfig: &'static str,
    /// Who writes the configuration again, and where to make a change that lasts; empty if nobody does.
    rewritten: &'static str,
    /// The `ID` in `/etc/os-release` of the system whose layout this is; empty if the place of the file says that.
    os: &'static str,
}

const OF_KUBEADM: &str = "/etc/kubernetes/kubelet.conf";
const OF_BOOT_SCRIPTS: &str = "/var/lib/kubelet/kubeconfig";

/// Where distributions keep a kubelet's files. A name says nothing: kubeadm's credentials and OpenShift's configuration
/// have the same one, so the `kind` in the file decides.
pub(super) static LAYOUTS: [Layout; 9] = [
    // kubeadm
    Layout { config: "/var/lib/kubelet/config.yaml", kubeconfig: OF_KUBEADM, ..Layout::USUAL },
    // EKS, with and without nodeadm
    Layout {
        config: "/etc/kubernetes/kubelet/config.json",
        config_dir: Some("/etc/kubernetes/kubelet/config.json.d"),
        rewritten: "nodeadm of EKS writes it at each boot: make the change in spec.kubelet.config of the \
                    node's NodeConfig as well",
        ..Layout::USUAL
    },
    Layout { config: "/etc/kubernetes/kubelet/kubelet-config.json", ..Layout::USUAL },
    // OpenShift
    Layout {
        config: "/etc/kubernetes/kubelet.conf",
        rewritten: "on OpenShift the machine config operator writes it, and reports a node whose file \
                    differs: make the change in a KubeletConfig object, from which the file follows",
        ..Layout::USUAL
    },
    // kops
    Layout {
        config: "/var/lib/kubelet/kubelet.conf",
        rewritten: "nodeup of kops writes it again: make the change in the specification of the cluster as well",
        ..Layout::USUAL
    },
    // GCE and GKE
    Layout {
        config: "/home/kubernetes/kubelet-config.yaml",
        rewritten: "the start script of the image writes it at each boot: make the change in the node \
                    pool's configuration as well",
        ..Layout::USUAL
    },
    // Bottlerocket
    Layout {
        config: "/etc/kubernetes/kubelet/config",
        config_dir: Some("/etc/kubernetes/kubelet/config.d"),
        kubeconfig: "/etc/kubernetes/kubelet/kubeconfig",
        rewritten: "Bottlerocket writes it from its settings: make the change in settings.kubernetes, \
                    from which the file follows",
        ..Layout::USUAL
    },
    // Talos
    Layout {
        config: "/etc/kubernetes/kubelet.yaml",
        kubeconfig: "/etc/kubernetes/kubeconfig-kubelet",
        os: "talos",
        rewritten: "machined of Talos writes it: make the change in machine.kubelet.extraConfig of the \
                    machine configuration, from which the file follows",
        ..Layout::USUAL
    },
    // Kubespray
    Layout {
        config: "/etc/kubernetes/kubelet-config.yaml",
        kubeconfig: OF_KUBEADM,
        ..Layout::USUAL
    },
];

/// The distribution that has the unit, if it is one of these.
pub(super) fn of_unit(unit: &str) -> Option<&'static Distribution> {
    DISTRIBUTIONS.into_iter().find(|one| one.units.contains(&unit))
}

/// The distribution whose program a unit starts.
pub(super) fn of_program(name: &str) -> Option<&'static Distribution> {
    DISTRIBUTIONS.into_iter().find(|one| one.programs.contains(&name))
}

/// The distribution that has processes of that name.
pub(super) fn of_process(name: &str) -> Option<&'static Distribution> {
    DISTRIBUTIONS.into_iter().find(|one| one.processes.contains(&name))
}

/// Who writes the configuration at this place again, if a distribution has it there.
pub(super) fn rewritten(root: &Path, file: &Path) -> Option<&'static str> {
    let is_here = |layout: &&Layout| {
        Path::new(layout.config) == file && (layout.os.is_empty() || is_on(root, layout.os))
    };
    LAYOUTS.iter().find(is_here).map(|layout| layout.rewritten)
}

fn is_on(root: &Path, os: &str) -> bool {
    let text = read(root, Path::new("/etc/os-release")).unwrap_or_default();
    let mut ids = text.lines().filter_map(|line| line.strip_prefix("ID="));
    ids.any(|id| id.trim_matches(['"', '\'']) == os)
}

// === impl Distribution ===

impl Distribution {
    /// Whether a unit's program starts no kubelet: a server of k0s or k3s need not be a node.
    pub(super) fn is_without_kubelet(&self, root: &Path, start: &UnitStart) -> bool {
        let command = start.arguments.first().map_or("", String::as_str);
        let is_set = |name| flag(&start.arguments, name).is_some_and(is_true);
        match &self.source {
            ArgumentsSource::Process if command == "controller" => {
                !is_set("--enable-worker") && !is_set("--single")
            }
            ArgumentsSource::Rancher(rancher) if command == "server" => {
                rancher.disables_agent(root, start)
            }
            _ => false,
        }
    }

    /// The files and directories that [`is_without_kubelet`](Self::is_without_kubelet) follows from.
    pub(super) fn sources(&self, root: &Path, start: &UnitStart) -> Vec<PathBuf> {
        let mut sources = start.sources.clone();
        if let ArgumentsSource::Rancher(rancher) = &self.source {
            sources.extend(rancher.sources(root, start));
        }
        sources
    }
}

// === impl Layout ===

impl Layout {
    const USUAL: Self =
        Self { config: "", config_dir: None, kubeconfig: OF_BOOT_SCRIPTS, rewritten: "", os: "" };
}
