//! How times are shown.

use winddown_shared::WallTime;
use winddown_shared::display::age;

/// What now is, and how the past is shown.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) now: WallTime,
    /// The past is shown by the clock, so that it stays true; otherwise by its age.
    pub(super) clock: bool,
    /// There is little room, and only what comes matters.
    pub(super) brief: bool,
}

impl Times {
    /// For how long it has been so: `for 3m20s`, `since 08:47:01`.
    pub(super) fn since(self, then: WallTime) -> String {
        match self.clock {
            true => format!("since {}", self.clock(then)),
            false => format!("for {}", self.age(then)),
        }
    }

    pub(super) fn age(self, then: WallTime) -> String {
        age(self.now.duration_since(then).as_secs())
    }

    /// The time of day, or the day where that is not today.
    pub(super) fn clock(self, then: WallTime) -> String {
        let today = self.now.strftime("%F").to_string() == then.strftime("%F").to_string();
        then.strftime(if today { "%H:%M:%S" } else { "%m-%d %H:%M" }).to_string()
    }

    pub(super) fn left(self, end: WallTime) -> String {
        age(end.duration_since(self.now).as_secs())
    }
}
