//! Announcements: what a source publishes, before it becomes a notice.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{BootClock, WallClock, WallTime};

/// The most characters kept of a text, which goes into logs, the status and the report.
const LONGEST_TEXT: usize = 200;

/// An announcement that the node will go down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// When the node goes down.
    pub when: When,
    /// The reason, for people.
    pub text: Arc<str>,
}

/// When the node goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// At a wall time. It is converted again on each publish, so the deadline follows a wall clock
    /// that is set in the meantime.
    At(WallTime),
    /// This long after it was first published, whatever the wall clock does.
    In(Duration),
}

/// When the node goes down, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadline {
    /// A wall time, which moves with the wall clock when that is set.
    At(WallTime),
    /// This long after the kernel's boot, including sleep, whatever the wall clock does.
    SinceBoot(Duration),
}

impl Deadline {
    /// What is published of it now, and the time of the clock that it refers to. To be published again every few seconds: its
    /// clock is not the one that waits.
    pub(crate) fn announcement(
        self,
        text: &str,
        wall: &WallClock,
        boot: &BootClock,
    ) -> (Announcement, WallTime) {
        // The aggregator only takes the difference, so a time since boot can stand in for a wall time.
        let since_boot = |up| WallTime::UNIX_EPOCH.checked_add(up).unwrap_or(WallTime::MAX);
        let (at, now) = match self {
            Self::At(at) => (at, wall.now()),
            Self::SinceBoot(up) => (since_boot(up), since_boot(boot.now())),
        };
        (Announcement::new(When::At(at), text), now)
    }
}

impl Announcement {
    /// Creates an announcement whose text fits on one line: control characters become spaces, runs of
    /// spaces become one, and at most 200 characters are kept.
    pub fn new(when: When, text: &str) -> Self {
        Self { when, text: one_line(text).into() }
    }

    /// The time left at wall time `now`; zero once the deadline has passed.
    pub fn left(&self, now: WallTime) -> Duration {
        match self.when {
            When::In(left) => left,
            When::At(at) => Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO),
        }
    }
}

/// Makes `text` fit on one line, as [`Announcement::new`] describes.
pub(crate) fn one_line(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut kept = String::new();
    let mut length = 0;
    for c in printable {
        if c == ' ' && (kept.is_empty() || kept.ends_with(' ')) {
            continue;
        }
        if length == LONGEST_TEXT {
            kept.push('…');
            break;
        }
        kept.push(c);
        length += 1;
    }
    kept.truncate(kept.trim_end().len());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_one_line_of_bounded_length() {
        let cases = [
            ("plain", "plain"),
            ("  two\n lines\t\u{1b}[31m ", "two lines [31m"),
            ("", ""),
            ("\n\r\0", ""),
        ];
        for (given, expected) in cases {
            let announced = Announcement::new(When::In(Duration::ZERO), given);
            assert_eq!(&*announced.text, expected, "{given:?}");
        }
        let long = Announcement::new(When::In(Duration::ZERO), &"ü".repeat(10_000));
        assert_eq!(long.text.chars().count(), LONGEST_TEXT + 1);
    }

    #[test]
    fn a_wall_time_that_is_over_leaves_nothing() {
        let now: WallTime = "2026-11-20T12:00:00Z".parse().expect("a time");
        let left =
            |at: &str| Announcement::new(When::At(at.parse().expect("a time")), "").left(now);
        assert_eq!(left("2026-11-20T12:02:00Z"), Duration::from_secs(120));
        assert_eq!(left("2026-11-20T12:00:00Z"), Duration::ZERO);
        assert_eq!(left("1970-01-01T00:00:00Z"), Duration::ZERO);
    }
}
