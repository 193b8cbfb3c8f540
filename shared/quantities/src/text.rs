//! Text for people: safe to print whatever a name contains, with durations in a uniform style.

pub use crate::printable::{clean, escaped, is_combining, quoted, truncated};
pub use crate::readable::{age, bytes, duration, in_seconds, seconds};

/// Formats a number of pods: `1 pod`, `2 pods`.
pub fn pod_count(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}
