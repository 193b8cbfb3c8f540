//! Who says that the node ends at a certain time, whatever the node does: a watched file, an
//! operator, the metadata service of a cloud.
//!
//! ```text
//! FileSource ──┐
//! Operator ────┼─ NoticePublisher ─► NoticeAggregator ─► Notices (the one in force: the earliest deadline)
//! watch_cloud ─┘
//! ```
//!
//! Each source has a [`NoticePublisher`] on the [`NoticeAggregator`] and says what it knows: an [`Announcement`], or that
//! nothing is announced any more. The aggregator turns wall time into the clock that decides and
//! publishes one notice. It knows neither files nor HTTP; whoever acts on notices knows neither the
//! aggregator nor the sources.
//!
//! # Behaviour
//! - A source that fails keeps what it said last: losing the metadata service withdraws nothing.
//! - The earliest deadline wins. Notices that are announced long before (a maintenance window) are
//!   held back until the voice's lead before their deadline.
//! - A deadline on the wall clock is compared with it every few seconds: the clock may be set, and a
//!   machine may sleep. An operator's duration is compared with the time since boot, sleep included.
//! - What a source still names of an earlier boot starts nothing.
//! - No deadline is farther ahead than [`LONGEST_NOTICE`](winddown_shared::LONGEST_NOTICE).
//! - Nothing a file or a server sends can panic, grow without bound or hang more than its source.

mod aggregator;
mod announcement;
mod cloud;
mod file;
#[cfg(feature = "fuzzing")]
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

/// The example in README.md compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// While a wall time is announced it is compared with the wall clock this often.
const COMPARE: std::time::Duration = std::time::Duration::from_secs(5);
