//! Which attempts were asked to end, kept on disk so that an agent that is killed in the middle of a
//! stop does not ask again when it is back: many programs take a second SIGTERM for "at once".

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::record;

/// An empty file in the attempt's directory.
const MARK: &str = "asked";
/// Notes written in one go.
const BATCH: usize = 256;

/// Takes notes off the path of a stop. One thread at a time writes them, however many pods end; a
/// disk that hangs holds up the notes and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Notes(mpsc::UnboundedSender<PathBuf>);

impl Notes {
    /// Must be called inside a tokio runtime. Ends with the last clone.
    pub(crate) fn start() -> Self {
        let (notes, mut queue) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut batch: Vec<PathBuf> = Vec::new();
            while queue.recv_many(&mut batch, BATCH).await > 0 {
                let attempts = std::mem::take(&mut batch);
                let write = move || attempts.iter().for_each(|attempt| mark(attempt));
                let _ = tokio::task::spawn_blocking(write).await;
            }
        });
        Self(notes)
    }

    /// Notes that the attempt whose directory this is was asked to end.
    pub(crate) fn take(&self, attempt: PathBuf) {
        // The task ends with the runtime only.
        let _ = self.0.send(attempt);
    }
}

/// Whether the attempt was asked to end.
pub(crate) fn was_asked(attempt: &Path) -> bool {
    attempt.join(MARK).exists()
}

/// Without a sync: lost with a crash of the machine, which ends the attempt anyway.
fn mark(attempt: &Path) {
    if let Err(error) = record::create(&attempt.join(MARK)) {
        tracing::debug!(%error, attempt = %attempt.display(), "not noted that it was asked to end");
    }
}
