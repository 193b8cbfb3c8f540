//! Whole numbers of a unit, for interfaces that take no parts of one.

use std::time::Duration;

/// The duration in whole seconds, rounded up: nothing that is given so many is cut short.
#[must_use]
pub fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// The duration in whole milliseconds, rounded down; what no `u64` holds is the most that one does.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_counts_as_a_whole_one() {
        let cases = [(0, 0, 0), (0, 1, 1), (4, 0, 4), (4, 999_999_999, 5), (u64::MAX, 1, u64::MAX)];
        for (seconds, nanos, expected) in cases {
            assert_eq!(
                seconds_up(Duration::new(seconds, nanos)),
                expected,
                "{seconds} s {nanos} ns"
            );
        }
    }
}
