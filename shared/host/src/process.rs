//! What the kernel says of a process.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{kernel, regular};

/// The user IDs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Users {
    /// Who started it.
    pub real: u32,
    /// Whose rights it has now. `/proc/PID` belongs to this one.
    pub effective: u32,
    /// Whose rights it can take back.
    pub saved: u32,
    /// Whose files it may open.
    pub filesystem: u32,
}

impl Users {
    /// The users of the process whose directory in `/proc` is `process`. Blocking.
    ///
    /// # Errors
    /// The process is gone, or `/proc` cannot be read.
    pub fn of(process: &Path) -> io::Result<Self> {
        let status =
            regular::read_to_string(&process.join("status"), regular::MAX_CONFIGURATION_BYTES)?;
        Self::in_status(&status).ok_or_else(|| io::Error::other("its status has no line Uid:"))
    }

    /// The users in the text of `/proc/PID/status`.
    pub fn in_status(status: &str) -> Option<Self> {
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { real: next()?, effective: next()?, saved: next()?, filesystem: next()? })
    }

    /// Whether the process is entirely the user's: not a setuid program, whose name, arguments, environment and standard
    /// streams are those of whoever started it.
    pub fn are_all(self, user: u32) -> bool {
        [self.real, self.effective, self.saved, self.filesystem].iter().all(|one| *one == user)
    }
}

/// Whether a process runs a setuid program: any user may have started it, with arguments of their own. Some (sudo) take all
/// of root's IDs before they ask for a password, so that [`Users`] do not show it. No if the program cannot be looked at,
/// which root always can. Blocking.
pub fn is_setuid(process: &Path) -> bool {
    let program = std::fs::metadata(process.join("exe"));
    program.is_ok_and(|program| program.permissions().mode() & 0o4000 != 0)
}

/// The cgroups of a process, one per line; `None` if it is gone. Blocks for no longer than /proc does.
pub fn cgroups_of(pid: i32) -> Option<String> {
    kernel::read_to_string(format!("/proc/{pid}/cgroup")).ok()
}

/// Which signals this process was started to ignore: the lowest bit is that of signal 1. None without /proc.
pub fn ignored_signals() -> u64 {
    ignored_in_status(&kernel::read_to_string("/proc/self/status").unwrap_or_default())
}

fn ignored_in_status(status: &str) -> u64 {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn which_signals_are_ignored_is_known_from_the_mask() {
        for (mask, ignored) in [("0001", 1), ("1007", 0x1007), ("1006", 0x1006), ("", 0)] {
            let status = format!("SigBlk:\t0001\nSigIgn:\t{mask}\nSigCgt:\t0001\n");
            assert_eq!(ignored_in_status(&status), ignored, "{mask}");
        }
        assert_eq!(ignored_in_status(""), 0, "without /proc");
    }

    #[test]
    fn a_setuid_program_is_not_entirely_roots() {
        let of = |ids: &str| Users::in_status(&format!("Name:\tsu\nUid:\t{ids}\nGid:\t0\n"));
        assert!(of("0\t0\t0\t0").unwrap().are_all(0));
        for ids in ["1000\t0\t0\t0", "0\t1000\t0\t0", "0\t0\t1000\t0", "0\t0\t0\t1000"] {
            assert!(!of(ids).unwrap().are_all(0), "{ids}");
        }
        assert_eq!(of("0\t0\t0"), None);
        assert_eq!(Users::in_status(""), None);
    }

    #[test]
    fn a_program_is_setuid_by_its_mode() {
        let process = tempfile::tempdir().unwrap();
        let program = process.path().join("exe");
        assert!(!is_setuid(process.path()), "it has none");
        std::fs::write(&program, "").unwrap();
        for (mode, expected) in [(0o755, false), (0o4755, true), (0o2755, false)] {
            std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(is_setuid(process.path()), expected, "{mode:o}");
        }
    }

    #[test]
    fn this_process_is_its_own_users() {
        let users = Users::of(Path::new("/proc/self")).unwrap();
        assert!(users.are_all(rustix::process::geteuid().as_raw()));
        assert!(Users::of(Path::new("/proc/0")).is_err());
    }
}
