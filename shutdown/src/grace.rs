//! Rounding of grace periods to whole seconds.

use std::time::Duration;

use crate::budget::whole_seconds;

/// A grace period that falls short of a whole second by less than this is rounded up to it. Longer than
/// a run waits for a pod to be reaped, so that this wait does not cost the next group a second.
pub(crate) const ROUNDING_TOLERANCE: Duration = Duration::from_millis(250);

/// Returns the whole seconds from `offset` to `latest_end`.
pub(crate) fn room(latest_end: Duration, offset: Duration) -> Duration {
    whole_seconds(latest_end.saturating_sub(offset) + ROUNDING_TOLERANCE)
}
