//! Tells whose a process is.

use std::io;
use std::path::Path;

use super::regular;

/// The user IDs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn this_process_is_its_own_users() {
        let users = Users::of(Path::new("/proc/self")).unwrap();
        assert!(users.are_all(rustix::process::geteuid().as_raw()));
        assert!(Users::of(Path::new("/proc/0")).is_err());
    }
}
