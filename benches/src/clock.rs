//! The machine's monotonic clock, which all processes share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine was started.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    // Neither is negative on this clock.
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
