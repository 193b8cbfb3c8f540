//! Runs the tools of the live host, if there is one.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags};
use serde::Deserialize;

use super::error::{HostError, InstallError};

/// Runs the host's tools (`systemctl`, `systemd-sysusers`). A trait, so that tests can record the commands.
pub trait Host {
    /// Runs a command and waits for it to exit.
    ///
    /// # Errors
    /// The command does not exist, failed or timed out.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), HostError>;

    /// Whether logind lists a kubelet's lock that delays shutdowns; `None` if that cannot be seen. A kubelet that was just
    /// restarted gets some seconds for it.
    fn kubelet_holds_lock(&self) -> Option<bool>;

    /// Whether pods of the process runtime run that an agent with this state directory has started; `None` if that cannot
    /// be seen.
    fn has_processes(&self, state: &Path) -> Option<bool>;
}

/// The host that this process runs on. Commands time out after two minutes, and are then killed.
#[derive(Clone, Copy, Debug)]
pub struct LiveHost;

impl LiveHost {
    /// Returns the live host, if `root` is its root directory and systemd runs it. In a chroot, an image build or a
    /// container without systemd there is none, and only files are installed.
    pub fn at(root: &Path) -> Option<Self> {
        // The same checks as sd_booted(), and as systemctl's for a chroot.
        let booted = Path::new("/run/systemd/system").is_dir();
        let same = |one: &str, other: &Path| same_directory(Path::new(one), other);
        // Only root can tell a chroot.
        let is_chroot = !same("/proc/1/root", Path::new("/")) && is_root();
        (booted && same("/", root) && !is_chroot).then_some(Self)
    }
}

/// Whether this process may change this machine.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether both paths lead to the same directory.
pub fn same_directory(one: &Path, other: &Path) -> bool {
    match (rustix::fs::stat(one), rustix::fs::stat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

impl Host for LiveHost {
    fn run(&self, program: &str, args: &[&str]) -> Result<(), HostError> {
        output(program, args).map(drop)
    }

    fn kubelet_holds_lock(&self) -> Option<bool> {
        for _ in 0..LOCK_CHECKS {
            let said = output("busctl", &LIST_INHIBITORS).ok()?;
            if lists_kubelet(&said)? {
                return Some(true);
            }
            // logind announces no locks.
            let _ = rustix::event::poll(&mut [], Some(&BETWEEN_LOOKS));
        }
        Some(false)
    }

    fn has_processes(&self, state: &Path) -> Option<bool> {
        // Others see only their own.
        let state = is_root().then(|| state.join("process"))?;
        winddown_runtimes::process::has_running(Path::new("/proc"), &state).ok()
    }
}

/// Together 10 s: a kubelet takes less from its start to its lock.
const LOCK_CHECKS: u32 = 40;
const BETWEEN_LOOKS: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

const LIST_INHIBITORS: [&str; 6] = [
    "--json=short",
    "call",
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
    "ListInhibitors",
];

/// Whether the answer has a delay lock of root's with the name that every kubelet uses.
fn lists_kubelet(answer: &str) -> Option<bool> {
    /// `what`, `who`, `why`, `mode`, `uid` and `pid`.
    type Lock = (String, String, String, String, u32, u32);
    #[derive(Deserialize)]
    struct CommandAnswer {
        data: (Vec<Lock>,),
    }
    let answer: CommandAnswer = serde_json::from_str(answer).ok()?;
    Some(answer.data.0.iter().any(|(what, who, _, mode, uid, _)| {
        let delays = mode == "delay" && what.split(':').any(|what| what == "shutdown");
        delays && who == "kubelet" && *uid == 0
    }))
}

/// The most that is read of what a command writes to either of its outputs.
const MOST_OUTPUT: usize = 256 * 1024;

/// Runs a command, and returns its standard output.
fn output(program: &str, args: &[&str]) -> Result<String, HostError> {
    let command = command_line(program, args);
    let (mut child, out, said) = match start(program, args) {
        Ok(started) => started,
        Err(source) => return Err(HostError::Start { command, source }),
    };
    if !ended_within(&child, COMMAND_TIMEOUT) {
        // Both fail only if it has just exited by itself.
        let _ = child.kill();
        let _ = child.wait();
        return Err(HostError::Timeout { command, after: COMMAND_TIMEOUT });
    }
    let status = match child.wait() {
        Ok(status) => status,
        Err(source) => return Err(HostError::Start { command, source }),
    };
    if status.success() {
        return Ok(beginning(&out, MOST_OUTPUT));
    }
    // The errors are only informative, so they are cut to a short length.
    let output = beginning(&said, 4096).trim().to_owned();
    Err(HostError::Failed { command, status, output })
}

fn beginning(file: &File, most: usize) -> String {
    let mut bytes = vec![0; most];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Starts a command with memfds as its standard output and error. Unlike a pipe, a memfd is never full, and reading it
/// does not wait for processes that the command leaves running.
fn start(program: &str, args: &[&str]) -> std::io::Result<(Child, File, File)> {
    let memfd = |name| rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let (out, said) = (memfd("stdout")?, memfd("stderr")?);
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()?;
    Ok((child, out, said))
}

pub(super) fn command_line(program: &str, args: &[&str]) -> String {
    [program].iter().chain(args).copied().collect::<Vec<_>>().join(" ")
}

/// The timeout of a command. Starting the agent waits for its READY=1, which waits for logind.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

fn ended_within(child: &Child, patience: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(fd)) = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) else {
        // No pidfd (Linux before 5.3): the wait that follows is unbounded.
        return true;
    };
    let patience =
        Timespec { tv_sec: i64::try_from(patience.as_secs()).unwrap_or(120), tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)), Ok(0))
}

/// Refuses what only root can do on this machine, before anything is looked at.
pub(super) fn unless_root(
    action: &'static str,
    root: &Path,
    dry_run: bool,
) -> Result<(), InstallError> {
    match same_directory(root, Path::new("/")) && !dry_run && !is_root() {
        true => Err(InstallError::NotRoot { action }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_says_very_much_when_it_fails_is_not_held_up_by_that() {
        let much = "head -c 300000 /dev/zero | tr '\\0' x >&2; exit 3";
        let error = LiveHost.run("sh", &["-c", much]).unwrap_err();
        let HostError::Failed { status, output, .. } = error else { panic!("{error}") };
        assert_eq!((status.code(), output.len()), (Some(3), 4096));
    }

    #[test]
    fn only_a_delay_lock_that_root_takes_under_a_kubelets_name_is_one() {
        for (lock, holds) in [
            (r#"["shutdown","kubelet","pods","delay",0,9]"#, true),
            (r#"["sleep:shutdown","kubelet","pods","delay",0,9]"#, true),
            (r#"["sleep","kubelet","pods","delay",0,9]"#, false),
            (r#"["shutdown","kubelet","pods","block",0,9]"#, false),
            (r#"["shutdown","kubelet","pods","delay",1000,9]"#, false),
            (r#"["shutdown","winddown","pods","delay",0,9]"#, false),
        ] {
            let answer = format!(r#"{{"type":"a(ssssuu)","data":[[{lock}]]}}"#);
            assert_eq!(lists_kubelet(&answer), Some(holds), "{lock}");
        }
        assert_eq!(lists_kubelet(r#"{"type":"a(ssssuu)","data":[[]]}"#), Some(false));
        assert_eq!(lists_kubelet("Call failed"), None);
    }
}
