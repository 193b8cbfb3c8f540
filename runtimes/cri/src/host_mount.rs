//! What a sandboxed service cannot do for the volumes of a pod: a short program outside the sandbox does it.
//!
//! The agent's unit has neither the right to mount nor access to the system call, and the container runtime
//! would not see the agent's mounts. Nor may it set the set-group-ID bit by which the files in a volume belong to
//! the pod's `fsGroup`. A path could be handed to the runtime instead, but the runtime
//! resolves it again, and a container may have replaced it with a link meanwhile (CVE-2017-1002101). So
//! systemd is asked to run this same program, with no more rights than it needs, as a transient unit next
//! to the agent's. Each time takes a tenth of a second on a busy machine. Any user can read the command of a unit, and a
//! path may have the value of a variable in it, so the program takes its order from standard input: words, with a zero
//! byte between them.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use winddown_host::mount_table::{self, UnmountError};

use super::mounts;

/// The first argument that selects this mode of the program.
pub const SUBCOMMAND: &str = "host-mount";
/// How long the program may take.
const PATIENCE_S: u32 = 20;
/// The capabilities it needs: to mount, to reach files that containers of any user created, and to give directories to
/// a group that root is not in.
const CAPABILITIES: &str = "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER \
                            CAP_FSETID CAP_SYS_PTRACE";

/// An action outside the sandbox.
enum Task {
    Bind { volume: PathBuf, sub: PathBuf, target: PathBuf },
    Memory { path: PathBuf, size: Option<i64> },
    OpenToGroup(PathBuf),
    UnmountBelow(PathBuf),
}

/// Like [`mounts::bind_part`], but runs `program` if this process may not mount or create the part. Blocking.
///
/// # Errors
/// As there; also if the program could not be run.
pub(super) fn bind_part(
    program: &Path,
    proc_root: &Path,
    volume: &Path,
    sub: &Path,
    target: &Path,
) -> io::Result<()> {
    match mounts::bind_part(proc_root, volume, sub, target) {
        Err(error) if is_not_permitted(&error) => {
            let words = ["bind".as_ref(), volume.as_os_str(), sub.as_os_str(), target.as_os_str()];
            outside(program, &words)
        }
        outcome => outcome,
    }
}

/// Like [`mounts::memory`], but runs `program` if this process may not mount. Blocking.
///
/// # Errors
/// As there; also if the program could not be run.
pub(super) fn memory(program: &Path, path: &Path, size: Option<i64>) -> io::Result<()> {
    match mounts::memory(path, size) {
        Err(error) if is_not_permitted(&error) => {
            let size = size.unwrap_or_default().to_string();
            outside(program, &["memory".as_ref(), path.as_os_str(), size.as_ref()])
        }
        outcome => outcome,
    }
}

/// Like [`mounts::open_to_group`], but runs `program` if this process may not set the bit. Blocking.
///
/// # Errors
/// As there; also if the program could not be run.
pub(super) fn open_to_group(program: &Path, path: &Path) -> io::Result<()> {
    match mounts::open_to_group(path) {
        Err(error) if is_not_permitted(&error) => {
            outside(program, &["open-to-group".as_ref(), path.as_os_str()])
        }
        outcome => outcome,
    }
}

/// Like [`mount_table::unmount_below`], but runs `program` if this process may not unmount. Blocking.
///
/// # Errors
/// As there; also if the program could not be run.
pub(super) fn unmount_below(
    program: &Path,
    proc_root: &Path,
    path: &Path,
) -> Result<(), UnmountError> {
    match mount_table::unmount_below(proc_root, path) {
        Err(UnmountError::Refused { point, source }) if is_not_permitted(&source) => {
            let words = ["unmount-below".as_ref(), path.as_os_str()];
            outside(program, &words).map_err(|source| UnmountError::Refused { point, source })
        }
        outcome => outcome,
    }
}

