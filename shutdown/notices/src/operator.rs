//! Operators' notices and drains, kept across restarts of the agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_shared::{
    BootClock, Mutex as SyncMutex, Notice, RequestReport, WallClock, WallTime, millis, seconds_up,
};

use crate::announcement::one_line;
use crate::{Announcement, COMPARE, Deadline, NoticePublisher};
use stored::{Stored, StoredWord};

mod stored;

#[cfg(test)]
mod tests;

const DRAIN: &str = "operator-drain.json";

/// Publishes the notice that an operator gives through the control socket. The notice lasts for this
/// boot: it survives a restart of the agent, but not a reboot of the node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OperatorSource(Arc<OperatorShared>);

/// A drain by an operator: no pod is admitted until it is called off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// How long it may take; `None` if that is not known. No time passes while no agent runs: the node stays up, so
    /// nothing is gained by cutting its pods short.
    pub time: Option<Duration>,
    /// When it began, in time since the boot. The record of its run is not older.
    pub begun: Duration,
    /// Whether the pods have stopped or their time is up.
    pub is_over: bool,
    /// Who asked for it, and why.
    pub requested_by: Option<RequestReport>,
}

#[derive(Debug)]
struct OperatorShared {
    publisher: NoticePublisher,
    notice: Stored,
    drain: Stored,
    /// Whether an agent of this boot has withdrawn the last notice.
    was_withdrawn: bool,
    earlier_drain: Option<Drain>,
    /// What an agent does not know of the notice and of the drain.
    problems: SyncMutex<[Option<String>; 2]>,
    wall: WallClock,
    boot: BootClock,
    /// The notice in force. Held during each change, or the disk and the aggregator could disagree.
    given: Mutex<Option<StoredNotice>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredNotice {
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
    /// Rounded up.
    time_seconds: Option<u64>,
    #[serde(default)]
    begun_boot_ms: u64,
    is_over: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requested_by: Option<RequestReport>,
}

/// What a problem is about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum OperatorSubject {
    /// The deadline that an operator gave or withdrew.
    Notice,
    /// The drain that an operator began or ended.
    Drain,
}

/// The drain that an agent of the boot `boot_id` has left behind in one of `directories` and that was not withdrawn. One
/// that cannot be read is none. Blocks on the file system.
pub fn drain_of_boot(directories: &[PathBuf], boot_id: &str, boot: BootClock) -> Option<Drain> {
    read_drain(&Stored::in_directories(directories, DRAIN, boot_id, boot)).0
}

/// The drain, and why it is unknown.
fn read_drain(stored: &Stored) -> (Option<Drain>, Option<String>) {
    match stored.read::<KeptDrain>() {
        (StoredWord::Content(drain), problem) => (Some(drain.drain()), problem),
        (StoredWord::Withdrawn | StoredWord::Nothing, problem) => (None, problem),
    }
}

// === impl OperatorSubject ===

impl OperatorSubject {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Notice, Self::Drain];
}

// === impl OperatorSource ===

impl OperatorSource {
    /// Publishes the notice that an earlier agent of this boot stored in one of `directories`, if there is one, and
    /// reads the stored drain. Best first: one in memory, and one on a disk. Blocks on the file system.
    pub fn open(
        publisher: NoticePublisher,
        directories: &[PathBuf],
        boot_id: &str,
        wall: WallClock,
        boot: BootClock,
    ) -> Self {
        let stored = |name| Stored::in_directories(directories, name, boot_id, boot.clone());
        let (notice, drain) = (stored("operator-notice.json"), stored(DRAIN));
        let (found, notice_problem) = notice.read::<StoredNotice>();
        let (earlier_drain, drain_problem) = read_drain(&drain);
        let was_withdrawn = matches!(found, StoredWord::Withdrawn);
        let (problems, given) = Default::default();
        let mut inner = OperatorShared {
            publisher,
            notice,
            drain,
            was_withdrawn,
            earlier_drain,
            problems,
            wall,
            boot,
            given,
        };
        let told =
            |problem: Option<String>, next: &str| problem.map(|why| format!("{why}; {next}"));
        inner.note(
            OperatorSubject::Notice,
            told(notice_problem, "give the deadline again if there was one"),
        );
        inner.note(
            OperatorSubject::Drain,
            told(drain_problem, "drain the node again if it was drained"),
        );
        // A missing file does not mean that the operator withdrew the notice: the write may have failed.
        match found {
            StoredWord::Content(kept) => {
                inner.publish(&kept);
                inner.given = Mutex::new(Some(kept));
            }
            StoredWord::Withdrawn => inner.publisher.withdraw(),
            StoredWord::Nothing => {}
        }
        Self(Arc::new(inner))
    }

    /// The notice that was given and has not been withdrawn.
    pub fn published(&self) -> Option<Arc<Notice>> {
        self.0.publisher.published()
    }

