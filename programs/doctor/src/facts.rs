//! Observations of a node, without judgement.

use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::WallTime;
use winddown_systemd::drop_in::Setting;
use winddown_systemd::inspect::{LoginView, ScopeView, ServiceView, SliceView, SystemView};

use winddown_companion::kubelet::SettingDifference;
use winddown_companion::kubelet::processes::KubeletProcess;
use winddown_config::{Config, Exposed, Mode, RuntimeKind};
use winddown_control::api::{ReportList, Status, ThresholdStatus};
use winddown_host::{FreeSpace, OthersMayWrite, path_word};

/// The result of one observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// The value that was observed.
    Known(T),
    /// Nothing was observed, with the reason as text for users.
    Unknown(NotObserved, String),
}

/// Why nothing was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotObserved {
    /// It does not exist.
    Absent,
    /// This user has no permission.
    Denied,
    /// It did not answer in time.
    Silent,
    /// The observation failed.
    Failed,
    /// The root is not that of the running machine.
    NotLive,
}

/// All observations of a node.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether the root is that of the running machine; otherwise only files were read.
    pub live: bool,
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// The node's name, or the root's path if it is not the running machine's.
    pub node: String,
    /// The configuration file.
    pub config: ConfigFact,
    /// The time by which a shutdown has to be delayed, according to the configuration file.
    pub wanted: Duration,
    /// The total time of all groups of pods, according to the configuration file.
    pub budget: Duration,
    /// The agent's own status.
    pub agent: Fact<Status>,
    /// What logind and the service manager say.
    pub bus: BusFacts,
    /// What there is on the disk.
    pub files: FileFacts,
    /// The container runtime, and what else ends containers.
    pub runtime: ContainerRuntimeFacts,
    /// The kubelet.
    pub kubelet: KubeletOnDisk,
    /// The API server.
    pub api: ApiFacts,
    /// What the agent cannot do here.
    pub beyond: BeyondAgent,
    /// Eviction thresholds that are met. They are measured by this command, and without a container
    /// runtime; the running agent has better measurements.
    pub shortages: Fact<Vec<ThresholdStatus>>,
    /// The system clock.
    pub clock: Clock,
}

/// The observations made over D-Bus.
#[derive(Clone, Debug)]
pub struct BusFacts {
    /// logind's settings and locks.
    pub login: Fact<LoginView>,
    /// The service manager.
    pub system: Fact<SystemView>,
    /// The agent's unit.
    pub service: Fact<ServiceView>,
    /// How long systemd waits for all units together past logind, if it has a limit.
    pub limit: Fact<Option<Duration>>,
    /// The scopes of containers.
    pub scopes: Fact<Scopes>,
    /// The slice that contains the pods' services. Observed with the systemd runtime only.
    pub slice: Fact<SliceView>,
    /// Whether the system clock is synchronised.
    pub synchronised: Fact<bool>,
    /// Whether systemd runs this machine, although the bus may not answer.
    pub is_booted: bool,
}

/// The observations of files.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// The file that sets logind's delay.
    pub setting: Fact<Option<Setting>>,
    /// The installed files.
    pub installed: Fact<Installed>,
    /// Files in the directory of manifests, and directories above them, that users other than root may write to.
    pub others_may_write: Fact<Vec<OthersMayWrite>>,
    /// What the agent trusts beside its manifests, and users other than root may write, or read although it is secret.
    pub exposed: Fact<Vec<Exposed>>,
    /// The state directory.
    pub state: Fact<StateDirectory>,
    /// What has the place of the directory of the containers' logs; `None` if nothing else has.
    pub in_place_of_logs: Fact<Option<InPlaceOfLogs>>,
    /// The control socket's file.
    pub socket: Fact<SocketFile>,
    /// The reports of shutdowns, the newest first.
    pub reports: Fact<ReportList>,
    /// Why a later run may have left no report, if so, by what agents left on disk.
    pub unreported: Fact<Option<String>>,
    /// The commands that shut a machine down.
    pub commands: Fact<Vec<ShutdownCommand>>,
}

/// The container runtime, and what else ends containers.
#[derive(Clone, Debug)]
pub struct ContainerRuntimeFacts {
    /// Whether the container runtime's socket accepts connections. Observed with the CRI runtime only.
    pub endpoint: Fact<()>,
    /// The addresses of the container runtimes at the usual places.
    pub endpoints: Fact<Vec<String>>,
    /// Programs that kill processes when memory runs out.
    pub killers: Fact<Vec<KubeletProcess>>,
}

