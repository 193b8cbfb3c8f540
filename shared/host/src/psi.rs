//! Pressure stall information: memory stall time, and triggers that fire when it exceeds a limit.
//!
//! The kernel fires a trigger, so nothing polls.

use winddown_shared::PressureStats;

mod arm;
mod watch;

pub use arm::{Armed, PsiTrigger, Unarmed};
pub use watch::{PsiPlace, PsiWatch};

/// Parses a file such as `/proc/pressure/memory`, without the time of reading. None if it has no line `some`; the line
/// `full` may be missing.
pub(crate) fn parse_pressure(text: &[u8]) -> Option<PressureStats> {
    let text = std::str::from_utf8(text).ok()?;
    let line = |name: &str| text.lines().find_map(|l| averages(l.strip_prefix(name)?));
    let (some_avg10, some_total_us) = line("some ")?;
    let (full_avg10, full_total_us) = line("full ").unwrap_or_default();
    Some(PressureStats { at: None, some_avg10, full_avg10, some_total_us, full_total_us })
}

/// Parses `avg10` and `total` from `avg10=1.23 avg60=… avg300=… total=…`.
fn averages(line: &str) -> Option<(f32, u64)> {
    let field = |name: &str| line.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
    let average: f32 = field("avg10")?.parse().ok()?;
    let is_share = (0.0..=100.0).contains(&average);
    Some((is_share.then_some(average)?, field("total")?.parse().ok()?))
}

#[cfg(test)]
mod tests;
