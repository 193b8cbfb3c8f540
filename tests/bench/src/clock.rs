//! The machine's monotonic clock, which all processes share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine was started.
pub(crate) fn now() -> Duration {
    read(ClockId::Monotonic)
}

/// The time on this clock that was `real`, nanoseconds since 1970, on the other.
pub(crate) fn at_real(real: Duration) -> Duration {
    (real + now()).saturating_sub(read(ClockId::Realtime))
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    // Neither is negative on these clocks.
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
