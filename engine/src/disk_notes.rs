//! Notes on disk, written in the background.

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

/// Notes written in one go.
const BATCH: usize = 256;

/// Takes notes off the path of a stop. One thread at a time writes them, however many pods end; a
/// disk that hangs holds up the notes and nothing else.
#[derive(Clone, Debug)]
pub struct Notes(mpsc::UnboundedSender<PathBuf>);

impl Notes {
    /// `write` writes one of them; it may block. Must be called inside a tokio runtime. Ends with the last
    /// clone.
    pub fn start(write: fn(&Path)) -> Self {
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
