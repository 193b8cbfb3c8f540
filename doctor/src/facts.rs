//! What was seen of a node, without a judgement.

use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::WallTime;
use winddown_systemd::drop_in::Setting;
use winddown_systemd::inspect::{LoginView, ScopeView, ServiceView, SliceView, SystemView};

use winddown_config::Config;
use winddown_control::api::{ReportEntry, Status};
use winddown_kubelet::processes::Process;
use winddown_static_pods::OthersMayWrite;

/// Something that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// It was seen.
    Known(T),
    /// It was not, and why, for people.
    Unseen(Unseen, String),
}

/// Why something was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It is not there.
    Absent,
    /// This user may not look.
    Denied,
    /// It did not answer in time.
    Silent,
    /// Looking failed.
    Failed,
    /// The root is not that of the running machine.
    NotLive,
}

/// Everything that was seen of a node.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The root is that of the running machine; otherwise only files were looked at.
    pub live: bool,
    /// What stands for `/`.
    pub root: PathBuf,
    /// The node's name, or the root's when it is not a running one.
    pub node: String,
    /// The configuration file.
    pub config: ConfigFact,
    /// The time that a shutdown needs to be delayed, by the configuration file.
    pub wanted: Duration,
    /// The time that the pods' groups get together, by the configuration file.
    pub budget: Duration,
    /// The agent's own picture.
    pub agent: Fact<Status>,
    /// logind's picture.
    pub login: Fact<LoginView>,
    /// The file that sets logind's delay, by the files on disk.
    pub setting: Fact<Option<Setting>>,
    /// The service manager.
    pub system: Fact<SystemView>,
    /// The agent's unit.
    pub service: Fact<ServiceView>,
    /// Containers' scopes.
    pub scopes: Fact<Scopes>,
    /// The slice that holds the pods' services. Looked at with the systemd runtime only.
    pub slice: Fact<SliceView>,
    /// What of pods' limits the agent cannot enforce, a line for each. Looked at with the process runtime only.
    pub unenforced: Fact<Vec<String>>,
    /// What is installed, by the files on disk.
    pub installed: Fact<Installed>,
    /// The container runtime's socket takes connections. Not looked at with the process runtime.
    pub endpoint: Fact<()>,
    /// Processes of interest: kubelets, and what kills processes when memory runs out.
    pub processes: Fact<Vec<Process>>,
    /// What a kubelet's configuration says about shutdowns, where there is one.
    pub kubelet: Fact<Option<KubeletConfig>>,
    /// What the API server would have to allow and does not; looked at beside a kubelet only.
    pub rights: Fact<Vec<String>>,
    /// Whether the API server's certificate is verified; looked at in a cluster only.
    pub server_verified: Fact<bool>,
    /// What in and above the directory of manifests others than root may write.
    pub others_may_write: Fact<Vec<OthersMayWrite>>,
    /// The state directory.
    pub state: Fact<StateDirectory>,
    /// Thresholds for evictions below which less is left now. Measured here, and of what is measured
    /// without a container runtime: the running agent knows better.
    pub shortages: Fact<Vec<Shortage>>,
    /// The control socket's file.
    pub socket: Fact<SocketFile>,
    /// The clock.
    pub clock: Clock,
    /// The newest report of a shutdown, if there is any.
    pub last: Fact<Option<ReportEntry>>,
    /// The commands that take a machine down.
    pub commands: Fact<Vec<Command>>,
}

/// The configuration file.
#[derive(Clone, Debug)]
pub struct ConfigFact {
    /// Where it is, as it is called on the node.
    pub file: PathBuf,
    /// What came of reading it.
    pub read: ConfigRead,
    /// The configuration; the defaults if it could not be read.
    pub config: Config,
    /// When the file was changed last.
    pub changed: Option<WallTime>,
}

/// What came of reading the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRead {
    /// It is valid; with what was noticed in it.
    Valid(Vec<String>),
    /// There is no file at the usual place: the defaults are in force.
    Defaults,
    /// It is wrong, or not there although it was named: one line each.
    Invalid(Vec<String>),
    /// It could not be read.
    Unread(Unseen, String),
}

/// Scopes of containers that are active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// How many there are.
    pub count: usize,
    /// Some of them.
    pub seen: Vec<ScopeView>,
}

/// What an installation put in place, by the files on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// The unit file is there.
    pub unit: bool,
    /// It is started at boot.
    pub enabled: bool,
    /// The prefixes (`cri-containerd-`, `crio-`) whose scopes are ordered by a drop-in.
    pub ordered_scopes: Vec<&'static str>,
}

