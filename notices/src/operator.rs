//! What an operator says, kept over a restart of the agent.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_shared::{Notice, WallClock, WallTime};

use crate::kept::KeptFile;
use crate::{Announcement, COMPARE, Voice, When};

#[cfg(test)]
mod tests;

/// Says what operators say through the control socket. It lasts for this boot: an agent that is
/// started again goes on with it, a node that comes up again does not. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    voice: Voice,
    file: KeptFile,
    boot_id: String,
    wall: WallClock,
    /// One change at a time, or the disk and the board could disagree.
    turn: Mutex<()>,
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
        let (file, boot_id) = (KeptFile::at(file), boot_id.into());
        match file.read::<Kept>() {
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
                file.path().display()
            ),
        }
        let turn = Mutex::default();
        Self(Arc::new(Inner { voice, file, boot_id, wall, turn }))
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

    /// Compares the notice with the wall clock every few seconds while there is one, as the clock may
    /// be set and the machine may sleep. Never returns.
    pub async fn follow(&self) {
        let mut changes = self.0.voice.changes();
        loop {
            if self.said().is_some() {
                tokio::time::sleep(COMPARE).await;
                self.0.voice.say_again(self.0.wall.now());
            } else if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn store(&self, kept: Option<Kept>) {
        if let Err(why) = self.0.file.store(kept).await {
            tracing::warn!(
                "{}: {why}; an agent that is started again will not know of this change",
                self.0.file.path().display()
            );
        }
    }
}
