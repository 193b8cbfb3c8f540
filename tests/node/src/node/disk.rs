//! A separate disk of a node for the agent's state.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{Node, NodeError};

/// The name that boot.sh looks for.
const IMAGE: &str = "state.img";
const MOUNTED: &str = "state";
const FILLER: &str = "filler";

/// The disk under `/var/lib/winddown`. As long as this value exists, its files can be read, even when the node is off
/// or was started again.
#[derive(Debug)]
pub struct Disk(File);

impl Node {
    /// Gives the node a disk of this many bytes under `/var/lib/winddown`, stored as a sparse file on the host's disk.
    /// The node is off, and was never started.
    ///
    /// # Errors
    /// [`NodeError::File`], [`NodeError::Start`] or [`NodeError::Command`] if the disk cannot be created.
    pub async fn add_disk(&self, bytes: u64) -> Result<(), NodeError> {
        let file = |path: &Path| {
            let path = path.to_path_buf();
            move |source| NodeError::File { path, source }
        };
        let (image, mounted) = (self.dir.path().join(IMAGE), self.dir.path().join(MOUNTED));
        fs::create_dir(&mounted).map_err(file(&mounted))?;
        let made = File::create(&image).and_then(|image| image.set_len(bytes));
        made.map_err(file(&image))?;
        let mut command = Command::new("mkfs.ext4");
        command.args(["-q", "-F"]).arg(&image).stdin(Stdio::null());
        let output = command
            .output()
            .await
            .map_err(|source| NodeError::Start { program: "mkfs.ext4".to_owned(), source })?;
        if output.status.success() {
            return Ok(());
        }
        Err(NodeError::Command {
            command: format!("mkfs.ext4 {}", image.display()),
            status: output.status,
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The disk that [`Self::add_disk`] added. The node is on.
    ///
    /// # Errors
    /// [`NodeError::Off`], [`NodeError::File`].
    pub fn disk(&self) -> Result<Disk, NodeError> {
        let outside = self.machine.as_ref().and_then(super::Machine::outside);
        let mounted = self.dir.path().join(MOUNTED);
        let path = super::in_root(&outside.ok_or(NodeError::Off)?, &mounted.to_string_lossy());
        File::open(&path).map(Disk).map_err(|source| NodeError::File { path, source })
    }
}

impl Disk {
    /// The path of the disk's files on the host.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Fills the disk to the last byte.
    ///
    /// # Errors
    /// An error of the operating system other than a full disk.
    pub fn fill(&self) -> io::Result<()> {
        use std::io::Write as _;
        let mut filler = File::create(self.path().join(FILLER))?;
        let mut chunk = vec![0_u8; 64 << 10];
        while !chunk.is_empty() {
            match filler.write_all(&chunk) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    // Smaller and smaller, because even a report needs little.
                    chunk.truncate(chunk.len() / 2);
                }
                Err(error) => return Err(error),
            }
        }
        // Otherwise the space is only reserved, and may become free again when it is allocated.
        match filler.sync_all() {
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(error),
            _ => Ok(()),
        }
    }

    /// Undoes [`Self::fill`].
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn empty(&self) -> io::Result<()> {
        fs::remove_file(self.path().join(FILLER))
    }

    /// Blocks all writes for this long. A separate process does it, so the disk continues afterwards even if the future
    /// is dropped.
    ///
    /// # Errors
    /// An error of the operating system, or the disk cannot be frozen.
    pub async fn hang(&self, lasts: Duration) -> io::Result<()> {
        let freeze = "fsfreeze --freeze . && { sleep \"$1\"; fsfreeze --unfreeze .; }";
        let status = Command::new("sh")
            .args(["-c", freeze, "sh", &lasts.as_secs_f64().to_string()])
            .current_dir(self.path())
            .stdin(Stdio::null())
            .status()
            .await?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("fsfreeze: {status}"))),
        }
    }
}
