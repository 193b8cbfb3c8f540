//! Watches the directory for changes.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use winddown_host::{Change, Hint, Watch, Watched, Watcher};
use winddown_shared::error_chain;

use super::file::EntryRole;

/// Index of the directory among the watched ones; the other is its parent, where it may appear and disappear.
const DIRECTORY: usize = 0;

/// Events of the directory and of its parent.
pub(super) struct DirectoryWatch(Watch);

/// The watched directories, as found by [`attach`].
#[derive(Default)]
pub(super) struct Attached(Vec<Option<Watched>>);

/// Watches the directory that has this path now, and its parent. Blocks on the file system.
pub(super) fn attach(mut watcher: Watcher, directory: &Path) -> Attached {
    let parent = directory.parent().and_then(|parent| watcher.add(parent));
    Attached(vec![watcher.add(directory), parent])
}

// === impl DirectoryWatch ===

impl DirectoryWatch {
    /// Opens the watch. Needs a tokio runtime with I/O. Without inotify it never reports anything.
    pub(super) fn open() -> Self {
        let (watch, opened) = Watch::open();
        if let Err(error) = opened {
            tracing::warn!(
                error = error_chain(&error),
                "inotify is not available: checking the manifests periodically"
            );
        }
        Self(watch)
    }

    /// A handle for [`attach`].
    pub(super) fn watcher(&self) -> Option<Watcher> {
        self.0.watcher()
    }

    /// Applies the result of [`attach`]. A directory that had this path before is no longer watched.
    pub(super) fn attached(&mut self, attached: Attached) {
        self.0.follow(attached.0);
    }

    /// Waits for the next change of `directory`. Returns the name of a file that is now complete, because a writer
    /// closed it or moved it here. Cancel-safe. Waits forever if there is no inotify.
    pub(super) async fn next(&mut self, directory: &Path) -> Option<OsString> {
        loop {
            match self.0.next().await {
                Hint::Lost => return None,
                Hint::Change(change) if change.at == DIRECTORY => {
                    // `..data` is the link that Kubernetes' tools replace to change all files at once.
                    let is_hidden =
                        |name: &OsStr| EntryRole::of(name) == EntryRole::Hidden && name != "..data";
                    let Change { name, is_complete, .. } = change;
                    if !name.as_deref().is_some_and(is_hidden) {
                        return name.filter(|_| is_complete);
                    }
                }
                Hint::Change(change) if change.is_of(directory.file_name()) => return None,
                Hint::Change(_) => {}
            }
        }
    }
}
