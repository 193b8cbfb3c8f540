//! Removes the content of a directory, and nothing outside it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

/// Lists the mount points below `directory`, deepest first. If the mount table cannot be read, as in a chroot without
/// `/proc`, the list is empty: [`contents`] never crosses to another file system anyway.
pub(super) fn mounts_below(proc_root: &Path, directory: &Path) -> Vec<PathBuf> {
    // The kernel's mount table has resolved paths.
    let Ok(directory) = directory.canonicalize() else { return Vec::new() };
    let mut points = winddown_engine::mount_table::below(proc_root, &directory).unwrap_or_default();
    points.retain(|point| *point != directory);
    points
}

/// Removes the content of `directory`. Links are removed, not followed, even if one replaces a directory in the
/// meantime.
///
/// # Errors
/// Something could not be removed, or is on another file system than `directory`.
pub(super) fn contents(directory: &Path) -> io::Result<()> {
    let opened = openat(CWD, directory, OPEN, Mode::empty())?;
    let device = fstat(&opened)?.st_dev;
    empty(&opened, device)
}

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn empty(directory: &OwnedFd, device: u64) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            remove(directory.as_fd(), name, device)?;
        }
    }
    Ok(())
}

fn remove(parent: BorrowedFd<'_>, name: &CStr, device: u64) -> io::Result<()> {
    let facts = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        facts => facts?,
    };
    if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
        return gone(unlinkat(parent, name, AtFlags::empty()));
    }
    let below = openat(parent, name, OPEN, Mode::empty())?;
    if fstat(&below)?.st_dev != device {
        let name = name.to_string_lossy();
        let what = format!("{name} in it is on another file system: unmount that first");
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, what));
    }
    empty(&below, device)?;
    gone(unlinkat(parent, name, AtFlags::REMOVEDIR))
}

fn gone(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_go_and_what_they_lead_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (state, elsewhere) = (dir.path().join("state"), dir.path().join("elsewhere"));
        fs::create_dir_all(state.join("a/b")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("precious"), "x").unwrap();
        symlink(&elsewhere, state.join("a/link")).unwrap();
        symlink(elsewhere.join("precious"), state.join("file")).unwrap();
        symlink("nowhere", state.join("a/b/dead")).unwrap();
        contents(&state).unwrap();
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(elsewhere.join("precious")).unwrap(), "x");
        // A link in place of the directory itself is not followed either.
        symlink(&elsewhere, dir.path().join("moved")).unwrap();
        assert!(contents(&dir.path().join("moved")).is_err());
        assert!(elsewhere.join("precious").exists());
    }

    #[test]
    fn mounts_are_those_below_and_not_the_directory_itself_or_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap().join("state");
        fs::create_dir_all(state.join("pods/a")).unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let line =
            |point: &str| format!("1 1 0:1 / {}{point} rw - tmpfs tmpfs rw\n", state.display());
        let table = ["", "-2", "/pods", "/pods/a"].map(line).concat();
        fs::write(dir.path().join("proc/self/mountinfo"), table).unwrap();
        let found = mounts_below(&dir.path().join("proc"), &state);
        assert_eq!(found, [state.join("pods/a"), state.join("pods")]);
        assert!(mounts_below(&dir.path().join("no-proc"), &state).is_empty());
    }
}
