//! Who says that the node ends at a certain time, whatever the node does: a watched file, an
//! operator, the metadata service of a cloud.
//!
//! ```text
//! FileSource ──┐
//! Operator ────┼─ Voice ─► Board ─► Notices (the one in force: the earliest deadline)
//! watch_cloud ─┘
//! ```
//!
//! Each source has a [`Voice`] on the [`Board`] and says what it knows: an [`Announcement`], or that
//! nothing is announced any more. The board turns wall time into the clock that decides and
//! publishes one notice. It knows neither files nor HTTP; whoever acts on notices knows neither the
//! board nor the sources.
//!
//! # Behaviour
//! - A source that fails keeps what it said last: losing the metadata service withdraws nothing.
//! - The earliest deadline wins. Notices that are announced long before (a maintenance window) are
//!   held back until the voice's lead before their deadline.
//! - Nothing a file or a server sends can panic, grow without bound or hang more than its source.

mod announcement;
mod board;
mod cloud;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod operator;
mod source;

pub use announcement::{Announcement, When};
pub use board::{Board, Standing, Voice};
pub use cloud::{Cloud, CloudSettings, Endpoint, EndpointError, watch_cloud};
pub use file::{ContentError, FileSource, Uptime};
pub use operator::Operator;
pub use source::NoticeSource;
