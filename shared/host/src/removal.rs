//! Removes directories that others have written to, and nothing outside them.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::FilePlace;
use crate::regular::{self, OPEN};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// How deep directories are entered. What is deeper is first moved up: each level costs stack and a file descriptor,
/// and a pod can make more levels than the agent has of either.
const MAX_DEPTH: usize = 64;

/// Removes a directory with its content, or a file or link. Blocking.
///
/// # Errors
/// Something could not be removed, or something is mounted in `path`, or there is nothing at `path`.
pub fn tree(path: &Path) -> io::Result<()> {
    match contents(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(()) => fs::remove_dir(path),
    }
}

/// Removes the directory `name` below `directory` with its content, or a file or link. Only links above `directory`
/// are followed, as by [`regular`]. Blocking.
///
/// # Errors
/// As [`tree`]; also if there is a link on the way to it.
pub fn tree_below(directory: &Path, name: &Path) -> io::Result<()> {
    let own = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = name.parent().unwrap_or(Path::new(""));
    let above = regular::directory_below(directory, above)?;
    match openat(&above, own, OPEN, Mode::empty()) {
        // A link has the same error.
        Err(Errno::NOTDIR) => Ok(unlinkat(&above, own, AtFlags::empty())?),
        top => {
            empty(top?.as_fd())?;
            Ok(unlinkat(&above, own, AtFlags::REMOVEDIR)?)
        }
    }
}

/// Removes the content of `directory`. Links are removed, not followed, even if one replaces a directory in the
/// meantime. Blocking.
///
/// # Errors
/// Something could not be removed, or something is mounted in `directory`.
pub fn contents(directory: &Path) -> io::Result<()> {
    empty(openat(CWD, directory, OPEN, Mode::empty())?.as_fd())
}

fn empty(top: BorrowedFd<'_>) -> io::Result<()> {
    Removal { top, subvolume: None, place: FilePlace::of(top, c"")?, moved: 0 }.empty()
}

struct Removal<'a> {
    top: BorrowedFd<'a>,
    /// The subvolume in `top` that is removed, of all below `top` one at a time: only a subvolume itself can be moved to
    /// another one, so what is too deep in it is moved up no further than to it.
    subvolume: Option<BorrowedFd<'a>>,
    /// Of the subvolume, or of `top`.
    place: FilePlace,
    /// How many directories were moved up, or would have been.
    moved: u64,
}

impl<'a> Removal<'a> {
    fn empty(&mut self) -> io::Result<()> {
        loop {
            let before = self.moved;
            self.empty_directory(self.home(), 0)?;
            if self.moved == before {
                return Ok(());
            }
        }
    }

    fn home(&self) -> BorrowedFd<'a> {
        self.subvolume.unwrap_or(self.top)
    }

    fn empty_directory(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.remove(directory, name, depth)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        let facts = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            facts => facts?,
        };
        if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
            return gone(unlinkat(parent, name, AtFlags::empty()));
        }
        if depth == MAX_DEPTH {
            return self.move_up(parent, name, self.home());
        }
        let below = openat(parent, name, OPEN, Mode::empty())?;
        let place = FilePlace::of(below.as_fd(), c"")?;
        if !place.is_on_mount_of(self.place) {
            let name = name.to_string_lossy();
            let what = format!("{name} in it is on another file system: unmount that first");
            return Err(io::Error::new(io::ErrorKind::CrossesDevices, what));
        }
        if place.is_on_device_of(self.place) {
            self.empty_directory(below.as_fd(), depth + 1)?;
        } else if depth == 0 && self.subvolume.is_none() {
            let mut inner = Removal { subvolume: Some(below.as_fd()), place, ..*self };
            let emptied = inner.empty();
            self.moved = inner.moved;
            emptied?;
        } else {
            // The next pass finds it there, and enters no subvolume from within another.
            return self.move_up(parent, name, self.top);
        }
        gone(unlinkat(parent, name, AtFlags::REMOVEDIR))
    }

    /// Removes a directory that is empty, as is what a snapshot has in place of a subvolume, which cannot be moved. Moves
    /// others up, where the next pass removes them, under a name that nothing there has.
    fn move_up(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        to: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            removed => return gone(removed),
        }
        loop {
            let free = format!(".{}", self.moved);
            self.moved += 1;
            match renameat(parent, name, to, free) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                moved => return gone(moved),
            }
        }
    }
}

fn gone(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

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
        // A link in place of the directory itself is not followed either.
        let moved = dir.path().join("moved");
        symlink(&elsewhere, &moved).unwrap();
        assert!(contents(&moved).is_err());
        tree(&moved).unwrap();
        assert!(moved.symlink_metadata().is_err(), "the link is gone");
        symlink(&elsewhere, dir.path().join("pod")).unwrap();
        fs::create_dir(elsewhere.join("volumes")).unwrap();
        for name in ["pod/volumes", "pod/precious", "../x"] {
            assert!(tree_below(dir.path(), Path::new(name)).is_err(), "{name}");
        }
        tree_below(dir.path(), Path::new("pod")).unwrap();
        assert!(!dir.path().join("pod").is_symlink() && elsewhere.join("volumes").exists());
        assert_eq!(fs::read_to_string(elsewhere.join("precious")).unwrap(), "x");
        tree_below(dir.path(), Path::new("elsewhere/volumes")).unwrap();
        assert!(!elsewhere.join("volumes").exists());
    }

    /// A container can make one in a second, and `std::fs::remove_dir_all` overflows the stack on it.
    #[test]
    fn a_tree_is_removed_that_is_deeper_than_the_stack_and_the_file_descriptors_reach() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tree");
        fs::create_dir(&path).unwrap();
        let mut at = openat(CWD, &path, OPEN, Mode::empty()).unwrap();
        for level in 0..20_000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            if level % 1000 == 0 {
                // Names that moved directories would take.
                mkdirat(&at, ".0", Mode::RWXU).unwrap();
                mkdirat(&at, ".1", Mode::RWXU).unwrap();
            }
            at = openat(&at, "d", OPEN, Mode::empty()).unwrap();
        }
        drop(at);
        tree(&path).unwrap();
        assert!(!path.exists());
    }
}