/// What the files and processes of a machine say about its kubelet.
#[derive(Clone, Debug)]
pub struct KubeletOnDisk {
    /// The kubelets that run.
    pub processes: Fact<Vec<KubeletProcess>>,
    /// The unit that starts a kubelet at boot; in an image, the unit that would start one.
    pub unit: Fact<Option<String>>,
    /// The configuration for shutdowns of the running kubelet, or else of the installed one, if there is one.
    pub config: Fact<Option<KubeletConfig>>,
    /// Where the configuration of a companion differs from what the kubelet is told.
    pub differences: Vec<SettingDifference>,
}

/// What the API server and its credentials say.
#[derive(Clone, Debug)]
pub struct ApiFacts {
    /// Required permissions that the API server does not grant. Observed next to a kubelet only.
    pub rights: Fact<Vec<String>>,
    /// Whether the API server's certificate is verified. Observed in a cluster only.
    pub server_verified: Fact<bool>,
}

/// What is configured and the agent cannot do.
#[derive(Clone, Debug)]
pub struct BeyondAgent {
    /// The configured group of the control socket, if there is no such group.
    pub missing_group: Fact<Option<String>>,
    /// The configured paths that the sandbox of the agent's unit keeps from the agent.
    pub out_of_reach: Fact<Vec<OutOfReach>>,
    /// The limits of pods that the agent sets and cannot enforce, one per line.
    pub unenforced: Fact<Vec<String>>,
}

/// The configuration file.
#[derive(Clone, Debug)]
pub struct ConfigFact {
    /// The path of the file on the node.
    pub file: PathBuf,
    /// The outcome of reading it.
    pub read: ConfigRead,
    /// The configuration; the defaults if the file could not be read.
    pub config: Config,
    /// Whether each field is a line of its own in the file, as far as its text shows: a command can replace it.
    pub has_lines: bool,
}

impl ConfigFact {
    /// Whether `config` is the node's, and not the defaults in place of what could not be read.
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.read, ConfigRead::Invalid(_) | ConfigRead::Unread(..))
    }
}

/// The outcome of reading the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRead {
    /// The file is valid, with these warnings.
    Valid(Vec<String>),
    /// There is no file at the default path: the defaults are in force.
    Defaults,
    /// The file at the default path is not there any more, or cannot be used: this copy of what was last in force counts.
    LastInForce {
        /// The copy.
        copy: PathBuf,
        /// What is wrong with the file, one line per problem; empty if it is not there.
        wrong: Vec<String>,
    },
    /// The file is invalid, or was named and does not exist: one line per problem.
    Invalid(Vec<String>),
    /// The file could not be read.
    Unread(NotObserved, String),
}

/// A configured path that the sandbox of the agent's unit keeps from the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfReach {
    /// The field of the configuration, or of the kubeconfig.
    pub field: &'static str,
    /// The kubeconfig that names it; `None` if the configuration does.
    pub kubeconfig: Option<PathBuf>,
    /// The path; for a socket that the agent creates, its directory.
    pub path: PathBuf,
    /// Whether the agent does not see it; otherwise it sees it, but may not write to it.
    pub hidden: bool,
}

/// The active scopes of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// The number of scopes.
    pub count: usize,
    /// Some of them.
    pub seen: Vec<ScopeView>,
}

/// The installed files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Whether the unit file exists.
    pub unit: bool,
    /// Whether the unit is started at boot.
    pub enabled: bool,
    /// The prefixes (`cri-containerd-`, `crio-`, `docker-`) of scopes that a drop-in orders.
    pub ordered_scopes: Vec<&'static str>,
    /// The units of container runtimes that exist.
    pub runtime_units: Vec<&'static str>,
}

/// The runtime that has the pods, by what the running agent says, or else the configuration.
pub(super) fn runtime_in_use(agent: &Fact<Status>, config: &Config) -> RuntimeKind {
    let configured = config.node.runtime;
    let Some(status) = agent.known() else { return configured };
    let own = [RuntimeKind::Process, RuntimeKind::Systemd];
    // The other one is called by its container runtime's name.
    own.into_iter().find(|kind| kind.to_string() == status.runtime.name).unwrap_or(configured)
}

