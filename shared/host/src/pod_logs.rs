//! The logs of pods as files: their names, as in `/var/log/pods`, their rotation, and how they are read and followed.
//!
//! A pod may have the directory of all logs as a volume, so it may have replaced its log, or a directory above it, by a
//! link, a pipe or a device. A log is therefore opened, renamed and removed below the directory of all logs, where no
//! link is followed and nothing is waited for.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, renameat, statat, unlinkat};
use rustix::io::Errno;
use winddown_shared::PodUid;

use crate::regular;

mod file;
mod lines;
mod reading;

#[cfg(any(test, fuzzing))]
pub(crate) use lines::LogLines;
pub use reading::{
    LogError, LogOptions, LogReading, LoggedContainer, MAX_CONCURRENT_LOG_READS, PodLogs, status_of,
};

/// How many names at the end of a log's path its pod may have replaced: `POD/CONTAINER/ATTEMPT.log`.
pub const NAMES: usize = 3;
/// The largest number of files that a log may be configured to have.
pub const MOST_FILES: u32 = 1000;

/// Whether a name is safe as one component of a path. Kubernetes' own names always are; this check protects other pods'
/// files from a forged UID.
pub fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name != "."
        && name != ".."
        && !name.bytes().any(|b| b == b'/' || b == 0)
}

/// The directory of a pod's logs below that of all logs, named as in `/var/log/pods`.
pub fn pod_logs(all: &Path, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
    all.join(format!("{namespace}_{name}_{uid}"))
}

/// The path of a run's log below its pod's logs.
pub fn run_log(container: &str, attempt: u32) -> PathBuf {
    Path::new(container).join(format!("{attempt}.log"))
}

/// Opens the log at `path` for reading.
///
/// # Errors
/// It does not exist, is not a regular file, cannot be opened, or there is a link on the way to it.
pub fn open(path: &Path) -> io::Result<File> {
    let (logs, name) = regular::split(path, NAMES);
    regular::open_below(logs, name)
}

/// Opens the directory of a container's logs, in which its pod may have made links and more.
///
/// # Errors
/// It does not exist, or there is a link on the way to it.
pub fn logs_of_container(path: &Path) -> io::Result<OwnedFd> {
    // `POD/CONTAINER`
    let (logs, name) = regular::split(path, 2);
    regular::open_directory_below(logs, name)
}

/// The runs that have a log in this directory of a container, oldest first.
///
/// # Errors
/// The directory cannot be read, or there is a link on the way to it.
pub fn logged_runs(directory: &Path) -> io::Result<Vec<u32>> {
    let mut runs = Vec::new();
    for entry in Dir::read_from(logs_of_container(directory)?)? {
        runs.extend(entry?.file_name().to_str().ok().and_then(run_of_log));
    }
    runs.sort_unstable();
    runs.dedup();
    Ok(runs)
}

/// The number of the run whose log this file is: `NUMBER.log`, or `NUMBER.log.` and more once it was rotated.
fn run_of_log(file: &str) -> Option<u32> {
    let (number, rest) = file.split_once(".log")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| number.parse().ok())?
}

/// A log in the directory of its container.
struct LogPlace {
    directory: OwnedFd,
    name: OsString,
}

impl LogPlace {
    /// Opens the directory of the log at `path`.
    fn find(path: &Path) -> io::Result<Self> {
        let (logs, below) = regular::split(path, NAMES);
        let name = below.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let directory = below.parent().unwrap_or(Path::new(""));
        Ok(Self { directory: regular::directory_below(logs, directory)?, name })
    }

    /// The name of the rotated file of this number; 0 is the log itself.
    fn numbered(&self, n: u32) -> OsString {
        numbered(&self.name, n)
    }

    fn is_free(&self, n: u32) -> bool {
        let found = statat(&self.directory, self.numbered(n), AtFlags::SYMLINK_NOFOLLOW);
        found.is_err_and(|error| error == Errno::NOENT)
    }

    fn remove(&self, n: u32) -> rustix::io::Result<()> {
        unlinkat(&self.directory, self.numbered(n), AtFlags::empty())
    }
}

/// Rotates the log if it is longer than `max_bytes`: `0.log` becomes `0.log.1`, and so on up to `max_files` files.
/// Returns true if a new file has to be started; also if there is none, because then an earlier rotation was not
/// followed by one.
///
/// # Errors
/// As [`rotate`]; also if the log is not a regular file.
pub fn rotate_beyond(path: &Path, max_bytes: u64, max_files: u32) -> io::Result<bool> {
    // Nearly all logs are short. If there is a link on the way, this decides nothing but that nothing is done.
    if fs::symlink_metadata(path).is_ok_and(|log| log.is_file() && log.len() <= max_bytes) {
        return Ok(false);
    }
    match open(path) {
        Ok(log) if log.metadata()?.len() > max_bytes => rotate(path, max_files).map(|()| true),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Rotates the log: `0.log` becomes `0.log.1`, and so on up to `max_files` files.
///
/// # Errors
/// A file cannot be renamed or removed, or there is a link on the way to it. A missing file is no error when renaming.
pub fn rotate(path: &Path, max_files: u32) -> io::Result<()> {
    let place = LogPlace::find(path)?;
    let last = max_files.max(1) - 1;
    // Only up to the first free number: after a rotation that failed half-way, the older files have moved already.
    let free = (1..last).find(|&n| place.is_free(n)).unwrap_or(last);
    for n in (1..=free).rev() {
        let (from, to) = (place.numbered(n - 1), place.numbered(n));
        match renameat(&place.directory, from, &place.directory, to) {
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => {}
        }
    }
    if max_files <= 1 {
        place.remove(0)?;
    }
    Ok(())
}

/// Removes a log and its rotated files. Returns whether the log existed.
pub fn remove(path: &Path) -> bool {
    let Ok(place) = LogPlace::find(path) else { return false };
    let was_there = place.remove(0).is_ok();
    // A pod that makes more files than it is rotated into keeps the rest until its directory is removed.
    let _ = (1..=MOST_FILES).try_for_each(|n| place.remove(n));
    was_there
}

/// The name of the rotated file of this number of the log `name`, which may be a path; 0 is the log itself.
pub fn numbered(name: impl AsRef<std::ffi::OsStr>, n: u32) -> OsString {
    let mut name = name.as_ref().to_owned();
    if n > 0 {
        name.push(format!(".{n}"));
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use super::*;

    #[test]
    fn names_that_would_leave_their_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "../x", "/etc", "a\0b", &"x".repeat(254)] {
            assert!(!is_safe(name), "{name:?}");
        }
        for name in ["web", "web-0", "3f1c.x", "...", "a_b"] {
            assert!(is_safe(name), "{name:?}");
        }
    }

    #[test]
    fn the_runs_of_a_container_are_in_the_names_of_its_logs() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["9.log", "10.log", "10.log.1", "11.log.1", "x.log", "notes"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(logged_runs(dir.path()).unwrap(), [9, 10, 11]);
        std::os::unix::fs::symlink(".", dir.path().join("link")).unwrap();
        assert!(logged_runs(&dir.path().join("link")).is_err(), "what it leads to is not listed");
        assert!(logged_runs(&dir.path().join("missing")).is_err());
    }
}
