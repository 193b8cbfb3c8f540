//! Being told when the directory changes.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use winddown_files::{Change, Hint, Watch, Watched, Watcher};
use winddown_shared::error_chain;

use super::file::Role;

/// The directory among what is watched; the other is its parent, in which it comes and goes.
const DIRECTORY: usize = 0;

/// Events of the directory and of its parent.
pub(super) struct DirectoryWatch(Watch);

/// What is watched, as it was found by [`attach`].
#[derive(Default)]
pub(super) struct Attached(Vec<Option<Watched>>);

/// Watches the directory that has this path now. Blocks on the file system.
pub(super) fn attach(mut watcher: Watcher, directory: &Path) -> Attached {
    let parent = directory.parent().and_then(|parent| watcher.add(parent));
    Attached(vec![watcher.add(directory), parent])
}

// === impl DirectoryWatch ===

impl DirectoryWatch {
    /// Needs a tokio runtime with I/O. Without inotify it stays silent.
    pub(super) fn open() -> Self {
        let (watch, opened) = Watch::open();
        if let Err(error) = opened {
            tracing::warn!(
                error = error_chain(&error),
                "inotify is not available: manifests are looked at periodically"
            );
        }
        Self(watch)
    }

    /// A handle for [`attach`].
    pub(super) fn watcher(&self) -> Option<Watcher> {
        self.0.watcher()
    }

    /// Takes what [`attach`] found. A directory that had our path before is no longer watched.
    pub(super) fn attached(&mut self, attached: Attached) {
        self.0.follow(attached.0);
    }

    /// Waits for the next change of `directory`. A file that is complete now, because a writer closed it or
    /// moved it here, is named. Cancel-safe. Waits for ever when there is no inotify.
    pub(super) async fn next(&mut self, directory: &Path) -> Option<OsString> {
        loop {
            match self.0.next().await {
                Hint::Lost => return None,
                Hint::Change(change) if change.at == DIRECTORY => {
                    // `..data` is the link that Kubernetes' tools swap to change all files at once.
                    let is_hidden =
                        |name: &OsStr| Role::of(name) == Role::Hidden && name != "..data";
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