/// The prefix of the scopes of Docker's containers, those of cri-dockerd among them.
pub(super) const DOCKERS_SCOPES: &str = "docker-";

/// The agent's unit.
pub(super) const UNIT: &str = "winddown.service";
/// What the agent stops before, and does not wait for as it starts.
pub(super) const ORDER: &str = "winddown-order.target";

/// Permissions that a kubelet's own credentials never have, and that an agent can do without.
pub(super) const TAINT_NODES: &str = "taint nodes";
pub(super) const LIST_BUDGETS: &str = "list poddisruptionbudgets.policy";
pub(super) const REQUEST_EVICTIONS: &str = "create evictionrequests.lifecycle.k8s.io";

/// Programs that kill processes to free memory.
pub(super) const KILLERS: [&str; 4] = ["systemd-oomd", "earlyoom", "nohang", "oomd"];

/// A kubelet's configuration for shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletConfig {
    /// The file that decides, with the line: `/var/lib/kubelet/config.yaml:12`.
    pub place: String,
    /// The file to change; not always the one that decides.
    pub file: String,
    /// Whether that file is not there yet: the lines are all of it.
    pub is_new: bool,
    /// The lines to write, or the fields to set, so that the kubelet leaves terminating its pods to others.
    pub lines: Vec<String>,
    /// Whether each of the two periods is a line of its own in that file, which a command can replace.
    pub is_plain: bool,
    /// Who writes that file again, and where to make a change that lasts; empty if its distribution does not.
    pub rewritten: &'static str,
    /// The unit to restart.
    pub unit: String,
    /// The setting in force, as text for users; empty if its graceful shutdown is disabled.
    pub enabled: String,
    /// The total time that it gives to pods.
    pub wanted: Duration,
    /// What to remove, and from where, so that a feature gate no longer disables its graceful shutdown; empty if none does.
    pub gate: String,
    /// The variable of its unit that names a proxy, which winddown does not use; empty if there is none.
    pub proxy: &'static str,
    /// Why it could not be read; empty if it could.
    pub problem: String,
}

/// The state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDirectory {
    /// The path.
    pub path: PathBuf,
    /// Why no file can be written to it; `None` if one can.
    pub unwritable: Option<String>,
    /// What is left on its disk.
    pub left: FreeSpace,
}

/// What has the place of the directory of the containers' logs, and is no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlaceOfLogs {
    /// The configured path.
    pub path: PathBuf,
    /// What is there, in words.
    pub what: String,
    /// The directory that it leads to, if it is a link to one.
    pub leads_to: Option<PathBuf>,
}

/// The control socket's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketFile {
    /// The path.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
    /// The UID of its owner.
    pub uid: u32,
    /// Its group: the name, or the number if it has no name.
    pub group: String,
    /// The permission bits of its directory.
    pub directory_mode: u32,
}

/// The system clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The current time.
    pub now: WallTime,
    /// The newest timestamp of files that were written in the past, with the file.
    pub newest: Option<(PathBuf, WallTime)>,
}

/// A command that shuts a machine down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownCommand {
    /// The path.
    pub path: PathBuf,
    /// The path that its symbolic links lead to.
    pub leads_to: PathBuf,
}

// === impl Fact ===

impl<T> Fact<T> {
    /// The value, if it was observed.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(seen) => Some(seen),
            Self::Unknown(..) => None,
        }
    }

    /// Why nothing was observed, if so.
    pub fn not_observed(&self) -> Option<NotObserved> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(kind, _) => Some(*kind),
        }
    }

    /// Not observed, because the root is not that of the running machine.
    pub fn not_live() -> Self {
        Self::Unknown(NotObserved::NotLive, "not the running machine".to_owned())
    }
}

// === impl Facts ===

impl Facts {
    /// The delay that is wanted: from the running agent if possible, otherwise from the file.
    pub(super) fn delay_wanted(&self) -> Duration {
        let running = self.agent.known().map(|status| status.lock.required_seconds);
        running.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or(self.wanted)
    }

    /// Whether systemd runs the agent's unit.
    pub(super) fn unit_is_active(&self) -> bool {
        let active = ["active", "reloading", "refreshing"];
        self.bus.service.known().is_some_and(|service| active.contains(&&*service.active_state))
    }

