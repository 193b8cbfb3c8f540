#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Sources of notices that the node will go down at a certain time: a watched file, an operator, or
//! the metadata service of a cloud.
//!
//! ```text
//! FileSource ─────┐
//! OperatorSource ─┼─ NoticePublisher ─► NoticeAggregator ─► Notices (those in force)
//! watch_cloud ────┘
//! ```
//!
//! Each source gets a [`NoticePublisher`] from the [`NoticeAggregator`], and publishes or withdraws an
//! [`Announcement`] through it. The aggregator converts wall times to monotonic instants and publishes
//! those in force. It knows neither files nor HTTP; consumers of notices know neither the aggregator nor
//! the sources.
//!
//! # Behaviour
//! - When a source fails, its last notice stays in force: losing the metadata service withdraws nothing.
//! - A notice announced long in advance (a maintenance window) takes effect
//!   only once its deadline is within its source's lead time.
//! - A wall-clock deadline is checked against the clock every few seconds, because the clock may be set
//!   and the machine may sleep. An operator's duration counts time since boot, including sleep.
//! - Notices left over from an earlier boot start nothing.
//! - No deadline is farther ahead than [`LONGEST_NOTICE`](winddown_shared::LONGEST_NOTICE).
//! - No input from a file or a server can cause a panic, unbounded growth, or a hang of anything
//!   other than its own source.
//!
//! # Design
//!
//! `shutdown/notices/` is the only crate that knows cloud metadata services and the notice file. Each source publishes
//! to one aggregator, which converts wall time to tokio's clock and publishes the notices in force, the
//! earliest deadline first, as `shared::Notices`. Consumers know neither the aggregator nor the sources. A source that fails
//! withdraws nothing. Events that a cloud still lists from an earlier boot are skipped (`cloud/seen.rs`). A deadline in
//! wall time is compared with the clock every few seconds, an operator's duration with the time since boot. An operator's
//! notice and drain arrive through the control socket and are kept for the boot, on disk and in memory, so a
//! restarted agent still knows them, and what was withdrawn. A notice's clock runs on; that of a drain stands while no
//! agent runs, because the node stays up.

mod aggregator;
mod announcement;
mod cloud;
mod file;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod kept;
mod operator;

pub use aggregator::{NoticeAggregator, NoticePublisher, SourceStatus};
pub use announcement::{Announcement, Deadline, When};
pub use cloud::{Cloud, CloudSettings, Endpoint, EndpointError, watch_cloud};
pub use file::{ContentError, FileSource};
pub use operator::{Drain, OperatorSource, OperatorSubject, drain_of_boot};

/// Returns how long the machine has been up, or `None` if that is unknown.
pub type Uptime = fn() -> Option<std::time::Duration>;

/// How often an announced deadline is checked against its clock.
const COMPARE: std::time::Duration = std::time::Duration::from_secs(5);
