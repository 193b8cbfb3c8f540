//! Small state files that outlive the agent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use winddown_host::{Durability, if_exists, regular, replace, sync_directory};

/// How long to wait for the disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(1);

/// The most bytes of a file that are parsed.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A file that is replaced atomically: a reader sees the old or the new content, even after a crash.
#[derive(Debug)]
pub(crate) struct KeptFile {
    path: PathBuf,
    /// Number of the newest change. A slow write with an older number leaves the file alone.
    newest: watch::Sender<u64>,
    /// Held during each change, so that an older change cannot overwrite a newer one.
    changing: Arc<Mutex<()>>,
}

impl KeptFile {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), newest: watch::Sender::new(0), changing: Arc::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the content, or `None` if the file does not exist. Blocks on the file system.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let read = if_exists(regular::read_first(&self.path, MAX_FILE_BYTES))?;
        let Some(bytes) = read else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from)
    }

    /// Like [`read`](Self::read), for async code. A disk that hangs is an error.
    pub(crate) async fn load<T: DeserializeOwned + Send + 'static>(
        &self,
    ) -> Result<Option<T>, String> {
        let file = Self::at(&self.path);
        in_time(spawn_blocking(move || file.read())).await
    }

    /// Writes `content`, or removes the file if there is none. The change is on disk when this returns
    /// `Ok`. After an error it may still get there later.
    pub(crate) async fn store<T: Serialize + Send + 'static>(
        &self,
        content: Option<T>,
    ) -> Result<(), String> {
        let path = self.path.clone();
        let mut turn = 0;
        self.newest.send_modify(|newest| {
            *newest += 1;
            turn = *newest;
        });
        let (mut newest, changing) = (self.newest.subscribe(), Arc::clone(&self.changing));
        // While the disk hangs, only one thread waits for it, and only the newest change waits for that thread.
        in_time(tokio::spawn(async move {
            let changing = tokio::select! {
                biased;
                Ok(_) = newest.wait_for(|newest| *newest != turn) => return Ok(()),
                changing = changing.lock_owned() => changing,
            };
            let change = spawn_blocking(move || {
                let _changing = changing;
                match content {
                    Some(content) => write(&path, &content),
                    None => remove(&path),
                }
            });
            change.await.unwrap_or_else(|error| Err(io::Error::other(error)))
        }))
        .await
    }
}

/// Waits at most [`DISK_TIMEOUT`] for `work`, which continues after that.
async fn in_time<T>(work: JoinHandle<io::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(DISK_TIMEOUT, work).await {
        Ok(Ok(done)) => done.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the disk does not answer".to_owned()),
    }
}

fn write(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(content)?;
    text.push(b'\n');
    replace(file, 0o600, Durability::PowerCut, &text)
}

fn remove(file: &Path) -> io::Result<()> {
    match if_exists(std::fs::remove_file(file))? {
        Some(()) => sync_directory(file.parent().unwrap_or(Path::new("."))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
