//! Small files that outlive the agent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use winddown_files::{Survives, replace};

/// A disk that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// No more of a file is read.
const LARGEST: usize = 64 * 1024;

/// One file, written as a whole: a reader sees the old or the new one, after a crash too.
#[derive(Debug)]
pub(crate) struct KeptFile {
    path: PathBuf,
    /// Counts changes; a slow write that is no longer the newest leaves the file alone.
    newest: Arc<AtomicU64>,
    /// Held over each change: one that began before another is not the last to get there.
    changing: Arc<Mutex<()>>,
}

impl KeptFile {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), newest: Arc::default(), changing: Arc::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it; none if it is not there. Blocks on the file system.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = bytes.get(..LARGEST.min(bytes.len())).unwrap_or_default();
        serde_json::from_slice(bytes).map(Some).map_err(io::Error::from)
    }

    /// The same from a task; a disk that hangs is an error.
    pub(crate) async fn load<T: DeserializeOwned + Send + 'static>(
        &self,
    ) -> Result<Option<T>, String> {
        let file = Self::at(&self.path);
        in_time(move || file.read()).await
    }

    /// Puts `content` in it, or removes it. It is on the disk when this returns, or why not: then it
    /// may still get there later.
    pub(crate) async fn store<T: Serialize + Send + 'static>(
        &self,
        content: Option<T>,
    ) -> Result<(), String> {
        let path = self.path.clone();
        let (newest, changing) = (Arc::clone(&self.newest), Arc::clone(&self.changing));
        let turn = newest.fetch_add(1, Ordering::SeqCst) + 1;
        in_time(move || {
            let _changing = changing.lock().unwrap_or_else(PoisonError::into_inner);
            if newest.load(Ordering::SeqCst) != turn {
                return Ok(());
            }
            match content {
                Some(content) => write(&path, &content),
                None => remove(&path),
            }
        })
        .await
    }
}

/// Runs `work` where it may block, and waits for it for a while.
async fn in_time<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the disk does not answer".to_owned()),
    }
}

fn write(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(content)?;
    text.push(b'\n');
    replace(file, 0o600, Survives::PowerCut, &text)
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Ok(()) => sync(file.parent().unwrap_or(Path::new("."))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
