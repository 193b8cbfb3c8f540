//! Why the command of a hook or a probe could not be started, as its launcher reports it. That says nothing about the
//! container, and the exit code alone may be the command's own.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// The longest report that is read, in bytes.
const LONGEST_REPORT: u64 = 4096;

/// A file in memory, which the launcher finds below the agent's process.
#[derive(Debug)]
pub(crate) struct LauncherReport {
    file: File,
    path: PathBuf,
}

impl LauncherReport {
    /// Creates an empty one.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new(proc_root: &Path) -> io::Result<Self> {
        let file = File::from(memfd_create("winddown-start-report", MemfdFlags::CLOEXEC)?);
        let path = proc_root.join(format!("{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Self { file, path })
    }

    /// The path for other processes, while this exists.
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
