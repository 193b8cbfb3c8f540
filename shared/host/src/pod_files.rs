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
    /// Unmounts them. A shutdown waits for that, and must not wait for [`Remove`](Self::Remove): a few pods with millions of
    /// files take its threads for minutes.
    Unmount,
    /// Removes them.
    Remove,
}

/// The threads for each kind of work.
const THREADS: usize = 5;

static MAKING: Semaphore = Semaphore::const_new(THREADS);
static UNMOUNTING: Semaphore = Semaphore::const_new(THREADS);
static REMOVING: Semaphore = Semaphore::const_new(THREADS);

impl PodFiles {
    /// How many threads all kinds of work have together.
    pub const MOST_THREADS: usize = 3 * THREADS;

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
            Self::Unmount => &UNMOUNTING,
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    use super::*;

    /// A shutdown waited for them, and its report named the other pods' volumes as left.
    #[tokio::test]
    async fn removals_that_take_long_hold_up_no_unmount() {
        let last = Arc::new(Barrier::new(THREADS + 1));
        let removals: Vec<_> = (0..THREADS)
            .map(|_| {
                let last = Arc::clone(&last);
                tokio::spawn(PodFiles::Remove.work(move || last.wait().is_leader()))
            })
            .collect();
        tokio::task::yield_now().await;
        let unmount = PodFiles::Unmount.work(|| ());
        let unmounted = tokio::time::timeout(Duration::from_secs(5), unmount).await;
        last.wait();
        for removal in removals {
            removal.await.unwrap().unwrap();
        }
        unmounted.unwrap().unwrap();
    }
}
