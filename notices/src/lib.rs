//! Sources of notices that the node ends at a certain time: a watched file, an operator, the
//! metadata service of a cloud.
//!
//! ```text
//! FileSource ──┐
//! Operator ────┼─ NoticePublisher ─► NoticeAggregator ─► Notices (the one in force: the earliest deadline)
//! watch_cloud ─┘
//! ```
//!
//! Each source has a [`NoticePublisher`] of the [`NoticeAggregator`] and publishes an
//! [`Announcement`], or that nothing is announced any more. The aggregator turns wall time into the
//! deciding clock and publishes one notice. It knows neither files nor HTTP; consumers of notices
//! know neither the aggregator nor the sources.
//!
//! # Behaviour
//! - A source that fails keeps what it said last: losing the metadata service withdraws nothing.
//! - The earliest deadline wins. Notices that are announced long before (a maintenance window) are
//!   held back until the voice's lead before their deadline.
//! - A deadline on the wall clock is compared with it every few seconds: the clock may be set, and a
//!   machine may sleep. An operator's duration is compared with the time since boot, sleep included.
//! - Notices that are left over from an earlier boot start nothing.
//! - No deadline is farther ahead than [`LONGEST_NOTICE`](winddown_shared::LONGEST_NOTICE).
//! - No input from a file or a server can cause a panic, unbounded growth, or a hang of anything
//!   but its source.

mod aggregator;
mod announcement;
mod cloud;
mod file;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod kept;
mod operator;
mod source;

pub use aggregator::{NoticeAggregator, NoticePublisher, SourceStatus};
pub use announcement::{Announcement, When};
pub use cloud::{Cloud, CloudSettings, Endpoint, EndpointError, watch_cloud};
pub use file::{ContentError, FileSource};
pub use operator::{Deadline, Drain, Operator};
pub use source::{NoticeSource, Uptime};

/// While a wall time is announced it is compared with the wall clock this often.
const COMPARE: std::time::Duration = std::time::Duration::from_secs(5);
