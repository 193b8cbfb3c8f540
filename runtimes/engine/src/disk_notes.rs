//! Notes about runs on disk, written in the background: each is an empty file.

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use winddown_shared::error_chain;

use crate::files;

/// What an earlier agent has noted about a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotedRun {
    /// Whether it was sent the stop signal.
    pub asked: bool,
    /// Whether its probes had not found it ready.
    pub unready: bool,
    /// Whether its postStart hook was not over.
    pub hook: bool,
    /// Whether it was being stopped although its work was not done.
    pub cut_short: bool,
}

/// What is noted about a run while it holds, beside the stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunNote {
    /// Its probes have not found it ready.
    Unready,
    /// Its postStart hook is not over.
    Hook,
    /// It is stopped to be started again: its exit code does not say that its work is done.
    CutShort,
}

impl RunNote {
    /// All notes.
    pub const ALL: [Self; 3] = [Self::Unready, Self::Hook, Self::CutShort];

    /// The name of its file, beside what else names the run.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unready => "unready",
            Self::Hook => "hook",
            Self::CutShort => "cut-short",
        }
    }
}

/// The maximum number of notes in a batch.
const MAX_BATCH_NOTES: usize = 256;

/// Writes notes without delaying a stop. One thread at a time writes them, however many pods are stopped; a disk that
/// hangs delays the notes and nothing else.
///
/// They are not synced: the processes they refer to do not outlive the machine either.
#[derive(Clone, Debug)]
pub struct Notes(mpsc::UnboundedSender<Note>);

/// A note, and whether it holds.
type Note = (PathBuf, bool);

impl Notes {
    /// Starts the writer, which stops when the last clone is dropped. Must be called inside a tokio runtime.
    pub fn start() -> Self {
        let (notes, mut queue) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut batch: Vec<Note> = Vec::new();
            while queue.recv_many(&mut batch, MAX_BATCH_NOTES).await > 0 {
                let notes = std::mem::take(&mut batch);
                let write_all = move || {
                    for (path, holds) in &notes {
                        if *holds { write(path) } else { files::remove_note(path) }
                    }
                };
                let _ = tokio::task::spawn_blocking(write_all).await;
            }
        });
        Self(notes)
    }

    /// Queues the note at `path` to be written, or to be removed if it does not hold any more.
    pub fn set(&self, path: PathBuf, holds: bool) {
        // The task only ends with the tokio runtime.
        let _ = self.0.send((path, holds));
    }
}

fn write(path: &Path) {
    if let Err(error) = files::write_note(path, b"") {
        // Without it the next agent would send the container a second stop signal, or take it for ready.
        tracing::debug!(error = error_chain(&error), path = %path.display(), "cannot write a record");
    }
}
