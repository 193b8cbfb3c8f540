//! The kubelet's settings on this machine, from its command line and its files.
//!
//! [`find`] searches the processes and, if no kubelet runs, the units. A [`Kubelet`] knows its
//! arguments, and thus its credentials, its container runtime and its [`Configuration`].
//!
//! Functions that read files take a `root` that stands for `/`. Everything blocks, and nothing is changed.

mod command_line;
mod configuration;
mod k3s;
mod periods;
pub mod processes;
mod unit;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use configuration::{Configuration, Located};
pub use periods::{Periods, PriorityPeriod};
pub use unit::UNIT_DIRECTORIES;

use command_line::{cgroup_unit, option, values};
use unit::Start;

/// Units that start a kubelet, or a program that contains one.
const UNITS: [&str; 3] = ["kubelet.service", k3s::SERVER, k3s::AGENT];
/// The kubelet's credentials with kubeadm and on EKS; those of k3s are in its data directory.
const KUBECONFIGS: [&str; 2] = ["/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig"];
/// The kubelet's default container runtime endpoint.
const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

/// Names for our drop-in: the first sorts after those of distributions, the second after nearly all.
const OWN_DROP_INS: [&str; 2] = ["99-winddown.conf", "zz-winddown.conf"];

/// A kubelet of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// The unit, such as `kubelet.service`; `None` if it is not known.
    pub unit: Option<String>,
    /// The PID, if it runs.
    pub pid: Option<u32>,
    /// Its arguments. For k3s, the arguments that k3s passes to its kubelet.
    arguments: Vec<String>,
    is_k3s: bool,
}

/// The running kubelets or, if there are none, those that a unit would start.
pub fn find(root: &Path, live: bool) -> Vec<Kubelet> {
    let running = if live { running(root) } else { Vec::new() };
    match running.is_empty() {
        true => UNITS.into_iter().filter_map(|unit| Kubelet::of_unit(root, unit)).collect(),
        false => running,
    }
}

/// Kubelets of which only the credentials were found, at a usual place.
pub fn find_credentials(root: &Path) -> Vec<Kubelet> {
    let k3s = Kubelet::of_k3s(root, &Start::default());
    let others = KUBECONFIGS.map(|file| Kubelet::with_kubeconfig(Path::new(file)));
    let there = |kubelet: &Kubelet| kubelet.kubeconfig().is_some_and(|f| below(root, f).exists());
    others.into_iter().chain([k3s]).filter(there).collect()
}

fn running(root: &Path) -> Vec<Kubelet> {
    let mut found: Vec<Kubelet> = Vec::new();
    for process in processes::kubelets(root).unwrap_or_default() {
        let unit = cgroup_unit(root, process.pid);
        let kubelet = if process.name.starts_with("k3s") {
            // k3s hides its arguments, which may contain secrets, so they are read from its unit.
            let start = unit.as_ref().and_then(|unit| unit::start(root, unit));
            Kubelet::of_k3s(root, &start.unwrap_or_default())
        } else {
            let arguments = processes::arguments(root, process.pid);
            Kubelet { arguments, ..Kubelet::default() }
        };
        if unit.is_none() || found.iter().all(|other| other.unit != unit) {
            found.push(Kubelet { unit, pid: Some(process.pid), ..kubelet });
        }
    }
    found
}

/// The path of a file of the machine if `root` stands for `/`.
pub fn below(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

impl Kubelet {
    /// A kubelet of which only the credentials are known.
    pub fn with_kubeconfig(file: &Path) -> Self {
        let arguments = vec![format!("--kubeconfig={}", file.display())];
        Self { arguments, ..Self::default() }
    }

    fn of_unit(root: &Path, unit: &str) -> Option<Self> {
        let start = unit::start(root, unit)?;
        let kubelet = match unit == k3s::SERVER || unit == k3s::AGENT {
            true => Self::of_k3s(root, &start),
            false => Self { arguments: start.arguments, ..Self::default() },
        };
        Some(Self { unit: Some(unit.to_owned()), ..kubelet })
    }

    fn of_k3s(root: &Path, own: &Start) -> Self {
        let arguments = k3s::kubelets_arguments(root, own);
        Self { arguments, is_k3s: true, ..Self::default() }
    }

    /// A name for messages: the unit, or else the process.
    pub fn name(&self) -> String {
        match (&self.unit, self.pid) {
            (Some(unit), _) => unit.clone(),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => "the kubelet".to_owned(),
        }
    }

    /// Whether it runs or has a unit, as opposed to credentials only.
    pub fn is_known(&self) -> bool {
        self.unit.is_some() || self.pid.is_some()
    }

    /// Whether it is part of k3s, which configures it from its own settings.
    pub fn is_k3s(&self) -> bool {
        self.is_k3s
    }

    /// The value of the option `name`, e.g. `--config`.
    pub fn option(&self, name: &str) -> Option<&str> {
        option(&self.arguments, name)
    }

    /// The path of its credentials for the API server; `None` if it has no API server, or if that is not known.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.option("--kubeconfig").map(Path::new)
    }

    /// The directory of files that override its configuration file.
    pub fn drop_in_directory(&self) -> Option<&Path> {
        self.option("--config-dir").map(Path::new)
    }

    /// The container runtime endpoint if neither its arguments nor its configuration name one.
    pub fn usual_endpoint(&self) -> &'static str {
        if self.is_k3s { k3s::CONTAINERD } else { CONTAINERD }
    }

    /// The merged configuration; `None` if it has no file, not even at a usual place.
    pub fn configuration(&self, root: &Path) -> Option<Configuration> {
        // Unlike other options, each occurrence adds to those before it.
        let gates = values(&self.arguments, "--feature-gates").flat_map(|all| all.split(','));
        let mut set = gates.filter_map(|gate| gate.trim().strip_prefix("GracefulNodeShutdown="));
        let gate = set.next_back();
        Configuration::read(
            root,
            self.option("--config").map(Path::new),
            self.drop_in_directory(),
            gate.and_then(|on| on.to_ascii_lowercase().parse().ok()),
        )
    }

    /// The file to edit in order to change the kubelet's shutdown settings. If the kubelet merges a directory, that is
    /// a file of our own, which its distribution does not overwrite.
    pub fn file_to_change(&self, root: &Path, configuration: &Configuration) -> Option<PathBuf> {
        let Some(directory) = self.drop_in_directory() else {
            return configuration.files.first().cloned();
        };
        let own = OWN_DROP_INS.map(|name| directory.join(name));
        let there = own.iter().find(|file| below(root, file).exists());
        let last = configuration.files.last();
        there.or(own.iter().find(|own| last.is_none_or(|last| last < *own))).or(own.last()).cloned()
    }
}
