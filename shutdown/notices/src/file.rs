//! A file that announces when the node goes down, for batteries, maintenance jobs and scripts.
//!
//! The first word (or words) is the deadline: an RFC 3339 time (`2026-11-20T12:00:00Z`) or a
//! duration counted from when the file was written (`90s`, `2min 30s`). The rest is the text. If the
//! file does not exist there is no notice; removing it withdraws the notice. Content without a valid
//! deadline is logged as a warning and changes nothing. The directory may belong to another user:
//! links are not followed, only a regular file is opened, and content that is not a notice is never quoted.

mod content;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod watch;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use winddown_host::regular;
use winddown_shared::{BootClock, LONGEST_NOTICE, WallClock, WallTime, error_chain};

use crate::{Announcement, COMPARE, Deadline, NoticePublisher, When};

pub use content::ContentError;

use watch::FileWatch;

#[cfg(test)]
mod tests;

/// The most bytes read of the file.
const MAX_FILE_BYTES: u64 = 4096;

/// How often the file is read without an event: some file systems do not report changes.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// How soon a file that has just become empty, or been created, is read again.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Follows one notice file. Neither the file nor its directory needs to exist.
///
/// ```no_run
/// use winddown_notices::{FileSource, NoticeAggregator};
/// use winddown_shared::{BootClock, WallClock};
///
/// # async fn follow(wall: WallClock, boot: BootClock) {
/// let notices = NoticeAggregator::new();
/// let file = FileSource::new("/run/my-agent/notice", wall, boot);
/// tokio::spawn(file.watch(notices.publisher("file", None)));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileSource {
    path: Arc<Path>,
    wall: WallClock,
    boot: BootClock,
}

/// The result of reading the file.
#[derive(Debug)]
enum Look {
    Missing,
    Found { text: String, written: Option<WallTime> },
    Failed(io::Error),
}

/// The file's state when it was last read, to detect changes.
#[derive(Default)]
struct Last {
    content: Option<(String, Option<WallTime>)>,
    /// Whether the content was there at the first look, with a time in the future: the machine came up with a clock that
    /// is behind.
    is_ahead: bool,
    has_looked: bool,
    announced: Option<(Deadline, String)>,
    /// What is wrong with the content, if anything.
    problem: Option<String>,
    /// The problem that was last reported: the content's, or that of reading it.
    reported: Option<String>,
    empty: bool,
    /// Whether the file has just become empty: its writer may be about to fill it.
    settling: bool,
}

// === impl FileSource ===

impl FileSource {
    /// Creates a source that follows `path`.
    ///
    /// A deadline that passed before the system was started (according to `boot`) does not count, and no duration that
    /// was written before: the node has gone down since.
    pub fn new(path: impl Into<PathBuf>, wall: WallClock, boot: BootClock) -> Self {
        Self { path: path.into().into(), wall, boot }
    }

    /// Follows the file and reports each change through `publisher`. Never returns. Dropping the future stops it and
    /// leaves its last notice in force.
    pub async fn watch(self, publisher: NoticePublisher) {
        let mut watch = FileWatch::open();
        let mut last = Last::default();
        loop {
            let path = Arc::clone(&self.path);
            let watcher = watch.watcher();
            // Watch first and read second, so that no change is missed in between.
            let looked = tokio::task::spawn_blocking(move || {
                let attached = watcher.and_then(|watcher| watch::attach(watcher, &path));
                (attached, look(&path))
            });
            match looked.await {
                Ok((attached, look)) => {
                    watch.attached(attached);
                    self.take(look, &mut last, &publisher);
                }
                Err(error) => {
                    tracing::error!(error = error_chain(&error), "cannot check the notice file");
                }
            }
            tokio::select! {
                () = watch.changed() => {}
                () = sleep_until(Instant::now() + last.pause()) => {}
            }
        }
    }

