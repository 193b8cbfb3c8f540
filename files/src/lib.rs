//! Atomic replacement of files, watches of directories, and work on disks that may hang.
//!
//! * [`replace`]: readers and crashes see the old content or the new one, never a part.
//! * [`Watch`]: inotify, as a hint that a check is worthwhile.
//! * [`SharedWatch`]: the same, for any number of readers of files that others write.
//! * [`OneThread`]: blocking work, of which a hung disk delays one thread.

mod one_thread;
mod replace;
mod shared_watch;
mod watch;

pub use one_thread::OneThread;
pub use replace::{Durability, replace};
pub use shared_watch::{SharedWatch, SharedWatchTask, Subscription};
pub use watch::{Change, Hint, Watch, Watched, Watcher};
