//! What the CRI runtime needs to know.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_engine::environment::NodeFacts;
use winddown_engine::plan::Backoff;
use winddown_shared::WallClock;

/// Configuration of the CRI runtime. [`CriConfig::new`] fills in what rarely changes.
#[derive(Clone, Debug)]
pub struct CriConfig {
    /// The runtime's socket, as `unix:///path` or a path.
    pub endpoint: String,
    /// Volumes, hosts files and termination messages of pods. One agent at a time; must survive a
    /// restart of the agent.
    pub state_dir: PathBuf,
    /// Holds emptyDir volumes in memory where the agent may not mount: a directory of a file system in
    /// memory that the runtime sees too.
    pub memory_dir: PathBuf,
    /// Where pods read why they end and until when, a file each, in memory: each container has the pod's directory
    /// mounted. See [`EndNotice`](winddown_shared::EndNotice). None has no such files.
    pub notice_dir: Option<PathBuf>,
    /// Below it are directories that were made for pods and come as hostPath volumes: those whose bytes
    /// come from an API server. Like other volumes they may get SELinux labels.
    pub made_volumes: Vec<PathBuf>,
    /// The program whose first argument may be [`host_mount`](super::host_mount), as a path that holds
    /// outside of the agent's sandbox.
    pub own_program: PathBuf,
    /// Container logs; the kubelet's is `/var/log/pods`.
    pub log_dir: PathBuf,
    /// What containers may ask about the node.
    pub node: NodeFacts,
    /// Parent of the pods' cgroups: a name without slashes. None leaves it to the runtime.
    pub cgroup_parent: Option<String>,
    /// Who manages cgroups. None asks the runtime; if it does not say either, `cgroup_parent` is not
    /// used, because the two drivers' paths exclude each other.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Signal containers without the runtime where that is the same deed: containerd's runc containers
    /// with a known stop signal. `StopContainer` is still used where it is not, and to kill.
    pub signal_directly: bool,
    /// Where cgroups are mounted.
    pub cgroup_mount: PathBuf,
    /// Below it are the profiles that `seccompProfile.localhostProfile` names.
    pub seccomp_dir: PathBuf,
    /// Name servers of `dnsPolicy: ClusterFirst`; empty makes it `Default`.
    pub cluster_dns: Vec<IpAddr>,
    /// Search domain of `dnsPolicy: ClusterFirst`, for example `cluster.local`.
    pub cluster_domain: String,
    /// The resolver file that pods with `dnsPolicy: Default` get.
    pub resolv_conf: PathBuf,
    /// The resolver file with the name servers of the network, which pods with a network of their own
    /// get where the other one names only servers on this host: systemd-resolved writes it.
    pub upstream_resolv_conf: PathBuf,
    /// The hosts file that pods on the host's network get.
    pub hosts_file: PathBuf,
    /// The back-off of crashing containers.
    pub backoff: Backoff,
    /// The back-off of images that cannot be pulled and containers that cannot be created.
    pub retry: Backoff,
    /// How long calls may take.
    pub times: CriTimes,
    /// Sandboxes and containers being started at the same time, over all pods.
    pub parallel_starts: usize,
    /// How long a start waits for those before it; then it goes ahead.
    pub turn_patience: Duration,
    /// Images being pulled at the same time. Further ones wait, however long that takes.
    pub parallel_pulls: usize,
    /// Bytes after which a container's log turns; 0 never turns it.
    pub log_max_bytes: u64,
    /// Log files kept for a run, the current one included; at least 1.
    pub log_max_files: u32,
    /// Labels statuses.
    pub wall: WallClock,
    /// Where `/proc` is: what is mounted, and by whom it is held, is read there.
    pub proc_root: PathBuf,
}

/// Who manages cgroups: it decides how a parent is written.
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
    /// For a call that only asks.
    pub ask: Duration,
    /// For a call that makes or removes something.
    pub change: Duration,
    /// For pulling one image.
    pub pull: Duration,
    /// How long a container may take to be gone after SIGKILL before the stop is an error.
    pub kill: Duration,
    /// How long a start under way may hold up a stop.
    pub start_patience: Duration,
    /// Between two looks at the health of a runtime that is well. One that is not is looked at more
    /// often.
    pub health: Duration,
    /// Between two listings of everything, the safety net below events and pidfds; 30 s or more.
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
        Self {
            endpoint: endpoint.into(),
            state_dir: state_dir.into(),
            memory_dir: "/run/winddown/memory".into(),
            notice_dir: None,
            made_volumes: vec!["/run/winddown/volumes".into()],
            own_program: std::env::current_exe().unwrap_or_else(|_| "winddown".into()),
            log_dir: log_dir.into(),
            node: NodeFacts::of_this_host(Path::new("/proc")),
            cgroup_parent: Some("winddown".to_owned()),
            cgroup_driver: None,
            signal_directly: true,
            cgroup_mount: "/sys/fs/cgroup".into(),
            seccomp_dir: "/var/lib/kubelet/seccomp".into(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: "/etc/resolv.conf".into(),
            upstream_resolv_conf: "/run/systemd/resolve/resolv.conf".into(),
            hosts_file: "/etc/hosts".into(),
            backoff: Backoff::default(),
            retry: Backoff::default(),
            times: CriTimes::default(),
            parallel_starts: 8,
            turn_patience: Duration::from_secs(10),
            parallel_pulls: 2,
            log_max_bytes: 10 * 1024 * 1024,
            log_max_files: 5,
            wall,
            proc_root: "/proc".into(),
        }
    }
}

impl Default for CriTimes {
    fn default() -> Self {
        Self {
            ask: Duration::from_secs(10),
            change: Duration::from_secs(120),
            pull: Duration::from_secs(15 * 60),
            kill: Duration::from_secs(10),
            start_patience: Duration::from_secs(2),
            health: Duration::from_secs(15),
            relist: Duration::from_secs(60),
        }
    }
}
