//! Atomic replacement of files, and watches of directories.
//!
//! * [`replace`]: readers and crashes see the old content or the new one, never a part.
//! * [`Watch`]: inotify, as a hint that a check is worthwhile.
//! * [`Growth`]: the same, for any number of readers of files that others write.

mod growth;
mod replace;
mod watch;

pub use growth::{Growing, Growth, GrowthTeller};
pub use replace::{Survives, replace};
pub use watch::{Change, Hint, Watch, Watched, Watcher};