/// The program's main function. It does what standard input says.
#[must_use]
pub fn run() -> ExitCode {
    let proc_root = Path::new("/proc");
    let mut order = Vec::new();
    // Of what cannot be read there is no whole order.
    let _ = io::stdin().read_to_end(&mut order);
    let words = order.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let done = match Task::read(words) {
        Some(Task::Bind { volume, sub, target }) => {
            mounts::bind_part(proc_root, &volume, &sub, &target).map_err(|e| e.to_string())
        }
        Some(Task::Memory { path, size }) => mounts::memory(&path, size).map_err(|e| e.to_string()),
        Some(Task::OpenToGroup(path)) => mounts::open_to_group(&path).map_err(|e| e.to_string()),
        Some(Task::UnmountBelow(path)) => mount_table::unmount_below(proc_root, &path)
            .map_err(|e| winddown_shared::error_chain(&e)),
        None => Err("bind VOLUME SUB TARGET, memory PATH BYTES, open-to-group PATH, or \
                     unmount-below PATH"
            .to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The caller reads it.
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Task {
    fn read(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let word = words.next()?;
        let mut path = || words.next().map(PathBuf::from);
        let task = match word.to_str()? {
            "bind" => Self::Bind { volume: path()?, sub: path()?, target: path()? },
            "memory" => {
                let path = path()?;
                // 0 leaves it to the kernel.
                let size: i64 = words.next()?.to_str()?.parse().ok()?;
                Self::Memory { path, size: Some(size).filter(|&bytes| bytes > 0) }
            }
            "open-to-group" => Self::OpenToGroup(path()?),
            "unmount-below" => Self::UnmountBelow(path()?),
            _ => return None,
        };
        // An empty `sub` would be the whole volume.
        let is_whole = match &task {
            Self::Bind { volume, sub, target } => {
                [volume, sub, target].iter().all(|path| is_path(path))
            }
            Self::Memory { path, .. } | Self::OpenToGroup(path) | Self::UnmountBelow(path) => {
                is_path(path)
            }
        };
        (is_whole && words.next().is_none()).then_some(task)
    }
}

fn is_path(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

/// Whether the system call is filtered, the capability is missing, or the unit has its own mount namespace.
fn is_not_permitted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
}

fn outside(program: &Path, words: &[&OsStr]) -> io::Result<()> {
    let mut command = Command::new("systemd-run");
    command
        .args(["--quiet", "--wait", "--pipe", "--collect", "--service-type=exec"])
        .arg("--description=winddown: a volume for a pod")
        // So that it also runs while the machine shuts down.
        .arg("--property=DefaultDependencies=no")
        .arg(format!("--property=RuntimeMaxSec={PATIENCE_S}"))
        .arg(format!("--property={CAPABILITIES}"))
        .arg("--property=NoNewPrivileges=yes")
        .arg("--property=MemoryDenyWriteExecute=yes")
        .arg("--")
        .arg(program)
        .arg(SUBCOMMAND)
        // NOTIFY_SOCKET and WATCHDOG_USEC are meant for the agent alone.
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut run = || {
        let mut child = command.spawn()?;
        if let Some(mut order) = child.stdin.take() {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            // What has not read it says why.
            let _ = order.write_all(&words.join(&0));
        }
        child.wait_with_output()
    };
    let cannot = |why: String| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("this service is not permitted to, and systemd-run cannot do it for it: {why}"),
        )
    };
    let output = run().map_err(|error| cannot(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    match said.trim() {
        "" => Err(cannot(output.status.to_string())),
        said => Err(io::Error::other(said.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_orders_are_read() {
        let read = |words: &[&str]| Task::read(words.iter().map(OsString::from)).is_some();
        assert!(read(&["bind", "/v", "a", "/t"]) && read(&["unmount-below", "/p"]));
        assert!(read(&["memory", "/p", "1048576"]) && read(&["memory", "/p", "0"]));
        assert!(read(&["open-to-group", "/p"]));
        for words in [
            &[][..],
            &["bind", "/v", "a"],
            &["bind", "/v", "", "/t"],
            &["unmount-below"],
            &["open-to-group", ""],
            &["memory", "/p"],
            &["memory", "/p", "1Mi"],
            &["memory", "", "1"],
            &["memory", "/p", "1", "2"],
            &["bind", "a", "b", "c", "d"],
        ] {
            assert!(!read(words), "{words:?}");
        }
        assert!(!read(&["mount", "/p"]));
    }
}