    /// Keeps a notice that the run of an earlier agent knows, if the disk has lost it: it is in force and can be
    /// withdrawn, or is over if `since_boot` is past. Does nothing if a notice was given or withdrawn.
    pub fn restore(&self, since_boot: Duration, text: &str) {
        let Ok(mut given) = self.0.given.try_lock() else { return };
        let is_lost = given.is_none() && !self.0.was_withdrawn;
        if is_lost && since_boot <= self.0.boot.now() {
            self.0.publisher.withdraw();
        } else if is_lost {
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
        let (announced, now) = self.0.announcement(&kept);
        self.0.publisher.replace(&announced, now);
        *given = Some(kept.clone());
        let next = "an agent that is restarted does not know the deadline; free space there, then give it again";
        self.0.store(OperatorSubject::Notice, Some(kept), next).await;
    }

    /// The drain that an earlier agent of this boot left behind.
    pub fn earlier_drain(&self) -> Option<Drain> {
        self.0.earlier_drain.clone()
    }

    /// Stores that the node is drained, or no longer is.
    pub async fn store_drain(&self, drain: Option<Drain>) {
        let next = match &drain {
            // It knows of a drain that it continues, if only the end was not stored.
            Some(drain) if drain.is_over => {
                "an agent that is restarted does not know that the node is drained, or drains it again"
            }
            Some(_) => "an agent that is restarted does not know that the node is drained",
            None => {
                "an agent that is restarted keeps the node drained; free space there, then run `winddown undrain` again"
            }
        };
        let kept = drain.map(|drain| KeptDrain {
            time_seconds: drain.time.map(seconds_up),
            begun_boot_ms: millis(drain.begun),
            is_over: drain.is_over,
            requested_by: drain.requested_by,
        });
        self.0.store(OperatorSubject::Drain, kept, next).await;
    }

    /// What this agent does not know of the operator's words `about` these, or the next one will not, for people.
    pub fn problem(&self, about: &[OperatorSubject]) -> Option<String> {
        self.0.problem(about)
    }

    /// Withdraws the notice. Returns whether there was one.
    pub async fn withdraw(&self) -> bool {
        let mut given = self.0.given.lock().await;
        let was_there = given.take().is_some();
        self.0.publisher.withdraw();
        let next = "an agent that is restarted puts the deadline in effect again; free space there, then run \
                    `winddown undrain` again (it also ends a drain)";
        self.0.store(OperatorSubject::Notice, None::<StoredNotice>, next).await;
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
    fn of(&self, deadline: Deadline, text: &str) -> StoredNotice {
        StoredNotice {
            deadline: match deadline {
                Deadline::At(at) => KeptDeadline::At(at),
                Deadline::SinceBoot(up) => KeptDeadline::SinceBoot(millis(up)),
            },
            text: one_line(text),
        }
    }

    fn publish(&self, kept: &StoredNotice) {
        let (announced, now) = self.announcement(kept);
        self.publisher.publish(&announced, now);
    }

    /// What is published of it, and the time of the clock that it refers to.
    fn announcement(&self, kept: &StoredNotice) -> (Announcement, WallTime) {
        let deadline = match kept.deadline {
            KeptDeadline::At(at) => Deadline::At(at),
            KeptDeadline::SinceBoot(millis) => Deadline::SinceBoot(Duration::from_millis(millis)),
        };
        deadline.announcement(&kept.text, &self.wall, &self.boot)
    }

    /// Stores `kept`. If no place takes it, the operator is told, and `next`: what to do.
    async fn store<T: Serialize>(&self, about: OperatorSubject, kept: Option<T>, next: &str) {
        let stored = match about {
            OperatorSubject::Notice => self.notice.store(kept).await,
            OperatorSubject::Drain => self.drain.store(kept).await,
        };
        self.note(about, stored.err().map(|why| format!("this cannot be stored ({why}): {next}")));
    }

    fn note(&self, about: OperatorSubject, problem: Option<String>) {
        if let Some(problem) = &problem {
            tracing::warn!("{problem}");
        }
        self.problems.lock()[about as usize] = problem;
        self.publisher.problem(self.problem(&OperatorSubject::ALL).as_deref());
    }

    fn problem(&self, about: &[OperatorSubject]) -> Option<String> {
        let problems = self.problems.lock();
        let all: Vec<&str> =
            about.iter().filter_map(|about| problems[*about as usize].as_deref()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

// === impl KeptDrain ===

impl KeptDrain {
    fn drain(self) -> Drain {
        let time = self.time_seconds.map(Duration::from_secs);
        let begun = Duration::from_millis(self.begun_boot_ms);
        Drain { time, begun, is_over: self.is_over, requested_by: self.requested_by }
    }
}
