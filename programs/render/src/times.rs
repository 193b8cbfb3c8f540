//! How times are shown.

use winddown_control::api::Status;
use winddown_shared::WallTime;
use winddown_shared::display::age;

/// The current time, and how times are shown.
#[derive(Clone, Copy)]
pub(super) struct Times<'a> {
    /// Knows whether the clock was set.
    pub(super) status: &'a Status,
    pub(super) now: WallTime,
    /// Whether past times are shown as clock times, which stay true, and not as ages.
    pub(super) clock: bool,
    /// Whether there is little room, so that only future times are shown.
    pub(super) brief: bool,
}

impl Times<'_> {
    /// How long a state has lasted: `for 3m20s`, `since 08:47:01`.
    pub(super) fn since(self, then: WallTime) -> String {
        match self.clock {
            true => format!("since {}", self.clock(then)),
            false => format!("for {}", self.age(then)),
        }
    }

    pub(super) fn age(self, then: WallTime) -> String {
        age(self.status.elapsed(then, self.now))
    }

    /// The time of day, with the date if that is not today.
    pub(super) fn clock(self, then: WallTime) -> String {
        let today = self.now.strftime("%F").to_string() == then.strftime("%F").to_string();
        then.strftime(if today { "%H:%M:%S" } else { "%m-%d %H:%M" }).to_string()
    }

    pub(super) fn left(self, end: WallTime) -> String {
        age(end.duration_since(self.now).as_secs())
    }
}
