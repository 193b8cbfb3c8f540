//! Notification of changes in directories.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::inotify::{FileEvents, ReadFlags, WatchFlags, WatchMark, Watches};

/// Events of directories that are looked up again before each check.
///
/// Events are only a hint that a check is worthwhile: the kernel drops them when there are too
/// many, and some file systems have none.
pub struct Watch {
    events: Option<FileEvents>,
    watched: Vec<Option<Watched>>,
}

/// Adds directories to a [`Watch`], from a thread that may block.
pub struct Watcher(Watches);

/// A watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched(WatchMark);

/// The meaning of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Something changed.
    Change(Change),
    /// Events were lost, or none will follow: anything may have changed.
    Lost,
}

/// A change of a directory, or of a file in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The index of the directory in the list last passed to [`Watch::follow`].
    pub at: usize,
    /// The file; `None` for the directory itself.
    pub name: Option<OsString>,
    /// Whether a writer closed the file, or it was moved here, so that it is complete.
    pub is_complete: bool,
}

// === impl Watch ===

impl Watch {
    /// Creates a watch of no directory. Needs a tokio runtime with I/O.
    ///
    /// Without inotify, [`next`](Self::next) never resolves, and the error is the cause.
    pub fn open() -> (Self, io::Result<()>) {
        let (events, result) = match FileEvents::open() {
            Ok(events) => (Some(events), Ok(())),
            Err(error) => (None, Err(error)),
        };
        (Self { events, watched: Vec::new() }, result)
    }

    /// A handle that adds directories; `None` without inotify.
    pub fn watcher(&self) -> Option<Watcher> {
        self.events.as_ref().map(|events| Watcher(events.watches()))
    }

    /// Follows these directories from now on, and stops following earlier ones that are not among
    /// them. `None` keeps the index of a directory that does not exist.
    pub fn follow(&mut self, watched: Vec<Option<Watched>>) {
        let before = std::mem::replace(&mut self.watched, watched);
        let Some(Watcher(watches)) = self.watcher() else { return };
        for old in before.into_iter().flatten() {
            if !self.watched.iter().flatten().any(|kept| *kept == old) {
                // Fails if the directory is gone, and the watch with it.
                let _ = watches.remove(old.0);
            }
        }
    }

    /// The next hint. Cancel-safe. Never resolves if inotify is unavailable, or failed, which was
    /// reported as [`Hint::Lost`].
    pub async fn next(&mut self) -> Hint {
        loop {
            let Some(events) = &mut self.events else { return std::future::pending().await };
            let Ok(event) = events.next().await else {
                self.events = None;
                return Hint::Lost;
            };
            if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                return Hint::Lost;
            }
            let complete = ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO;
            let watched = Some(Watched(event.watched));
            if let Some(at) = self.watched.iter().position(|one| *one == watched) {
                let is_complete = event.flags.intersects(complete);
                return Hint::Change(Change { at, name: event.name, is_complete });
            }
        }
    }
}

// === impl Watcher ===

impl Watcher {
    /// Watches the directory that is at this path now; `None` if there is none. Blocks on the file
    /// system.
    ///
    /// Watching the same directory again has no effect, so call this before every check: later
    /// changes yield an event, and earlier ones are visible to the check.
    pub fn add(&mut self, directory: &Path) -> Option<Watched> {
        let changes = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        self.0.add(directory, changes).ok().map(Watched)
    }
}

// === impl Change ===

impl Change {
    /// Whether it may be about `name`: an event without a name is about the directory itself.
    pub fn is_of(&self, name: Option<&OsStr>) -> bool {
        self.name.is_none() || self.name.as_deref() == name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(directories: &[&Path]) -> Watch {
        let (mut watch, opened) = Watch::open();
        opened.unwrap();
        let mut watcher = watch.watcher().unwrap();
        watch.follow(directories.iter().map(|one| watcher.add(one)).collect());
        watch
    }

    #[tokio::test]
    async fn a_file_that_was_written_is_told_with_its_directory_and_its_name() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut watch = watch(&[a.path(), b.path()]);
        std::fs::write(b.path().join("pod.yaml"), "x").unwrap();
        let mut seen = Vec::new();
        while seen.last() != Some(&true) {
            let Hint::Change(change) = watch.next().await else { panic!("nothing was lost") };
            assert_eq!((change.at, change.name.as_deref()), (1, Some(OsStr::new("pod.yaml"))));
            assert!(change.is_of(Some(OsStr::new("pod.yaml"))));
            assert!(!change.is_of(Some(OsStr::new("other"))));
            seen.push(change.is_complete);
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_let_go_tells_nothing_more() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut watch = watch(&[a.path(), b.path()]);
        let kept = watch.watcher().unwrap().add(b.path());
        watch.follow(vec![None, kept]);
        std::fs::write(a.path().join("one"), "x").unwrap();
        std::fs::write(b.path().join("two"), "x").unwrap();
        let Hint::Change(change) = watch.next().await else { panic!("nothing was lost") };
        assert_eq!((change.at, change.name.as_deref()), (1, Some(OsStr::new("two"))));
        let missing = a.path().join("missing");
        assert_eq!(watch.watcher().unwrap().add(&missing), None);
    }
}
