//! What an operator says, kept over a restart of the agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_shared::{BootClock, Notice, WallClock, WallTime};

use crate::announcement::one_line;
use crate::kept::KeptFile;
use crate::{Announcement, COMPARE, Voice, When};

#[cfg(test)]
mod tests;

/// Says what operators say through the control socket. It lasts for this boot: an agent that is
/// started again goes on with it, a node that comes up again does not. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operator(Arc<Inner>);

/// When the node is gone, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// A wall time: it moves with the wall clock when that is set.
    At(WallTime),
    /// So long after the kernel's boot, sleep included, whatever the wall clock does.
    SinceBoot(Duration),
}

#[derive(Debug)]
struct Inner {
    voice: Voice,
    file: KeptFile,
    boot_id: String,
    wall: WallClock,
    boot: BootClock,
    /// What is in force. One change at a time, or the disk and the board could disagree.
    given: Mutex<Option<Kept>>,
}

/// What is on the disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    version: u32,
    boot_id: String,
    #[serde(flatten)]
    deadline: KeptDeadline,
    text: String,
}

/// An agent that knows only one of them says that it cannot read the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum KeptDeadline {
    #[serde(rename = "deadline")]
    At(WallTime),
    #[serde(rename = "deadlineBootMs")]
    SinceBoot(u64),
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
        boot: BootClock,
    ) -> Self {
        let (file, boot_id) = (KeptFile::at(file), boot_id.into());
        let kept = file.read::<Kept>().unwrap_or_else(|error| {
            tracing::warn!(
                "{} cannot be read: {error}; give the notice again if there was one",
                file.path().display()
            );
            None
        });
        // Without a boot id nobody can tell this boot from another.
        let kept =
            kept.filter(|kept| kept.version == 1 && kept.boot_id == boot_id && !boot_id.is_empty());
        let mut inner = Inner { voice, file, boot_id, wall, boot, given: Mutex::default() };
        if let Some(kept) = &kept {
            inner.say(kept);
        }
        inner.given = Mutex::new(kept);
        Self(Arc::new(inner))
    }

    /// The notice that was given and not withdrawn.
    pub fn said(&self) -> Option<Arc<Notice>> {
        self.0.voice.said()
    }

    /// The node is gone at `deadline`. In force when this returns; dropping the future may leave it
    /// in force and not on the disk.
    pub async fn give(&self, deadline: Deadline, text: &str) {
        let kept = Kept {
            version: 1,
            boot_id: self.0.boot_id.clone(),
            deadline: match deadline {
                Deadline::At(at) => KeptDeadline::At(at),
                Deadline::SinceBoot(up) => {
                    KeptDeadline::SinceBoot(u64::try_from(up.as_millis()).unwrap_or(u64::MAX))
                }
            },
            text: one_line(text),
        };
        let mut given = self.0.given.lock().await;
        self.0.say(&kept);
        *given = Some(kept.clone());
        self.0.store(Some(kept)).await;
    }

    /// The node stays. Answers whether there was a notice to take back.
    pub async fn withdraw(&self) -> bool {
        let mut given = self.0.given.lock().await;
        let was_there = given.take().is_some();
        self.0.voice.withdraw();
        self.0.store(None).await;
        was_there
    }

    /// Compares the notice with its clock every few seconds while there is one: the wall clock may be
    /// set, and the clock that decides stands still while the machine sleeps. Never returns.
    pub async fn follow(&self) {
        let mut changes = self.0.voice.changes();
        loop {
            if self.said().is_some() {
                tokio::time::sleep(COMPARE).await;
                if let Some(kept) = &*self.0.given.lock().await {
                    self.0.say(kept);
                }
            } else if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

// === impl Inner ===

impl Inner {
    fn say(&self, kept: &Kept) {
        // The board only subtracts: a time since boot is as good to it as one since 1970.
        let since_boot = |up| WallTime::UNIX_EPOCH.checked_add(up).unwrap_or(WallTime::MAX);
        let (at, now) = match kept.deadline {
            KeptDeadline::At(at) => (at, self.wall.now()),
            KeptDeadline::SinceBoot(millis) => {
                (since_boot(Duration::from_millis(millis)), since_boot(self.boot.now()))
            }
        };
        self.voice.say(&Announcement::new(When::At(at), &kept.text), now);
    }

    async fn store(&self, kept: Option<Kept>) {
        if let Err(why) = self.file.store(kept).await {
            tracing::warn!(
                "{}: {why}; an agent that is started again will not know of this change",
                self.file.path().display()
            );
        }
    }
}
