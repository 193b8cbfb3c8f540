//! Watches the notice file for changes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use winddown_host::{Hint, Watch, Watched, Watcher};
use winddown_shared::error_chain;

/// Events of the file's directory, or of the nearest directory above it that exists.
pub(super) struct FileWatch {
    watch: Watch,
    /// The name of interest in the watched directory.
    name: Option<OsString>,
}

/// The result of [`attach`]: the watched directory, and the name in it that leads to the file.
pub(super) type Attached = Option<(Watched, OsString)>;

/// Watches the nearest existing directory above `file`. Blocks on the file system. Idempotent.
pub(super) fn attach(mut watcher: Watcher, file: &Path) -> Attached {
    let mut below: PathBuf = file.to_owned();
    while let (Some(directory), Some(name)) = (below.parent(), below.file_name()) {
        if let Some(watched) = watcher.add(directory) {
            return Some((watched, name.to_owned()));
        }
        below = directory.to_owned();
    }
    None
}

impl FileWatch {
    /// Opens a watch. Needs a tokio runtime with I/O. Without inotify the watch never fires.
    pub(super) fn open() -> Self {
        let (watch, opened) = Watch::open();
        if let Err(error) = opened {
            tracing::warn!(
                error = error_chain(&error),
                "inotify is not available: checking the notice file once a minute"
            );
        }
        Self { watch, name: None }
    }

    /// Returns a handle for [`attach`].
    pub(super) fn watcher(&self) -> Option<Watcher> {
        self.watch.watcher()
    }

    /// Follows what [`attach`] found, and stops watching a directory that is no longer the nearest.
    pub(super) fn attached(&mut self, attached: Attached) {
        let (watched, name) = attached.unzip();
        self.name = name;
        self.watch.follow(vec![watched]);
    }

    /// Waits until the file may have changed. Cancel-safe. Waits forever without inotify.
    pub(super) async fn changed(&mut self) {
        loop {
            match self.watch.next().await {
                Hint::Change(change) if !change.is_of(self.name.as_deref()) => {}
                Hint::Change(_) | Hint::Lost => return,
            }
        }
    }
}
