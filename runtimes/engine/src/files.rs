//! File names and operations that all runtimes share.

use std::fs::DirBuilder;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub use winddown_host::pod_logs::{
    is_safe, logged_runs, logs_of_container, pod_logs, remove as remove_log, run_log,
};
use winddown_host::regular;
use winddown_shared::error_chain;

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

/// Opens the directory of all logs, which is created with `mode` if it does not exist. Blocking.
///
/// # Errors
/// It cannot be created, or something else has its place ([`io::ErrorKind::NotADirectory`]). That may be a link which a
/// pod has made that has the directory above as a volume, so none is followed, whoever made it: root in a container is
/// root.
pub fn log_directory(all: &Path, mode: u32) -> io::Result<OwnedFd> {
    let open = || regular::directory_below(all, Path::new(""));
    open().or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(mode).create(all)?;
            open()
        }
        _ => Err(error),
    })
}

/// Creates the directory of all logs as a runtime starts. Something else in its place is logged, and keeps no agent from
/// starting: what runs has to be terminated in order all the same. Blocking.
///
/// # Errors
/// As [`log_directory`], but for that.
pub fn prepare_log_directory(all: &Path, mode: u32) -> io::Result<()> {
    match log_directory(all, mode) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            tracing::error!(
                path = %all.display(), error = error_chain(&error),
                "what containers print is lost, or they do not start: there is no directory of logs. If a link of yours is \
                 in its place, name the directory itself in the configuration (podLogsDir); move anything else away. Then \
                 restart the agent"
            );
            Ok(())
        }
        opened => opened.map(drop),
    }
}

/// The most bytes of a file's name, in every file system that a node keeps its logs on.
pub const MAX_NAME_BYTES: usize = 255;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use super::*;

    #[test]
    fn what_is_in_place_of_the_directory_of_logs_is_told_and_neither_used_nor_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        prepare_log_directory(&at("made/logs"), 0o750).unwrap();
        log_directory(&at("made/logs"), 0o711).unwrap();
        for (target, name) in [("made/logs", "link"), ("nowhere", "dead"), ("loop", "loop")] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
            let error = log_directory(&at(name), 0o711).unwrap_err().to_string();
            assert_eq!(error, format!("{name} is a symbolic link, not a directory"));
            prepare_log_directory(&at(name), 0o711).unwrap();
        }
        assert!(!at("nowhere").exists());
        std::fs::write(at("file"), "").unwrap();
        prepare_log_directory(&at("file"), 0o711).unwrap();
        assert!(prepare_log_directory(Path::new("/proc/none/logs"), 0o711).is_err());
    }

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
}