/// Rights that a kubelet's own credentials never have, and that an agent can do without.
pub(super) const TAINT_NODES: &str = "taint nodes";
pub(super) const LIST_BUDGETS: &str = "list poddisruptionbudgets.policy";
pub(super) const REQUEST_EVICTIONS: &str = "create evictionrequests.lifecycle.k8s.io";

/// What is started to make memory by killing processes.
pub(super) const KILLERS: [&str; 4] = ["systemd-oomd", "earlyoom", "nohang", "oomd"];

/// What a kubelet's configuration says about shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletConfig {
    /// The file that decides, with the line: `/var/lib/kubelet/config.yaml:12`.
    pub place: String,
    /// The file to change; not always the one that decides.
    pub file: String,
    /// The unit to restart.
    pub unit: String,
    /// What it says, for people; empty when its graceful shutdown is off.
    pub enabled: String,
    /// It has groups by priority instead of two periods.
    pub by_priority: bool,
    /// All the time that it gives to pods.
    pub wanted: Duration,
    /// Why it could not be read; empty when it could.
    pub problem: String,
}

/// The state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// Why a file cannot be written to it; none when it can.
    pub unwritable: Option<String>,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free inodes; none where the file system has no fixed number.
    pub free_inodes: Option<u64>,
}

/// A threshold for evictions that is met: less is left than it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// `memory.available`, …
    pub signal: String,
    /// It is one of `evictionHard`.
    pub hard: bool,
    /// What is left: bytes, inodes or tasks.
    pub available: i64,
    /// The least there should be.
    pub threshold: i64,
    /// What there is in all.
    pub capacity: i64,
}

/// The control socket's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group: the name, or the number where it has none.
    pub group: String,
    /// The permission bits of its directory.
    pub directory_mode: u32,
}

/// The clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// What it shows.
    pub now: WallTime,
    /// It is kept in step with others.
    pub synchronised: Fact<bool>,
    /// The newest time stamp on files that were written in the past, with the file.
    pub newest: Option<(PathBuf, WallTime)>,
}

/// A command that takes a machine down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Where it is.
    pub path: PathBuf,
    /// What it leads to.
    pub leads_to: PathBuf,
}

// === impl Fact ===

impl<T> Fact<T> {
    /// What was seen, if it was.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(seen) => Some(seen),
            Self::Unseen(..) => None,
        }
    }

    /// Why it was not seen, if it was not.
    pub fn unseen(&self) -> Option<Unseen> {
        match self {
            Self::Known(_) => None,
            Self::Unseen(kind, _) => Some(*kind),
        }
    }

    /// Not looked at, since the root is not that of the running machine.
    pub fn not_live() -> Self {
        Self::Unseen(Unseen::NotLive, "not the running machine".to_owned())
    }
}

// === impl Facts ===

impl Facts {
    /// The delay that is wanted: the running agent knows better than the file.
    pub(super) fn delay_wanted(&self) -> Duration {
        let running = self.agent.known().map(|status| status.lock.wanted_seconds);
        running.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or(self.wanted)
    }

    /// What a file of the node is called from here, for a command.
    pub(super) fn below_root(&self, file: &str) -> String {
        if self.live {
            return file.to_owned();
        }
        self.root.join(file.trim_start_matches('/')).display().to_string()
    }

    /// The command that installs, with `options`.
    pub(super) fn install(&self, options: &str) -> String {
        let gap = if options.is_empty() { "" } else { " " };
        if self.live {
            return format!("winddown install{gap}{options}");
        }
        format!("winddown install --root {}{gap}{options}", self.root.display())
    }

    /// The units that may run the configured container runtime; none with the process runtime.
    pub(super) fn runtime_units(&self) -> &'static [&'static str] {
        match self.config.config.runtime {
            winddown_config::RuntimeKind::Process | winddown_config::RuntimeKind::Systemd => &[],
            winddown_config::RuntimeKind::Cri => {
                units_behind(&self.config.config.container_runtime_endpoint)
            }
        }
    }
}

/// The units that may be behind a runtime's socket, by its path; empty when it tells nothing.
fn units_behind(endpoint: &str) -> &'static [&'static str] {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    let known: [(&str, &[&str]); 7] = [
        ("k3s", &["k3s.service", "k3s-agent.service"]),
        ("rke2", &["rke2-server.service", "rke2-agent.service"]),
        ("k0s", &["k0scontroller.service", "k0sworker.service"]),
        ("microk8s", &["snap.microk8s.daemon-containerd.service"]),
        ("cri-dockerd", &["cri-docker.service"]),
        ("crio", &["crio.service"]),
        ("containerd", &["containerd.service"]),
    ];
    known.iter().find(|(word, _)| path.contains(word)).map_or(&[], |(_, units)| units)
}
