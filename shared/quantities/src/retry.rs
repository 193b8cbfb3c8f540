//! How a stop that failed is retried, and when it is given up: the one table from which every loop that retries a stop
//! takes its delays. `make lint` refuses any other back-off and any fixed wait in the files of these loops, and a loop
//! that waits for ever after its last delay. A new loop takes a row of its own: `for delay in Retry::KILL.within(time)`
//! if it gives up, and `Retry::UNIT.backoff()` if it does not.

use std::time::Duration;

use crate::backoff::{Delays, EXACT, LATER, SOONER, fraction};

#[cfg(test)]
mod tests;

/// A row of a loop that gives up. Its documentation says what failed, and after that what giving up does. The rows of
/// loops that end with their success or their caller are [`Delays`], which say only what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    delays: Delays,
    /// How many delays share the time that the loop has; with none, there are as many as fit into it.
    most: Option<u32>,
}

/// The first step of the delays and the longest, in milliseconds.
const fn row(first: u64, longest: u64, jitter: [u32; 2]) -> Delays {
    Delays::of_millis(first, longest, jitter)
}

/// As many as fit into the time that the loop has.
const fn until_end(delays: Delays) -> Retry {
    Retry { delays, most: None }
}

/// So many, none longer than its share of the time that is left.
const fn shared_by(most: u32, delays: Delays) -> Retry {
    Retry { delays, most: Some(most) }
}

impl Retry {
    /// The runtime did not stop a pod.
    pub const STOP: Delays = row(1_000, 10_000, LATER);
    /// Another step of a pod worker failed: a start, a cleanup.
    pub const STEP: Delays = Self::STOP;
    /// A step needs something outside the pod that is about to be ready: its network.
    pub const TRANSIENT: Delays = row(1_000, 1_000, LATER);
    /// The runtime could not be listed.
    pub const LISTING: Delays = row(10_000, 10_000, EXACT);
    /// A start in progress delays the stop; fails the stop.
    pub const START: Self = until_end(row(500, 500, EXACT));
    /// A container runtime did not accept a stop; fails the stop.
    pub const RUNTIME_CALL: Self = until_end(row(50, 1_000, SOONER));
    /// A container runtime has not carried out SIGKILL; kills the container's process directly, after a quarter of the
    /// time. There is no other delay.
    pub const RUNTIME_KILL: Self = shared_by(4, row(1_000, 1_000, EXACT));
    /// A program of the host has not exited after SIGKILL; fails the stop. Only the time that is left limits the delays.
    pub const KILL: Self = shared_by(4, row(u64::MAX, u64::MAX, EXACT));
    /// Processes that were killed may have forked before; reports that some still run.
    pub const SURVIVORS: Self = shared_by(6, row(500, 500, EXACT));
    /// Children of a container's supervisor survive SIGKILL.
    pub const CHILDREN: Delays = row(1, 1_000, EXACT);
    /// The kernel does not report the exit of a container's first process after SIGKILL: what else ran in its PID namespace
    /// is not reaped.
    pub const UNREAPED: Delays = row(5, 1_000, EXACT);
    /// Processes of a container whose supervisor is dead survive SIGKILL.
    pub const UNSUPERVISED: Delays = row(1_000, 60_000, SOONER);
    /// Processes of a container whose supervisor waits for a disk have not exited.
    pub const UNRECORDED: Delays = row(2_000, 2_000, EXACT);
    /// systemd did not stop the unit of a container that has exited.
    pub const UNIT: Delays = row(2_000, 60_000, SOONER);
    /// A pod of a kubelet could not be stopped through the container runtime.
    pub const KUBELET_POD: Delays = row(100, 1_000, SOONER);
    /// The API server did not answer an eviction; deletes the pod.
    pub const EVICTION: Self = until_end(row(100, 2_000, SOONER));
    /// The API server did not carry out a deletion.
    pub const DELETION: Delays = row(100, 2_000, SOONER);
    /// A disruption budget, an admission policy or a busy API server refused an eviction; deletes the pod. A pod that a
    /// policy keeps is asked for at least every 10 s, whatever the longest delay here.
    pub const BUDGET: Self = until_end(row(1_000, 1_000, EXACT));
    /// Eviction responders have not stopped the pod; evicts it.
    pub const RESPONDERS: Self = until_end(row(1_000, 1_000, EXACT));

    /// How long a container may take to exit after SIGKILL before its stop fails.
    pub const KILL_TIMEOUT: Duration = Duration::from_secs(10);

    /// The delay after `failures` others; `None` to give up, always once no time is `left` until the promised end. No
    /// delay exceeds that time. `fraction`, from 0 to 1, is the jitter.
    fn delay(self, failures: u32, left: Duration, fraction: f64) -> Option<Duration> {
        let delays = self.most.map_or(1, |most| most.saturating_sub(failures));
        let share = left.checked_div(delays).filter(|_| !left.is_zero())?;
        Some(self.delays.within(share, failures, fraction))
    }

    /// All delays of the row.
    pub fn delays(self) -> Retries {
        self.within(Duration::MAX)
    }

    /// The delays of the row, as far as they fit into this time; at least one.
    pub fn within(self, left: Duration) -> Retries {
        Retries { row: self, failures: 0, left: left.max(Duration::from_nanos(1)) }
    }
}

/// The delays of one row, in order.
#[derive(Clone, Debug)]
pub struct Retries {
    row: Retry,
    failures: u32,
    left: Duration,
}

impl Retries {
    /// The next delay, at least what the server `asked` for, if there is only this much time `left` by now.
    pub fn after(&mut self, asked: Option<Duration>, left: Duration) -> Option<Duration> {
        self.left = left;
        self.next().map(|delay| delay.max(asked.unwrap_or_default()).min(left))
    }
}

impl Iterator for Retries {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.row.delay(self.failures, self.left, fraction())?;
        self.failures = self.failures.saturating_add(1);
        self.left = self.left.saturating_sub(delay);
        Some(delay)
    }
}
