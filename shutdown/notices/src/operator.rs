//! Operators' notices and drains, kept across restarts of the agent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_shared::{BootClock, Notice, WallClock, WallTime, seconds_up};

use crate::announcement::one_line;
use crate::kept::KeptFile;
use crate::{Announcement, COMPARE, NoticePublisher, When};

#[cfg(test)]
mod tests;

/// Publishes the notice that an operator gives through the control socket. The notice lasts for this
/// boot: it survives a restart of the agent, but not a reboot of the node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OperatorSource(Arc<OperatorShared>);

/// When the node goes down, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadline {
    /// A wall time, which moves with the wall clock when that is set.
    At(WallTime),
    /// This long after the kernel's boot, including sleep, whatever the wall clock does.
    SinceBoot(Duration),
}

/// A drain by an operator: no pod is admitted until it is called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long it may take from now on; `None` if that is not known. No time passes while no agent runs: the node stays
    /// up, so nothing is gained by cutting its pods short.
    pub time: Option<Duration>,
    /// Whether the pods have stopped or their time is up.
    pub is_over: bool,
}

#[derive(Debug)]
struct OperatorShared {
    publisher: NoticePublisher,
    file: KeptFile,
    drain_file: KeptFile,
    earlier_drain: Option<KeptDrain>,
    boot_id: String,
    wall: WallClock,
    boot: BootClock,
    /// The notice in force. Held during each change, or the disk and the aggregator could disagree.
    given: Mutex<Option<StoredNotice>>,
}

/// A notice, as stored on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredNotice {
    version: u32,
    boot_id: String,
    /// When the notice was given. Older agents did not record this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_boot_ms: Option<u64>,
    #[serde(flatten)]
    deadline: KeptDeadline,
    text: String,
}

/// A stored deadline. An older agent that knows only one variant logs that it cannot read the other.
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
    /// What was left when this was written, rounded up.
    time_seconds: Option<u64>,
    is_over: bool,
}

// === impl OperatorSource ===

impl OperatorSource {
    /// Publishes the notice that an earlier agent of this boot stored in `directory`, if there is one,
    /// and reads the stored drain. Blocks on the file system.
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
        // Without a boot id, this boot cannot be told from another. The id stays the same over a soft
        // reboot, and in a container that is restarted.
        let is_ours = |version: u32, of_boot: &str, given: Option<u64>| {
            let given = given.map(Duration::from_millis);
            let is_of_system = given.is_none_or(|given| given >= boot.system_start());
            version == 1 && of_boot == boot_id && !boot_id.is_empty() && is_of_system
        };
        let kept = read::<StoredNotice>(&file, "give the notice again if there was one");
        let kept = kept.filter(|kept| is_ours(kept.version, &kept.boot_id, kept.given_boot_ms));
        let drain = read::<KeptDrain>(&drain_file, "drain the node again if it was drained");
        let earlier_drain = drain.filter(|d| is_ours(d.version, &d.boot_id, Some(d.given_boot_ms)));
        let given = Mutex::default();
        let mut inner = OperatorShared {
            publisher,
            file,
            drain_file,
            earlier_drain,
            boot_id,
            wall,
            boot,
            given,
        };
        // A missing file does not mean that the operator withdrew the notice: the write may have failed.
        if let Some(kept) = &kept {
            inner.publish(kept);
        }
        inner.given = Mutex::new(kept);
        Self(Arc::new(inner))
    }

    /// The notice that was given and has not been withdrawn.
    pub fn published(&self) -> Option<Arc<Notice>> {
        self.0.publisher.published()
    }

    /// Keeps a notice that the run of an earlier agent knows, if the disk has lost it: it is in force and can be
    /// withdrawn. Does nothing if a notice was given, or `since_boot` is past.
    pub fn restore(&self, since_boot: Duration, text: &str) {
        let Ok(mut given) = self.0.given.try_lock() else { return };
        if given.is_none() && since_boot > self.0.boot.now() {
            let kept = self.0.of(Deadline::SinceBoot(since_boot), text);
            self.0.publish(&kept);
            *given = Some(kept);
        }
    }

    /// Announces that the node goes down at `deadline`. The notice is in force when this returns. Dropping
    /// the future may leave it in force but not on disk.
    pub async fn announce(&self, deadline: Deadline, text: &str) {
        let kept = self.0.of(deadline, text);
        let mut given = self.0.given.lock().await;
        self.0.publish(&kept);
        *given = Some(kept.clone());
        self.0.store(Some(kept)).await;
    }

    /// The drain that an earlier agent of this boot left behind, with what was left of its time.
    pub fn earlier_drain(&self) -> Option<Drain> {
        self.0.earlier_drain.as_ref().map(KeptDrain::drain)
    }

    /// Stores that the node is drained, or no longer is.
    pub async fn store_drain(&self, drain: Option<Drain>) {
        let kept = drain.map(|drain| KeptDrain {
            version: 1,
            boot_id: self.0.boot_id.clone(),
            given_boot_ms: millis(self.0.boot.now()),
            time_seconds: drain.time.map(seconds_up),
            is_over: drain.is_over,
        });
        self.0
            .drain_file
            .store(kept)
            .await
            .unwrap_or_else(|why| not_kept(&self.0.drain_file, &why));
    }

    /// Withdraws the notice. Returns whether there was one.
    pub async fn withdraw(&self) -> bool {
        let mut given = self.0.given.lock().await;
        let was_there = given.take().is_some();
        self.0.publisher.withdraw();
        self.0.store(None).await;
        was_there
    }

    /// Checks the notice against its clock every few seconds while there is one: the wall clock may be
    /// set, and the monotonic clock stands still while the machine sleeps. Never returns.
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

