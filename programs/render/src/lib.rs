//! Everything that winddown shows to people: text, aligned and optionally coloured, and pictures of a shutdown. The
//! output is safe to print whatever names it contains.
//!
//! Every function takes values and returns a string; nothing is printed and no clock is read.
//!
//! # Design
//!
//! Types that are written as JSON derive `JsonSchema`. Log lines go through one layer in `programs/daemon/src/logging`,
//! which limits repetitions (the same line at most once a minute; the last suppressed one is written when its minute
//! ends) and writes to the journal in its native protocol without ever waiting. Each kind of line has a name, a
//! `MESSAGE_ID` and a catalog text in one table, `kinds.rs`. `winddown status` and `status --watch` show the same rows
//! (`programs/render/src/rows.rs`), as a page and as a screen; both are pure functions from status and size to lines.
//! Only `programs/src/watch/terminal.rs` owns the terminal, and restores it on drop and on panic. The HTML report
//! contains the SVG picture.

mod changes;
mod cluster;
mod describe;
mod eviction;
mod group_state;
mod line;
mod live;
mod paint;
mod plan;
mod preemption;
mod priority;
pub mod report;
mod rows;
mod start;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod times;

pub use changes::changes;
pub use describe::{describe, describe_rejected};
pub use eviction::{eviction, why_it_stays};
pub use line::{Line, Span, painted};
pub use live::{PodOrder, Scene, Screen, counts_down, live};
pub use paint::{Paint, error, notice};
pub use plan::{group_title, groups, plan, reports, trend};
pub use preemption::preemption;
pub use priority::{priority, priority_of, priority_unless_unset};
pub use start::{start_plan, start_report};
pub use status::problems::{COMMANDS as STATUS_COMMANDS, REGISTERS_AGAIN};
pub use status::status;
pub use table::{Column, Table};
pub use text::{by_path, fit, hanging, wrap};

/// The text that replaces "no pods" while the pods are unknown.
pub const PODS_UNKNOWN: &str =
    "running pods are not known yet: the container runtime or a source of pods has not answered";

/// How a text is rendered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The width in columns; `None` neither cuts nor wraps.
    pub width: Option<usize>,
    /// Whether to use colour.
    pub color: bool,
    /// Whether to show more columns and lines.
    pub wide: bool,
}
