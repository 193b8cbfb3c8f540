//! The lock on a state directory, which only one agent at a time uses.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{Instant, sleep};
use winddown_host::regular;

/// How long to wait for the lock to become free.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay between two attempts.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Takes the lock, waiting a moment for it: an agent that was killed while it forked leaves a child that holds a copy
/// of the lock until it executes its program. None if another agent holds it. Cancel-safe.
///
/// # Errors
/// The file cannot be created or locked.
pub async fn take(path: &Path) -> io::Result<Option<File>> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        let path = path.to_owned();
        let tried = tokio::task::spawn_blocking(move || attempt(&path)).await;
        let taken = tried.map_err(io::Error::other)??;
        if taken.is_some() || Instant::now() >= deadline {
            return Ok(taken);
        }
        sleep(LOCK_RETRY_INTERVAL).await;
    }
}

fn attempt(path: &Path) -> io::Result<Option<File>> {
    // Open for reading, it needs no disk that can be written; only NFS locks no such file.
    match regular::open(path).and_then(lock) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::BADF)) => {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600).open(path).and_then(lock)
        }
        tried => tried,
    }
}

fn lock(file: File) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_that_is_let_go_soon_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = take(&path).await.unwrap().unwrap();
        let second = take(&path);
        let let_go = async {
            sleep(Duration::from_millis(100)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(second, let_go);
        let second = second.unwrap();
        assert!(second.is_some());
        assert!(take(&path).await.unwrap().is_none(), "it is held for good");
        assert!(take(dir.path()).await.is_err(), "a directory is no lock");
    }
}