// === impl OperatorShared ===

impl OperatorShared {
    /// The notice, as stored on disk.
    fn of(&self, deadline: Deadline, text: &str) -> StoredNotice {
        StoredNotice {
            version: 1,
            boot_id: self.boot_id.clone(),
            given_boot_ms: Some(millis(self.boot.now())),
            deadline: match deadline {
                Deadline::At(at) => KeptDeadline::At(at),
                Deadline::SinceBoot(up) => KeptDeadline::SinceBoot(millis(up)),
            },
            text: one_line(text),
        }
    }

    fn publish(&self, kept: &StoredNotice) {
        // The aggregator only takes the difference, so a time since boot can stand in for a wall time.
        let since_boot = |up| WallTime::UNIX_EPOCH.checked_add(up).unwrap_or(WallTime::MAX);
        let (at, now) = match kept.deadline {
            KeptDeadline::At(at) => (at, self.wall.now()),
            KeptDeadline::SinceBoot(millis) => {
                (since_boot(Duration::from_millis(millis)), since_boot(self.boot.now()))
            }
        };
        self.publisher.publish(&Announcement::new(When::At(at), &kept.text), now);
    }

    async fn store(&self, kept: Option<StoredNotice>) {
        self.file.store(kept).await.unwrap_or_else(|why| not_kept(&self.file, &why));
    }
}

// === impl KeptDrain ===

impl KeptDrain {
    fn drain(&self) -> Drain {
        Drain { time: self.time_seconds.map(Duration::from_secs), is_over: self.is_over }
    }
}

/// Reads `file`. If that fails, logs `next`: what the operator should do.
fn read<T: DeserializeOwned>(file: &KeptFile, next: &str) -> Option<T> {
    file.read().unwrap_or_else(|error| {
        tracing::warn!("{} cannot be read: {error}; {next}", file.path().display());
        None
    })
}

fn not_kept(file: &KeptFile, why: &str) {
    tracing::warn!(
        "{}: {why}; a restarted agent will not know of this change",
        file.path().display()
    );
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
