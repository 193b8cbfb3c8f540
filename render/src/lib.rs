//! What winddown shows to people: text, aligned and coloured where wanted, and pictures of a shutdown. Safe to print
//! whatever the names are.
//!
//! Every function here takes values and gives a string; nothing is printed and no clock is read.

mod changes;
mod cluster;
mod eviction;
mod group_state;
mod line;
mod live;
mod paint;
mod plan;
mod preemption;
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
pub use eviction::eviction;
pub use line::{Line, Span, painted};
pub use live::{Scene, Screen, counts_down, live};
pub use paint::{Paint, error, notice};
pub use plan::{group_title, groups, plan, reports, trend};
pub use preemption::preemption;
pub use start::{start_plan, start_report};
pub use status::status;
pub use table::{Align, Column, Table};
pub use text::{fit, hanging, wrap};

/// The text instead of "no pods" while the pods are unknown.
pub const PODS_UNKNOWN: &str =
    "not known yet which pods run: the container runtime has not answered";

/// How a text is to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Columns to fit into; `None` cuts and wraps nothing.
    pub width: Option<usize>,
    /// With colour.
    pub color: bool,
    /// With more columns and lines.
    pub wide: bool,
}