    fn take(&self, look: Look, last: &mut Last, publisher: &NoticePublisher) {
        let now = self.wall.now();
        let is_first = !std::mem::replace(&mut last.has_looked, true);
        let empty = matches!(&look, Look::Found { text, .. } if text.trim().is_empty());
        last.settling = empty && !last.empty;
        last.empty = empty;
        if last.settling {
            return;
        }
        let problem = match look {
            Look::Missing => {
                *last = Last { has_looked: true, ..Last::default() };
                publisher.withdraw();
                None
            }
            Look::Failed(error) => Some(format!("{} cannot be read: {error}", self.path.display())),
            Look::Found { text, written } => {
                let is_ahead = is_first && written.is_some_and(|written| written > now);
                let content = Some((text, written));
                let is_new = content != last.content;
                last.is_ahead = is_ahead || last.is_ahead && !is_new;
                last.content = content;
                // A duration counts from when it was first read. If the wall clock was set, the same text may give another
                // time.
                if is_new || !matches!(last.announced, Some((Deadline::SinceBoot(_), _))) {
                    last.problem = self.read(last, now, publisher);
                }
                if let Some((deadline, message)) = &last.announced {
                    let (announced, now) = deadline.announcement(message, &self.wall, &self.boot);
                    publisher.publish(&announced, now);
                }
                last.problem.clone()
            }
        };
        if problem != last.reported
            && let Some(problem) = &problem
        {
            match publisher.published() {
                Some(_) => tracing::warn!("{problem}; the previous notice stays in effect"),
                None => tracing::warn!("{problem}"),
            }
        }
        publisher.problem(problem.as_deref());
        last.reported = problem;
    }

    /// Parses the content into the notice to announce. Withdraws one of before the boot. Returns what is wrong with it, if anything.
    fn read(&self, last: &mut Last, now: WallTime, publisher: &NoticePublisher) -> Option<String> {
        let (text, written) = last.content.as_ref()?;
        let (when, message) = match content::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return Some(format!("{}: {error}", self.path.display())),
        };
        let written = written.unwrap_or(now);
        let up = self.boot.now().saturating_sub(self.boot.system_start());
        let is_earlier = |at| now.checked_sub(up).is_ok_and(|started| at < started);
        let over = match when {
            When::At(at) => is_earlier(at).then(|| format!("its deadline, {at}, passed")),
            // The node has gone down since.
            When::In(_) => (last.is_ahead || is_earlier(written)).then(|| "it was written".into()),
        };
        if let Some(what) = over {
            last.announced = None;
            publisher.withdraw();
            return Some(format!(
                "{}: {what} before the machine came up: remove the file",
                self.path.display()
            ));
        }
        let gone = match when {
            When::At(at) => at,
            // If the file's time is in the future, the clock was set back after it was written.
            When::In(after) => written.min(now).checked_add(after).unwrap_or(WallTime::MAX),
        };
        if Announcement::new(When::At(gone), "").left(now) > LONGEST_NOTICE {
            return Some(format!(
                "{}: its deadline, {gone}, is more than {} days ahead: name an earlier one",
                self.path.display(),
                LONGEST_NOTICE.as_secs() / 86_400
            ));
        }
        let deadline = match when {
            When::At(at) => Deadline::At(at),
            When::In(_) => {
                let left = Announcement::new(When::At(gone), "").left(now);
                Deadline::SinceBoot(self.boot.now().saturating_add(left))
            }
        };
        let message = if message.is_empty() {
            format!("{} says that the node goes away", self.path.display())
        } else {
            message.to_owned()
        };
        last.announced = Some((deadline, message));
        None
    }
}

impl Last {
    /// How long to wait for an event before the file is read again.
    fn pause(&self) -> Duration {
        if self.settling {
            SETTLE_TIME
        } else if self.content.is_some() {
            // The clock of its deadline is not the one that waits: it may be set, or count the machine's sleep.
            COMPARE
        } else {
            POLL_INTERVAL
        }
    }
}

/// Reads the file. Blocks on the file system, but never on a pipe or a device.
fn look(path: &Path) -> Look {
    let read = || {
        let file = regular::open_no_link(path)?;
        let written = file.metadata()?.modified().ok().and_then(|at| WallTime::try_from(at).ok());
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(Look::Found { text: String::from_utf8_lossy(&bytes).into_owned(), written })
    };
    read().unwrap_or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Look::Missing,
        io::ErrorKind::InvalidInput => {
            Look::Failed(io::Error::other(format!("{error}: put the notice itself there")))
        }
        _ => Look::Failed(error),
    })
}
