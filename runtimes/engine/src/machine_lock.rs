//! The lock on what the pods of a machine run on: a container runtime, a service manager.
//!
//! An agent knows the containers there by labels or names that every agent uses. Two agents with state directories of
//! their own would take each other's pods over and terminate them.
//!
//! The lock is a socket that has a name and no file: it needs no directory that both may write, it is gone with the
//! process that holds it, however that exits, and it says which process that is.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use winddown_shared::critical;

/// How long to wait for the lock to become free.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay between two attempts.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The most bytes of a socket's name, without the first one. Of a longer name the end counts.
const MOST_BYTES: usize = 100;

/// The lock. Dropping it lets it go.
#[derive(Debug)]
pub struct MachineLock(Option<JoinHandle<()>>);

/// The process that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process ID; `None` if it is outside this PID namespace.
    pid: Option<i32>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}"),
            None => write!(f, "a process of another container"),
        }
    }
}

/// Takes the lock on what is reached at `socket`, which need not exist yet. Waits a moment for an agent that is
/// exiting. Must be called inside a tokio runtime with I/O enabled. Cancel-safe.
///
/// # Errors
/// Another process has it.
pub async fn take(socket: &Path) -> Result<MachineLock, LockHolder> {
    let name = name_of(socket);
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match UnixListener::bind(&name) {
            Ok(listener) => {
                // Others connect to learn who holds the lock.
                let answers = critical::spawn("machine lock", async move {
                    loop {
                        let _ = listener.accept().await;
                    }
                });
                return Ok(MachineLock(Some(answers)));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Ok(unlocked(socket, &error.to_string())),
        }
        if Instant::now() >= deadline {
            return match holder(&name).await {
                Ok((holder, true)) => Err(holder),
                // Every user can give a socket this name.
                Ok((holder, false)) => {
                    Ok(unlocked(socket, &format!("{holder} of another user keeps it")))
                }
                Err(error) => Ok(unlocked(socket, &error.to_string())),
            };
        }
        sleep(LOCK_RETRY_INTERVAL).await;
    }
}

fn unlocked(socket: &Path, why: &str) -> MachineLock {
    tracing::warn!(
        why,
        "cannot lock {}: make sure that no other agent runs pods there",
        socket.display()
    );
    MachineLock(None)
}

/// The process that holds the lock, and whether it may: it is root's, or this user's.
async fn holder(name: &Path) -> io::Result<(LockHolder, bool)> {
    let peer = UnixStream::connect(name).await?.peer_cred()?;
    let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&peer.uid());
    Ok((LockHolder { pid: peer.pid().filter(|pid| *pid > 0) }, is_trusted))
}

/// The name of the lock. The file system tells containers apart that share the network of their machine, with which
/// they share these names.
fn name_of(socket: &Path) -> PathBuf {
    let parent = socket.parent().and_then(|parent| parent.canonicalize().ok());
    let path = match (parent, socket.file_name()) {
        (Some(parent), Some(file)) => parent.join(file),
        _ => socket.to_owned(),
    };
    let device =
        path.ancestors().skip(1).find_map(|existing| Some(existing.metadata().ok()?.dev()));
    let name = format!("winddown-{:x}-{}", device.unwrap_or(0), path.display());
    let mut start = name.len().saturating_sub(MOST_BYTES);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    format!("\0{}", &name[start..]).into()
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        if let Some(answers) = &self.0 {
            answers.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_reached_at_a_socket_has_one_agent_by_whatever_path_until_it_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let (run, other) = (dir.path().join("run"), dir.path().join("var"));
        std::fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(&run, &other).unwrap();
        let first = take(&run.join("a.sock")).await.unwrap();
        let refused = take(&other.join("a.sock")).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("process {}", std::process::id()));
        let _beside = take(&run.join("b.sock")).await.unwrap();
        drop(first);
        let second = take(&run.join("a.sock")).await.unwrap();
        assert!(second.0.is_some(), "it is held again");
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_yet_and_one_with_a_long_path_are_locked() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["later/cri.sock".to_owned(), format!("{}/é.sock", "é".repeat(120))] {
            let path = dir.path().join(name);
            let _first = take(&path).await.unwrap();
            take(&path).await.unwrap_err();
        }
    }
}