    /// Whether the agent would start: its unit is installed, and its configuration is not wrong.
    pub(super) fn unit_can_start(&self) -> bool {
        !matches!(self.config.read, ConfigRead::Invalid(_))
            && self.bus.service.known().is_some_and(|service| service.load_state == "loaded")
    }

    /// Whether the agent lacks nothing but its start: its unit is there, and was not started, or was stopped.
    pub(super) fn awaits_start(&self) -> bool {
        let is_stopped =
            self.bus.service.known().is_some_and(|service| service.active_state == "inactive");
        is_stopped
            && self.unit_can_start()
            && self.agent.not_observed() == Some(NotObserved::Absent)
    }

    /// The runtime that has the pods: a change of the file's takes effect when they have terminated.
    pub(super) fn runtime_in_use(&self) -> RuntimeKind {
        runtime_in_use(&self.agent, &self.config.config)
    }

    /// The mode of the agent, by what the running one says, or else the configuration: it reads that only as it starts.
    pub(super) fn mode_in_use(&self) -> Mode {
        match self.agent.known().map(|status| status.cluster.as_ref()) {
            None => self.config.config.node.mode,
            Some(None) => Mode::Standalone,
            Some(Some(cluster)) if cluster.is_beside_kubelet() => Mode::Companion,
            Some(Some(_)) => Mode::Cluster,
        }
    }

    /// Whether a kubelet runs the pods, and the agent ends them.
    pub(super) fn is_beside_kubelet(&self) -> bool {
        self.mode_in_use() == Mode::Companion
    }

    /// The path of a node's file as seen from here, for use in a command.
    pub(super) fn below_root(&self, file: &str) -> String {
        if self.live {
            return file.to_owned();
        }
        self.root.join(file.trim_start_matches('/')).display().to_string()
    }

    /// The `winddown install` command with `options`.
    pub(super) fn install(&self, options: &str) -> String {
        let gap = if options.is_empty() { "" } else { " " };
        if self.live {
            return format!("winddown install{gap}{options}");
        }
        format!("winddown install --root {}{gap}{options}", path_word(&self.root))
    }

    /// The unit of the configured container runtime, if it is known and exists.
    pub(super) fn runtime_unit(&self) -> Option<&'static str> {
        self.runtime_units().iter().copied().find(|unit| self.has_runtime_unit(unit))
    }

    /// Whether this is the unit of a container runtime, and exists.
    pub(super) fn has_runtime_unit(&self, unit: &str) -> bool {
        let installed = self.files.installed.known();
        installed.is_some_and(|installed| installed.runtime_units.contains(&unit))
    }

    /// The units that may run the configured container runtime; empty for runtimes of host processes.
    pub(super) fn runtime_units(&self) -> &'static [&'static str] {
        match self.config.config.node.runtime {
            RuntimeKind::Process | RuntimeKind::Systemd => &[],
            RuntimeKind::Cri => units_behind(&self.config.config.node.container_runtime_endpoint),
        }
    }
}

/// The prefix of the scopes in which a runtime with the systemd cgroup driver runs containers, judged by its socket.
pub(super) fn scope_prefix(endpoint: &str) -> &'static str {
    if endpoint.contains("cri-dockerd") {
        DOCKERS_SCOPES
    } else if endpoint.contains("crio") {
        "crio-"
    } else {
        "cri-containerd-"
    }
}

/// Words in the path of a runtime's socket, and the units that may serve it.
pub(super) const RUNTIME_UNITS: [(&str, &[&str]); 7] = [
    // RKE2 has its socket there as well.
    ("k3s", &["k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"]),
    ("rke2", &["rke2-server.service", "rke2-agent.service"]),
    ("k0s", &["k0scontroller.service", "k0sworker.service"]),
    ("microk8s", &["snap.microk8s.daemon-containerd.service"]),
    ("cri-dockerd", &["cri-docker.service", "cri-dockerd.service"]),
    ("crio", &["crio.service"]),
    ("containerd", &["containerd.service", "snap.k8s.containerd.service"]),
];

/// The units that may serve a runtime's socket, judged by its path; empty if the path is not known.
fn units_behind(endpoint: &str) -> &'static [&'static str] {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    let known = RUNTIME_UNITS;
    known.iter().find(|(word, _)| path.contains(word)).map_or(&[], |(_, units)| units)
}
