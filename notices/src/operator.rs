//! What an operator says, kept over a restart of the agent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_shared::{BootClock, Notice, WallClock, WallTime};

use crate::announcement::one_line;
use crate::kept::KeptFile;
use crate::{Announcement, COMPARE, NoticePublisher, When};

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

/// An operator's drain: no pod is let in until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long it may take, where the operator said so.
    pub time: Option<Duration>,
    /// The pods have been ended, or their time is over.
    pub is_over: bool,
}

#[derive(Debug)]
struct Inner {
    publisher: NoticePublisher,
    file: KeptFile,
    drain_file: KeptFile,
    found_drain: Option<Drain>,
    boot_id: String,
    wall: WallClock,
    boot: BootClock,
    /// What is in force. One change at a time, or the disk and the aggregator could disagree.
    given: Mutex<Option<Kept>>,
}

/// What is on the disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    version: u32,
    boot_id: String,
    /// When it was given; an agent of before did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_boot_ms: Option<u64>,
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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptDrain {
    version: u32,
    boot_id: String,
    given_boot_ms: u64,
    time_seconds: Option<u64>,
    is_over: bool,
}

// === impl Operator ===

impl Operator {
    /// Says what is kept in `directory` since the agent ran before in this boot, if anything is.
    /// Blocks on the file system.
    pub fn open(
        publisher: NoticePublisher,
        directory: impl AsRef<Path>,
        boot_id: impl Into<String>,
        wall: WallClock,
        boot: BootClock,
    ) -> Self {
        let (directory, boot_id) = (directory.as_ref(), boot_id.into());
        let file = KeptFile::at(directory.join("operator-notice.json"));
        let drain_file = KeptFile::at(directory.join("operator-drain.json"));
        // Without a boot id, this boot cannot be told from another; after a soft reboot, or in a
        // container that was started again, it is the same.
        let is_ours = |version: u32, of_boot: &str, given: Option<u64>| {
            let given = given.map(Duration::from_millis);
            let is_of_system = given.is_none_or(|given| given >= boot.system_start());
            version == 1 && of_boot == boot_id && !boot_id.is_empty() && is_of_system
        };
        let kept = read::<Kept>(&file, "give the notice again if there was one");
        let kept = kept.filter(|kept| is_ours(kept.version, &kept.boot_id, kept.given_boot_ms));
        let drain = read::<KeptDrain>(&drain_file, "drain the node again if it was drained");
        let drain = drain.filter(|d| is_ours(d.version, &d.boot_id, Some(d.given_boot_ms)));
        let found_drain = drain.map(|drain| Drain {
            time: drain.time_seconds.map(Duration::from_secs),
            is_over: drain.is_over,
        });
        let given = Mutex::default();
        let mut inner =
            Inner { publisher, file, drain_file, found_drain, boot_id, wall, boot, given };
        // No file is not a word of the operator's: the disk may have refused it.
        if let Some(kept) = &kept {
            inner.publish(kept);
        }
        inner.given = Mutex::new(kept);
        Self(Arc::new(inner))
    }

    /// The notice that was given and not withdrawn.
    pub fn published(&self) -> Option<Arc<Notice>> {
        self.0.publisher.published()
    }

    /// The node is gone at `deadline`. In force when this returns; dropping the future may leave it
    /// in force and not on the disk.
    pub async fn give(&self, deadline: Deadline, text: &str) {
        let kept = Kept {
            version: 1,
            boot_id: self.0.boot_id.clone(),
            given_boot_ms: Some(millis(self.0.boot.now())),
            deadline: match deadline {
                Deadline::At(at) => KeptDeadline::At(at),
                Deadline::SinceBoot(up) => KeptDeadline::SinceBoot(millis(up)),
            },
            text: one_line(text),
        };
        let mut given = self.0.given.lock().await;
        self.0.publish(&kept);
        *given = Some(kept.clone());
        self.0.store(Some(kept)).await;
    }

    /// The drain that an earlier agent of this boot has left.
    pub fn found_drain(&self) -> Option<Drain> {
        self.0.found_drain
    }

    /// Keeps that the node is drained, or that it is not any more.
    pub async fn note_drain(&self, drain: Option<Drain>) {
        let kept = drain.map(|drain| KeptDrain {
            version: 1,
            boot_id: self.0.boot_id.clone(),
            given_boot_ms: millis(self.0.boot.now()),
            time_seconds: drain.time.map(|time| time.as_secs()),
            is_over: drain.is_over,
        });
        self.0
            .drain_file
            .store(kept)
            .await
            .unwrap_or_else(|why| not_kept(&self.0.drain_file, &why));
    }

    /// The node stays. Answers whether there was a notice to take back.
    pub async fn withdraw(&self) -> bool {
        let mut given = self.0.given.lock().await;
        let was_there = given.take().is_some();
        self.0.publisher.withdraw();
        self.0.store(None).await;
        was_there
    }

    /// Compares the notice with its clock every few seconds while there is one: the wall clock may be
    /// set, and the clock that decides stands still while the machine sleeps. Never returns.
    pub async fn follow(&self) {
        let mut changes = self.0.publisher.changes();
        loop {
            if self.published().is_some() {
                tokio::time::sleep(COMPARE).await;
                if let Some(kept) = &*self.0.given.lock().await {
                    self.0.publish(kept);
                }
            } else if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

// === impl Inner ===

impl Inner {
    fn publish(&self, kept: &Kept) {
        // The aggregator only subtracts: a time since boot is as good to it as one since 1970.
        let since_boot = |up| WallTime::UNIX_EPOCH.checked_add(up).unwrap_or(WallTime::MAX);
        let (at, now) = match kept.deadline {
            KeptDeadline::At(at) => (at, self.wall.now()),
            KeptDeadline::SinceBoot(millis) => {
                (since_boot(Duration::from_millis(millis)), since_boot(self.boot.now()))
            }
        };
        self.publisher.publish(&Announcement::new(When::At(at), &kept.text), now);
    }

    async fn store(&self, kept: Option<Kept>) {
        self.file.store(kept).await.unwrap_or_else(|why| not_kept(&self.file, &why));
    }
}

/// What is in `file`; if that cannot be read, the log says what to do.
fn read<T: DeserializeOwned>(file: &KeptFile, next: &str) -> Option<T> {
    file.read().unwrap_or_else(|error| {
        tracing::warn!("{} cannot be read: {error}; {next}", file.path().display());
        None
    })
}

fn not_kept(file: &KeptFile, why: &str) {
    tracing::warn!(
        "{}: {why}; an agent that is started again will not know of this change",
        file.path().display()
    );
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
