//! The file system operations of a spool.

use std::fmt::Debug;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use winddown_host::regular;

/// A file system. Every call may block.
// Over the limit because it is a table: one row per call of the file system.
pub(crate) trait Disk: Debug + Send + Sync {
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Writes a whole file and syncs it.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Syncs the names in a directory.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// Also when it is larger than `most` bytes.
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>>;
}

/// The machine's file systems.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Removes what an interrupted write left. A link in its place must not be followed.
        let _ = fs::remove_file(path);
        // Messages of pods can contain anything, so only the agent may read them.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        winddown_host::sync_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(path)?.filter_map(|entry| match entry {
            Ok(entry) => entry.file_name().into_string().ok().map(Ok),
            Err(error) => Some(Err(error)),
        });
        names.collect()
    }

    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        regular::read(path, most)
    }
}
