//! A pod's grace, in whole seconds.

use std::time::Duration;

use winddown_shared::Grace;

use crate::budget::whole_seconds;

/// A grace is in whole seconds: one that is short by less than this is not cut by a whole one.
/// More than a run gives a pod to be reaped, so that a group that waited for it does not cost the next
/// one a second.
const ROUNDING: Duration = Duration::from_millis(250);

/// What is left at `offset` of a grace that was promised until then: the nearest whole seconds, and
/// at least one.
pub(crate) fn rest_of_grace(promised: Duration, offset: Duration) -> Duration {
    Grace::whole(promised.saturating_sub(offset))
}

/// The whole seconds from `offset` to `latest_end`.
pub(crate) fn room(latest_end: Duration, offset: Duration) -> Duration {
    whole_seconds(latest_end.saturating_sub(offset) + ROUNDING)
}
