//! File names and operations that all runtimes share.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::Dir;
use winddown_files::regular;
use winddown_shared::PodUid;
pub use winddown_shim::log::{
    MOST_FILES as MOST_LOGS, numbered as numbered_log, open as open_log, remove as remove_log,
};

/// Whether a name is safe as one component of a path. Kubernetes' own names always are; this check protects other pods'
/// files from a forged UID.
pub fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name != "."
        && name != ".."
        && !name.bytes().any(|b| b == b'/' || b == 0)
}

/// Makes paths absolute, because supervisors run in `/`.
///
/// # Errors
/// A path is empty, or the working directory is gone. Returns the path and the system's error.
pub fn make_absolute<'a>(
    paths: impl IntoIterator<Item = &'a mut PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    paths.into_iter().try_for_each(|path| {
        *path = std::path::absolute(&*path).map_err(|error| (path.clone(), error))?;
        Ok(())
    })
}

/// The directory of a pod's logs below that of all logs, named as in `/var/log/pods`.
pub fn pod_logs(all: &Path, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
    all.join(format!("{namespace}_{name}_{uid}"))
}

/// The path of a run's log below its pod's logs.
pub fn run_log(container: &str, attempt: u32) -> PathBuf {
    Path::new(container).join(format!("{attempt}.log"))
}

/// How many names at the end of the path of a note a pod may have replaced that has the directory of all pods as a
/// volume: `POD/CONTAINER/ATTEMPT/NOTE`.
const NOTE_NAMES: usize = 4;
/// The longest note, in bytes.
const LONGEST_NOTE: u64 = 64 * 1024;

/// Writes a note about a run, beside the files that its pod may write. It is not synced. Blocking.
///
/// # Errors
/// The disk cannot be written, something else has the note's name, or there is a link on the way to it.
pub fn write_note(path: &Path, content: &[u8]) -> io::Result<()> {
    let (pods, name) = regular::split(path, NOTE_NAMES);
    let mut file = regular::append_below(pods, name, 0o600)?;
    file.set_len(0)?;
    file.write_all(content)
}

/// Reads a note about a run. Blocking.
///
/// # Errors
/// As [`write_note`]; also if it does not exist, or is longer than any note.
pub fn read_note(path: &Path) -> io::Result<Vec<u8>> {
    let (pods, name) = regular::split(path, NOTE_NAMES);
    let mut note = Vec::new();
    regular::open_below(pods, name)?.take(LONGEST_NOTE + 1).read_to_end(&mut note)?;
    match note.len() as u64 > LONGEST_NOTE {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(note),
    }
}

/// Removes a note about a run, if it exists. Blocking.
pub fn remove_note(path: &Path) {
    let (pods, name) = regular::split(path, NOTE_NAMES);
    let _ = regular::remove_below(pods, name);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use super::*;

    #[test]
    fn a_note_is_neither_written_to_nor_read_from_where_a_link_leads() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("u/messages/main");
        std::fs::create_dir_all(&run).unwrap();
        let at = |name: &str| run.join(name);
        for content in ["a longer note", "note"] {
            write_note(&at("0.process"), content.as_bytes()).unwrap();
            assert_eq!(read_note(&at("0.process")).unwrap(), content.as_bytes());
        }
        std::fs::write(dir.path().join("secret"), "of somebody else").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), at("1.process")).unwrap();
        std::os::unix::fs::symlink(&run, dir.path().join("u/messages/linked")).unwrap();
        for path in [at("1.process"), dir.path().join("u/messages/linked/0.process")] {
            assert!(write_note(&path, b"").is_err() && read_note(&path).is_err());
        }
        remove_note(&dir.path().join("u/messages/linked/0.process"));
        assert_eq!(read_note(&at("0.process")).unwrap(), b"note");
        remove_note(&at("0.process"));
        remove_note(&at("1.process"));
        assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
        let secret = std::fs::read_to_string(dir.path().join("secret")).unwrap();
        assert_eq!(secret, "of somebody else");
    }

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
