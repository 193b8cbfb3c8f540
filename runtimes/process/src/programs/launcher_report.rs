//! Why the command of a hook or a probe could not be started, as its launcher reports it. That says nothing about the
//! container, and the exit code alone may be the command's own.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// The longest report that is read, in bytes.
const LONGEST_REPORT: u64 = 4096;

/// What the launcher wrote to a file in memory, which it finds below the agent's process.
#[derive(Debug)]
pub(crate) struct LauncherReport {
    file: File,
    path: PathBuf,
}

impl LauncherReport {
    /// Creates an empty one, and the file that the launcher opens while that is held.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new(proc_root: &Path) -> io::Result<(Self, OwnedFd)> {
        let held = memfd_create("winddown-start-report", MemfdFlags::CLOEXEC)?;
        let path = proc_root.join(format!("{}/fd/{}", std::process::id(), held.as_raw_fd()));
        Ok((Self { file: File::from(held.try_clone()?), path }, held))
    }

    /// The path for other processes.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// What the launcher wrote; nothing if the command was started, or if the launcher could not open the file.
    pub(crate) fn read(mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        self.file.rewind()?;
        self.file.take(LONGEST_REPORT).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        Ok((!text.is_empty()).then_some(text))
    }
}
