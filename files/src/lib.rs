//! Atomic replacement of files, and watches of directories.
//!
//! * [`replace`]: readers and crashes see the old content or the new one, never a part.
//! * [`Watch`]: inotify, as a hint that a check is worthwhile.
//! * [`SharedWatch`]: the same, for any number of readers of files that others write.

mod replace;
mod shared_watch;
mod watch;

pub use replace::{Durability, replace};
pub use shared_watch::{SharedWatch, SharedWatchTask, Subscription};
pub use watch::{Change, Hint, Watch, Watched, Watcher};
