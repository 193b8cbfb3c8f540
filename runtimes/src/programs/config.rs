//! What the process runtime needs to know.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::environment::NodeFacts;
use winddown_engine::plan::Backoff;
use winddown_shared::{ON_REBOOT_ANNOTATION, OnReboot, Pod, UnsupportedField, WallClock};

/// The file name of the program that holds containers, and what lists of processes show.
pub(crate) const SHIM: &str = "winddown-shim";

/// Configuration of the process runtime. [`ProcessConfig::new`] fills in what rarely changes.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Records of pods and attempts. One agent at a time; must survive a restart of the agent.
    pub state_dir: PathBuf,
    /// Records with what must not reach a disk: in memory, as `/run` is. None keeps no such records, and
    /// after a restart of the agent the hooks of pods that it finds run without their environment.
    pub volatile_dir: Option<PathBuf>,
    /// Where pods read why they end and until when, a file each, in memory as `/run` is: see
    /// [`EndNotice`](winddown_shared::EndNotice). Every user must be able to pass through what is above it. None has no
    /// such files; hooks are told all the same.
    pub notice_dir: Option<PathBuf>,
    /// Container logs, laid out as `/var/log/pods` is.
    pub log_dir: PathBuf,
    /// How the supervisor is started.
    pub shim: ShimCommand,
    /// What containers may ask about the node.
    pub node: NodeFacts,
    /// Bytes after which a log file turns.
    pub log_max_bytes: u64,
    /// Log files kept per attempt, the current one included; at least 1.
    pub log_max_files: u32,
    /// The back-off of crashing containers.
    pub backoff: Backoff,
    /// Where pods have their cgroups.
    pub cgroups: CgroupParent,
    /// Which pods may run on through a soft-reboot. Only the runtime of transient services can do that.
    pub survivors: Survivors,
    /// Labels records and log lines.
    pub wall: WallClock,
    /// Where `/proc` is.
    pub proc_root: PathBuf,
    /// Where the root of the next user space is while a soft-reboot is to change to another one, `/run/nextroot`.
    pub next_root: PathBuf,
    /// How long a supervisor may take to say that its container has started.
    pub start_timeout: Duration,
    /// How long a container may take to be gone after SIGKILL before the stop is an error.
    pub kill_timeout: Duration,
    /// Supervisors being started at the same time.
    pub parallel_starts: usize,
}

/// Which pods may run on through a soft-reboot: those of some namespaces that ask for it ([`OnReboot::Survive`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// The namespaces. None by default.
    pub namespaces: BTreeSet<String>,
    /// Why this machine cannot do it, for the refusal of such pods.
    pub impossible: Option<String>,
}

/// Where pods have their cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupParent {
    /// They have none, and a pod with a limit is refused.
    None,
    /// They have none, and their limits are not applied: what a rehearsal runs uses next to nothing.
    Rehearsal,
    /// Below the unit that the agent runs as, in what was delegated to that. A pod with a limit that
    /// cannot be enforced there is refused.
    OwnUnit {
        /// Where control groups are, `/sys/fs/cgroup`.
        mount: PathBuf,
    },
    /// In this directory of cgroup v2, which is made; the one above must not have processes.
    Directory(PathBuf),
}

/// Program and leading arguments that reach [`shim::run`](winddown_shim::run).
#[derive(Clone, Debug)]
pub struct ShimCommand {
    /// The program, also for a child of this process.
    pub(crate) program: PathBuf,
    /// Arguments before those of the supervisor, for example `shim`.
    pub(crate) args: Vec<OsString>,
    /// Keeps the program that `program` means.
    _held: Option<Arc<File>>,
}

impl ProcessConfig {
    /// A configuration with the kubelet's defaults: logs of 5 files of 10 MiB, back-off from 10 s to
    /// 5 min. There are no cgroups, so a pod with a limit is refused: see [`cgroups`](Self::cgroups).
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
            shim,
            node: NodeFacts::of_this_host(Path::new("/proc")),
            log_max_bytes: 10 * 1024 * 1024,
            log_max_files: 5,
            backoff: Backoff::default(),
            cgroups: CgroupParent::None,
            survivors: Survivors::default(),
            wall,
            proc_root: "/proc".into(),
            next_root: "/run/nextroot".into(),
            start_timeout: Duration::from_secs(10),
            kill_timeout: Duration::from_secs(10),
            parallel_starts: 4,
        }
    }
}

impl Survivors {
    /// Whether `pod` is to run on through a soft-reboot.
    pub(crate) fn has(&self, pod: &Pod) -> bool {
        self.impossible.is_none() && self.may_have(pod)
    }

    /// Whether it asks for that, and may.
    fn may_have(&self, pod: &Pod) -> bool {
        OnReboot::of(pod) == Some(OnReboot::Survive) && self.namespaces.contains(&**pod.namespace())
    }

    /// What is refused of a pod that would survive elsewhere.
    pub(crate) fn unsupported(&self, pod: &Pod) -> Option<UnsupportedField> {
        let why = self.impossible.as_ref().filter(|_| self.may_have(pod))?;
        Some(UnsupportedField {
            field: format!("metadata.annotations[{ON_REBOOT_ANNOTATION}]"),
            why: format!("{why}, or write `restart`"),
        })
    }
}

impl ShimCommand {
    /// `program`, called with `args` before the supervisor's own arguments.
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: program.into(), args: args.into_iter().collect(), _held: None }
    }

    /// This very program with a hidden subcommand.
    pub fn subcommand(name: &str) -> Self {
        Self::new("/proc/self/exe", [name.into()])
    }

    /// The program `winddown-shim` in the directory of the running program.
    ///
    /// It stays the one that is there now: an upgrade replaces the file while the agent still runs, and
    /// the new program may expect other orders than this agent gives.
    ///
    /// # Errors
    /// It is not there, or cannot be opened.
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

    /// The command line by which a supervisor starts itself anew, with `word` at its end.
    pub(crate) fn again(&self, word: &str) -> Vec<String> {
        self.line("/proc/self/exe".into(), word)
    }

    /// The whole command line for another process, with `word` at its end.
    pub(crate) fn with(&self, word: &str) -> Vec<String> {
        self.line(self.program.to_string_lossy().into_owned(), word)
    }

    fn line(&self, program: String, word: &str) -> Vec<String> {
        let args = self.args.iter().map(|a| a.to_string_lossy().into_owned());
        std::iter::once(program).chain(args).chain([word.to_owned()]).collect()
    }
}
