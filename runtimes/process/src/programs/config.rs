//! The configuration of the process runtime.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::container_plan::CrashBackoff;
use winddown_engine::environment::EnvironmentFacts;
use winddown_shared::{ON_REBOOT_ANNOTATION, OnReboot, Pod, Retry, UnsupportedField, WallClock};

/// The file name of the shim, and its name in process lists.
pub(crate) const SHIM: &str = "winddown-shim";

/// Configuration of the process runtime. [`ProcessConfig::new`] fills in what rarely changes.
// Over the limit because each field is a setting that embedders may change one by one.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Records of pods and attempts. Used by one agent at a time; must survive a restart of the agent.
    pub state_dir: PathBuf,
    /// Records with data that must not reach a disk: in memory, as `/run` is. With `None` no such records are kept, and
    /// after a restart of the agent the hooks of adopted pods run without their environment.
    pub volatile_dir: Option<PathBuf>,
    /// The directory of the files in which pods read why and when they will be stopped, one file for each pod, in
    /// memory as `/run` is: see [`TerminationNotice`](winddown_engine::termination_notices::TerminationNotice). Every user needs search permission on its
    /// parent directories. With `None` there are no such files; hooks get the notice all the same.
    pub notice_dir: Option<PathBuf>,
    /// Container logs, laid out as `/var/log/pods` is.
    pub log_dir: PathBuf,
    /// Directory, which has to exist, of links to the logs for log shippers; the kubelet's is `/var/log/containers`.
    /// `None`, the default, makes none.
    pub log_links: Option<PathBuf>,
    /// The command that starts the supervisor.
    pub shim: ShimCommand,
    /// Facts about the node that containers may refer to.
    pub node: EnvironmentFacts,
    /// The size in bytes at which a log file is rotated.
    pub log_max_bytes: u64,
    /// Log files kept per attempt, the current one included; at least 1.
    pub log_max_files: u32,
    /// The backoff of crashing containers.
    pub backoff: CrashBackoff,
    /// Where pods have their cgroups.
    pub cgroups: CgroupParent,
    /// Which pods may survive a soft-reboot. Only the systemd runtime supports that.
    pub survivors: Survivors,
    /// The clock that timestamps records and log lines.
    pub wall: WallClock,
    /// The path of `/proc`.
    pub proc_root: PathBuf,
    /// The path of the next root file system, which exists while a soft-reboot into it is pending: `/run/nextroot`.
    pub next_root: PathBuf,
    /// How long a supervisor may take to report that its container has started.
    pub start_timeout: Duration,
    /// How long a container may take to terminate after SIGKILL before the stop fails.
    pub kill_timeout: Duration,
    /// How many containers may be starting at the same time.
    pub parallel_starts: usize,
}

/// Which pods may survive a soft-reboot: those of certain namespaces that ask for it ([`OnReboot::Survive`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// The namespaces. None by default.
    pub namespaces: BTreeSet<String>,
    /// Why this machine does not support it, as the reason for refusing such pods.
    pub impossible: Option<String>,
}

/// Where pods have their cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupParent {
    /// No cgroups. The process runtime refuses a pod with a limit.
    None,
    /// No cgroups, and limits are not applied: the containers of a rehearsal use next to nothing.
    Rehearsal,
    /// Below the unit that the agent runs as, in the cgroups that were delegated to the unit; the systemd runtime's
    /// services have their own. A pod with a limit that cannot be enforced there is refused. The unit needs `Delegate=yes`
    /// and, with cgroup v2, `DelegateSubgroup=agent`, which systemd 254 and later know.
    OwnUnit {
        /// The mount point of cgroups, `/sys/fs/cgroup`.
        mount: PathBuf,
    },
    /// In this cgroup v2 directory, which is created; its parent must not contain processes.
    Directory(PathBuf),
}

