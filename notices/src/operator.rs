//! What an operator says, kept over a restart of the agent.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_shared::{Notice, WallClock, WallTime};

use crate::{Announcement, Voice, When};

#[cfg(test)]
mod tests;

/// A disk that takes longer is not waited for: the notice counts without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// No more of the file is read.
const LARGEST: usize = 4096;

/// Says what operators say through the control socket. It lasts for this boot: an agent that is
/// started again goes on with it, a node that comes up again does not. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    voice: Voice,
    file: PathBuf,
    boot_id: String,
    wall: WallClock,
    /// One change at a time, or the disk and the board could disagree.
    turn: Mutex<()>,
    /// Counts changes; a slow write that is no longer the newest leaves the file alone.
    newest: Arc<AtomicU64>,
}

/// What is on the disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    version: u32,
    boot_id: String,
    deadline: WallTime,
    text: String,
}

// === impl Operator ===

impl Operator {
    /// Says what is kept in `file` since the agent ran before in this boot, if anything is. Blocks
    /// on the file system.
    pub fn open(
        voice: Voice,
        file: impl Into<PathBuf>,
        boot_id: impl Into<String>,
        wall: WallClock,
    ) -> Self {
        let (file, boot_id) = (file.into(), boot_id.into());
        match read(&file) {
            // Without a boot id nobody can tell this boot from another.
            Ok(Some(kept))
                if kept.version == 1 && kept.boot_id == boot_id && !boot_id.is_empty() =>
            {
                let announced = Announcement::new(When::At(kept.deadline), &kept.text);
                voice.say(&announced, wall.now());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(
                "{} cannot be read: {error}; give the notice again if there was one",
                file.display()
            ),
        }
        let turn = Mutex::default();
        let newest = Arc::default();
        Self(Arc::new(Inner { voice, file, boot_id, wall, turn, newest }))
    }

    /// The notice that was given and not withdrawn.
    pub fn said(&self) -> Option<Arc<Notice>> {
        self.0.voice.said()
    }

    /// The node is gone at `deadline`. In force when this returns; dropping the future may leave it
    /// in force and not on the disk.
    pub async fn give(&self, deadline: WallTime, text: &str) {
        let announced = Announcement::new(When::At(deadline), text);
        let _turn = self.0.turn.lock().await;
        self.0.voice.say(&announced, self.0.wall.now());
        let kept = Kept {
            version: 1,
            boot_id: self.0.boot_id.clone(),
            deadline,
            text: announced.text.to_string(),
        };
        self.store(Some(kept)).await;
    }

    /// The node stays. Answers whether there was a notice to take back.
    pub async fn withdraw(&self) -> bool {
        let _turn = self.0.turn.lock().await;
        let was_there = self.0.voice.said().is_some();
        self.0.voice.withdraw();
        self.store(None).await;
        was_there
    }

    async fn store(&self, kept: Option<Kept>) {
        let file = self.0.file.clone();
        let newest = Arc::clone(&self.0.newest);
        let turn = newest.fetch_add(1, Ordering::SeqCst) + 1;
        let work = tokio::task::spawn_blocking(move || {
            if newest.load(Ordering::SeqCst) != turn {
                return Ok(());
            }
            match kept {
                Some(kept) => write(&file, &kept),
                None => remove(&file),
            }
        });
        let failed = match tokio::time::timeout(PATIENCE, work).await {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the disk does not answer".to_owned(),
        };
        tracing::warn!(
            "{}: {failed}; an agent that is started again will not know of this change",
            self.0.file.display()
        );
    }
}

fn read(file: &Path) -> io::Result<Option<Kept>> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = bytes.get(..LARGEST.min(bytes.len())).unwrap_or_default();
    serde_json::from_slice(bytes).map(Some).map_err(io::Error::from)
}

/// Replaces the file as a whole: a reader sees the old or the new one, after a crash too.
fn write(file: &Path, kept: &Kept) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(directory)?;
    serde_json::to_writer(&mut new, kept)?;
    new.write_all(b"\n")?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    sync(directory)
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
