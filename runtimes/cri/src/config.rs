//! Configuration of the CRI runtime.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::container_plan::CrashBackoff;
use winddown_engine::environment::EnvironmentFacts;
use winddown_shared::{Retry, WallClock};

use super::slices::PodSlices;

/// Configuration of the CRI runtime. [`CriConfig::new`] fills in what rarely changes.
#[derive(Clone, Debug)]
pub struct CriConfig {
    /// The runtime's socket, as `unix:///path` or a path.
    pub endpoint: String,
    /// The directories of the agent and of this host.
    pub paths: CriPaths,
    /// Parents of directories that were created for pods and come as hostPath volumes with content
    /// from an API server. Like other volumes they may get SELinux labels.
    pub made_volumes: Vec<PathBuf>,
    /// Facts about the node that containers may refer to.
    pub node: EnvironmentFacts,
    /// The pods' cgroups.
    pub cgroups: CgroupSettings,
    /// Whether to signal containers directly where that has the same effect as asking the runtime: containers that are
    /// ordinary processes, as containerd's of type `io.containerd.runc.v2` and CRI-O's of runc and crun, with a known stop
    /// signal. `StopContainer` is still used for other containers, and to kill.
    pub signal_directly: bool,
    /// How pods resolve names.
    pub dns: Dns,
    /// CrashBackoff of crashing containers.
    pub backoff: CrashBackoff,
    /// CrashBackoff of images that cannot be pulled and containers that cannot be created.
    pub retry: CrashBackoff,
    /// Deadlines of calls, and intervals.
    pub times: CriTimes,
    /// How many containers are started at the same time.
    pub starts: Starts,
    /// Maximum number of images that are pulled at the same time. Others wait, however long that takes.
    pub parallel_pulls: usize,
    /// The containers' logs.
    pub logs: Logs,
    /// Clock for the times in statuses.
    pub wall: WallClock,
}

/// The directories of the agent and of this host.
#[derive(Clone, Debug)]
pub struct CriPaths {
    /// Directory for the pods' volumes, hosts files and termination messages. It can be used by one agent at a time,
    /// and must survive a restart of the agent.
    pub state: PathBuf,
    /// Directory, in memory, with a file per pod that says why and when the pod ends. Each container has its pod's
    /// directory mounted. See [`TerminationNotice`](winddown_engine::termination_notices::TerminationNotice). `None` disables the files.
    pub notices: Option<PathBuf>,
    /// Program that accepts [`host_mount::SUBCOMMAND`](super::host_mount::SUBCOMMAND) as its first argument, as a path
    /// that is valid outside the agent's sandbox.
    pub own_program: PathBuf,
    /// Directory of the profiles that `seccompProfile.localhostProfile` names.
    pub seccomp: PathBuf,
    /// Mount point of `/proc`, from which mounts and the processes that hold them are read.
    pub proc: PathBuf,
    /// Mount point of `/sys`, from which the sizes of huge pages are read.
    pub sys: PathBuf,
}

/// The pods' cgroups.
#[derive(Clone, Debug)]
pub struct CgroupSettings {
    /// Parent of the pods' cgroups: a name without slashes. `None` leaves the choice to the runtime.
    pub parent: Option<String>,
    /// The component that manages cgroups. `None` asks the runtime; if it does not say either, `parent` is not used,
    /// because the paths of the two drivers are incompatible.
    pub driver: Option<CgroupDriver>,
    /// The slices of pods, where systemd manages cgroups. With `None` a reload of systemd resets their CPU weights, and
    /// those of pods that are gone stay until the next boot.
    pub slices: Option<Arc<dyn PodSlices>>,
    /// Mount point of the cgroup file systems.
    pub mount: PathBuf,
}

/// How pods resolve names.
#[derive(Clone, Debug)]
pub struct Dns {
    /// Name servers for `dnsPolicy: ClusterFirst`; empty treats it as `Default`.
    pub servers: Vec<IpAddr>,
    /// Search domain for `dnsPolicy: ClusterFirst`, for example `cluster.local`.
    pub domain: String,
    /// Resolver file for pods with `dnsPolicy: Default`.
    pub resolv_conf: PathBuf,
    /// Resolver file with the name servers of the network, as systemd-resolved writes it. Pods with a network of
    /// their own get it where `resolv_conf` names only servers on this host.
    pub upstream_resolv_conf: PathBuf,
    /// Hosts file for pods on the host's network.
    pub hosts_file: PathBuf,
}

