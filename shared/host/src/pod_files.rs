//! Blocking work on files of pods.

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// What blocking work does with files of pods. They may be on a mount that hangs, so each kind of work has few threads:
/// the others are left for the agent's own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodFiles {
    /// Makes, writes or mounts them.
    Make,
    /// Unmounts or removes them.
    Remove,
}

/// The threads for each kind of work.
const THREADS: usize = 5;

static MAKING: Semaphore = Semaphore::const_new(THREADS);
static REMOVING: Semaphore = Semaphore::const_new(THREADS);

impl PodFiles {
    /// How many threads all kinds of work have together.
    pub const MOST_THREADS: usize = 2 * THREADS;

    /// Runs `work` on a blocking thread once its kind has one. Cancel-safe: work that has begun continues, and other
    /// work is given up.
    ///
    /// # Errors
    /// `work` panicked.
    pub async fn work<R: Send + 'static>(
        self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let turns = match self {
            Self::Make => &MAKING,
            Self::Remove => &REMOVING,
        };
        // It is never closed.
        let turn = turns.acquire().await.ok();
        spawn_blocking(move || {
            let _turn = turn;
            work()
        })
        .await
    }
}