/// The program and leading arguments that reach [`shim::run`](winddown_shim::run).
#[derive(Clone, Debug)]
pub struct ShimCommand {
    /// The program's path, which is also valid in a child of this process.
    pub(crate) program: PathBuf,
    /// Arguments before those of the supervisor, for example `shim`.
    pub(crate) args: Vec<OsString>,
    /// Keeps the file open that `program` refers to.
    _held: Option<Arc<File>>,
}

impl ProcessConfig {
    /// Creates a configuration with the kubelet's defaults: logs of 5 files of 10 MiB, backoff from 10 s to 5 min.
    /// There are no cgroups, so a pod with a limit is refused: see [`cgroups`](Self::cgroups).
    pub fn new(
        state_dir: impl Into<PathBuf>,
        log_dir: impl Into<PathBuf>,
        shim: ShimCommand,
        wall: WallClock,
    ) -> Self {
        Self {
            state_dir: state_dir.into(),
            volatile_dir: None,
            notice_dir: None,
            log_dir: log_dir.into(),
            log_links: None,
            shim,
            node: EnvironmentFacts::of_this_host(Path::new("/proc")),
            log_max_bytes: 10 * 1024 * 1024,
            log_max_files: 5,
            backoff: CrashBackoff::default(),
            cgroups: CgroupParent::None,
            survivors: Survivors::default(),
            wall,
            proc_root: "/proc".into(),
            next_root: "/run/nextroot".into(),
            start_timeout: Duration::from_secs(10),
            kill_timeout: Retry::KILL_TIMEOUT,
            parallel_starts: 4,
        }
    }
}

impl Survivors {
    /// Whether `pod` survives a soft-reboot.
    pub(crate) fn has(&self, pod: &Pod) -> bool {
        self.impossible.is_none() && self.may_have(pod)
    }

    /// Whether the pod asks to survive, and is allowed to.
    fn may_have(&self, pod: &Pod) -> bool {
        OnReboot::of(pod) == Some(OnReboot::Survive) && self.namespaces.contains(&**pod.namespace())
    }

    /// Returns the refused field of a pod that could survive on another machine.
    pub(crate) fn unsupported(&self, pod: &Pod) -> Option<UnsupportedField> {
        let why = self.impossible.as_ref().filter(|_| self.may_have(pod))?;
        let field = format!("metadata.annotations[{ON_REBOOT_ANNOTATION}]");
        Some(UnsupportedField::new(field, format!("{why}, or write `restart`")))
    }
}

impl ShimCommand {
    /// `program`, called with `args` before the supervisor's own arguments.
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: program.into(), args: args.into_iter().collect(), _held: None }
    }

    /// The running program, with a hidden subcommand.
    pub fn subcommand(name: &str) -> Self {
        Self::new("/proc/self/exe", [name.into()])
    }

    /// The program `winddown-shim` in the directory of the running program.
    ///
    /// The file is kept open: an upgrade replaces it while the agent still runs, and the new shim may expect other
    /// orders than this agent gives.
    ///
    /// # Errors
    /// The program does not exist or cannot be opened.
    pub fn beside_this_program() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_file_name(SHIM);
        let held = File::options().read(true).open(&path).map_err(|error| {
            let what =
                format!("{}: {error}; winddown needs it beside its other programs", path.display());
            io::Error::new(error.kind(), what)
        })?;
        let program = format!("/proc/self/fd/{}", held.as_raw_fd());
        Ok(Self { _held: Some(Arc::new(held)), ..Self::new(program, []) })
    }

    /// The command line with which a supervisor executes itself again, with `word` at its end.
    pub(crate) fn again(&self, word: &str) -> Vec<String> {
        self.line("/proc/self/exe".into(), word)
    }

    /// The whole command line for use by another process, with `word` at its end.
    pub(crate) fn with(&self, word: &str) -> Vec<String> {
        self.line(self.program.to_string_lossy().into_owned(), word)
    }

    fn line(&self, program: String, word: &str) -> Vec<String> {
        let args = self.args.iter().map(|a| a.to_string_lossy().into_owned());
        std::iter::once(program).chain(args).chain([word.to_owned()]).collect()
    }
}
