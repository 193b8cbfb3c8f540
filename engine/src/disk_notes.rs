//! Notes on disk, written in the background: an empty file each.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use winddown_shared::error_chain;

/// Notes written in one go.
const BATCH: usize = 256;

/// Takes notes off the path of a stop. One thread at a time writes them, however many pods end; a
/// disk that hangs holds up the notes and nothing else.
///
/// They are not synced: what they are about does not outlive the machine either.
#[derive(Clone, Debug)]
pub struct Notes(mpsc::UnboundedSender<PathBuf>);

impl Notes {
    /// Must be called inside a tokio runtime. Ends with the last clone.
    pub fn start() -> Self {
        let (notes, mut queue) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut batch: Vec<PathBuf> = Vec::new();
            while queue.recv_many(&mut batch, BATCH).await > 0 {
                let paths = std::mem::take(&mut batch);
                let write_all = move || paths.iter().for_each(|path| write(path));
                let _ = tokio::task::spawn_blocking(write_all).await;
            }
        });
        Self(notes)
    }

    /// Has the note at `path` written soon.
    pub fn take(&self, path: PathBuf) {
        // The task ends with the runtime only.
        let _ = self.0.send(path);
    }
}

fn write(path: &Path) {
    if let Err(error) = File::create(path) {
        // The next agent goes without it: it would ask a container a second time to end.
        tracing::debug!(error = error_chain(&error), path = %path.display(), "a note is not written");
    }
}
