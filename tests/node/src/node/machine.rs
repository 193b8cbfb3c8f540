//! The processes of a running node.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::line::Line;
use crate::{Base, Suite};

/// How long a killed node may take to exit before nspawn is killed as well.
const END: Duration = Duration::from_secs(10);

/// A running node. Dropping it does not stop the node.
#[derive(Debug)]
pub(super) struct Machine {
    /// Exits when nspawn does, with its exit status.
    unshare: Child,
    /// The host's PID of the node's first process, or of its kernel if it has its own; `None` until nspawn has created
    /// it.
    leader: Option<Pid>,
    /// The serial line of a node with its own kernel.
    line: Option<Arc<Line>>,
}

impl Machine {
    /// Starts nspawn for the node `name`, whose files are in `dir` over `base`.
    pub(super) fn start(name: &str, base: &Base, dir: &Path, console: &Path) -> io::Result<Self> {
        let open = || fs::File::options().create(true).append(true).open(console);
        // If the test is killed, the kernel kills unshare, therefore nspawn, and with it the whole process namespace
        // whose first process is nspawn. nspawn's own children would not be killed with it.
        let mut command = std::process::Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if Path::new("/run/systemd/system").exists() {
            // The host's systemd owns the control groups, so it is asked for one. (systemd-run execs the command that
            // follows, so the process stays the same.)
            command.args(["systemd-run", "--quiet", "--scope", "--property=Delegate=yes"]);
            command.arg(format!("--unit={name}"));
        }
        if base.suite() > Suite::Bookworm {
            command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        }
        let (line, theirs) = match base.has_kernel() {
            true => {
                let (ours, theirs) = UnixStream::pair()?;
                (Some(Arc::new(Line::open(ours)?)), Some(theirs))
            }
            false => (None, None),
        };
        command.args(["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]);
        if base.has_kernel() {
            // nspawn gives the others a network of their own.
            command.arg("--net");
        }
        let unshare = command
            .args(["--kill-child=KILL", "--mount-proc", "sh"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("boot.sh"))
            .arg(name)
            .arg(base.root())
            .arg(dir)
            .stdin(theirs.map_or_else(Stdio::null, |socket| OwnedFd::from(socket).into()))
            .stdout(open()?)
            .stderr(open()?)
            .spawn()?;
        Ok(Self { unshare, leader: None, line })
    }

    /// The serial line of a node with its own kernel.
    pub(super) fn line(&self) -> Option<&Arc<Line>> {
        self.line.as_ref()
    }

    /// Finds the node's first process.
    pub(super) fn find_leader(&mut self) -> Option<Pid> {
        if self.leader.is_none() {
            let first = first_of_namespace(self.unshare.id())?;
            let leader = match &self.line {
                // Until the node answers, this is a shell in the host's root.
                Some(line) => line.is_up().then_some(first),
                None => first_of_namespace(first),
            };
            self.leader = leader.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        }
        self.leader
    }

    /// The node's first process, once it was found.
    pub(super) fn leader(&self) -> Option<Pid> {
        self.leader
    }

    /// The path of the node's root folder on the host.
    pub(super) fn root(&self) -> Option<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.leader?));
        // boot.sh runs the kernel in the base, with the node's root mounted in it.
        Some(if self.line.is_some() { root.join("mnt") } else { root })
    }

    /// The host's PID of the process with this PID in the node.
    pub(super) fn host_pid(&self, pid: u32) -> Option<u32> {
        self.find(|process| {
            let status = fs::read_to_string(process.join("status")).ok()?;
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            Some(numbers.split_whitespace().next_back()? == pid.to_string())
        })
    }

    /// The host's PID of the node's process that was started with exactly these arguments.
    pub(super) fn host_pid_of(&self, argv: &[&str]) -> Option<u32> {
        // Each argument is terminated by a zero byte.
        let line: String = argv.iter().flat_map(|arg| [*arg, "\0"]).collect();
        self.find(|process| Some(fs::read(process.join("cmdline")).ok()? == line.as_bytes()))
    }

    /// The host's PID of the node's process that `is_it`, given its folder in `/proc`. None if the node has its own
    /// kernel, so that its processes are not the host's.
    fn find(&self, is_it: impl Fn(&Path) -> Option<bool>) -> Option<u32> {
        let leader = self.leader.filter(|_| self.line.is_none())?;
        let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
        let ours = namespace(Path::new(&format!("/proc/{leader}")))?;
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let process = entry.path();
            let is_wanted = is_it(&process)? && namespace(&process)? == ours;
            is_wanted.then(|| entry.file_name().to_str()?.parse().ok())?
        })
    }

    /// The processes of the node, in any of its namespaces, that have `word` as one of their arguments: the host's PID
    /// of each, and all its arguments.
    pub(super) fn processes_with(node: &str, word: &str) -> Vec<(u32, Vec<String>)> {
        // Containers have their own process namespaces; the control group shows that they belong to the node.
        let group = format!("/{node}");
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            let arguments: Vec<String> = arguments.map(|text| text.into_owned()).collect();
            arguments.iter().find(|argument| *argument == word)?;
            let groups = fs::read_to_string(entry.path().join("cgroup")).ok()?;
            groups.contains(&group).then_some((pid, arguments))
        });
        found.collect()
    }

    /// The root of the mounts that make up the node, as a path on the host: nspawn's own root.
    pub(super) fn outside(&self) -> Option<PathBuf> {
        let nspawn = first_of_namespace(self.unshare.id())?;
        Some(PathBuf::from(format!("/proc/{nspawn}/root")))
    }

    /// The exit status of nspawn; `None` while the node is on.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.unshare.try_wait().ok().flatten()
    }

    /// Kills everything in the node at once. Blocks for as long as the kernel needs for that, because `Drop` uses it.
    pub(super) fn kill(&mut self) {
        // When the first process of a process namespace dies, so do all others. nspawn reaps it, cleans up and exits.
        if let Some(leader) = self.leader {
            let _ = kill_process(leader, Signal::KILL);
            self.wait_for_unshare(END);
        }
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }

    fn wait_for_unshare(&self, limit: Duration) {
        let pid = i32::try_from(self.unshare.id()).ok().and_then(Pid::from_raw);
        let opened = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        if let (Some(Ok(pidfd)), Ok(limit)) = (opened, limit.try_into()) {
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit));
        }
    }
}

/// The child of `parent` that is process 1 of its namespace. The short-lived helper that nspawn starts first is not.
fn first_of_namespace(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().find_map(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let is_first = numbers.split_whitespace().next_back() == Some("1");
        is_first.then(|| pid.parse().ok())?
    })
}