/// How many containers are started at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    /// Maximum number of sandboxes and containers that are started at the same time, over all pods.
    pub parallel: usize,
    /// How long a start waits for a free slot before it continues without one.
    pub patience: Duration,
}

/// The containers' logs.
#[derive(Clone, Debug)]
pub struct Logs {
    /// Directory for container logs; the kubelet's is `/var/log/pods`.
    pub dir: PathBuf,
    /// Directory, which has to exist, of links to the logs for log shippers; the kubelet's is `/var/log/containers`.
    /// `None`, the default, makes none.
    pub links: Option<PathBuf>,
    /// Size in bytes at which a container's log is rotated; 0 disables rotation.
    pub max_bytes: u64,
    /// Maximum number of log files per run, including the current one; at least 1.
    pub max_files: u32,
}

/// The component that manages cgroups, which determines the format of a cgroup parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// systemd: `parent-burstable-podUID.slice`.
    Systemd,
    /// The runtime itself: `/parent/burstable/podUID`.
    Cgroupfs,
}

/// Deadlines and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriTimes {
    /// Deadline of a call that only reads.
    pub ask: Duration,
    /// Deadline of any other call that creates or removes something. Pulling an image has none.
    pub change: Duration,
    /// Deadline of the call that creates a sandbox: a network plug-in may wait for an address or a device, and what is
    /// called off begins anew.
    pub sandbox: Duration,
    /// How long a container may take to exit after SIGKILL before the stop fails.
    pub kill: Duration,
    /// How long a start in progress may delay a stop.
    pub start_patience: Duration,
    /// Interval between two health checks of a healthy runtime. An unhealthy one is checked more
    /// often.
    pub health: Duration,
    /// Interval between two full listings, the safety net below events and pidfds; 30 s or more.
    pub relist: Duration,
}

impl CriConfig {
    /// A configuration with the kubelet's defaults.
    pub fn new(
        endpoint: impl Into<String>,
        state_dir: impl Into<PathBuf>,
        log_dir: impl Into<PathBuf>,
        wall: WallClock,
    ) -> Self {
        let node = EnvironmentFacts::of_this_host(Path::new("/proc"));
        Self {
            endpoint: endpoint.into(),
            paths: CriPaths {
                state: state_dir.into(),
                notices: None,
                own_program: std::env::current_exe().unwrap_or_else(|_| "winddown".into()),
                seccomp: "/var/lib/kubelet/seccomp".into(),
                proc: "/proc".into(),
                sys: "/sys".into(),
            },
            made_volumes: Vec::new(),
            node,
            cgroups: CgroupSettings {
                parent: Some("winddown".to_owned()),
                driver: None,
                slices: None,
                mount: "/sys/fs/cgroup".into(),
            },
            signal_directly: true,
            dns: Dns {
                servers: Vec::new(),
                domain: "cluster.local".to_owned(),
                resolv_conf: "/etc/resolv.conf".into(),
                upstream_resolv_conf: "/run/systemd/resolve/resolv.conf".into(),
                hosts_file: "/etc/hosts".into(),
            },
            backoff: CrashBackoff::default(),
            retry: CrashBackoff::default(),
            times: CriTimes::default(),
            starts: Starts { parallel: 8, patience: Duration::from_secs(10) },
            parallel_pulls: 2,
            logs: Logs {
                dir: log_dir.into(),
                links: None,
                max_bytes: 10 * 1024 * 1024,
                max_files: 5,
            },
            wall,
        }
    }
}

#[cfg(test)]
impl CriConfig {
    /// A configuration whose socket, `cri.sock`, and directories are in `dir`. Its clock stands still.
    pub(crate) fn below(dir: &Path) -> Self {
        let clock = WallClock::fixed(winddown_shared::WallTime::UNIX_EPOCH);
        let endpoint = dir.join("cri.sock").display().to_string();
        Self::new(endpoint, dir.join("state"), dir.join("logs"), clock)
    }
}

impl Default for CriTimes {
    fn default() -> Self {
        Self {
            ask: Duration::from_secs(10),
            change: Duration::from_secs(120),
            sandbox: Duration::from_secs(240),
            kill: Retry::KILL_TIMEOUT,
            start_patience: Duration::from_secs(2),
            health: winddown_host::beat::beats(4),
            relist: Duration::from_secs(60),
        }
    }
}
