//! How a stop that failed is retried: the one table from which every loop that retries a stop takes its delays, until
//! there is none left and it gives up. `make lint` refuses any other back-off in the files of these loops.

use std::time::Duration;

use crate::base::backoff::{doubled, fraction};

#[cfg(test)]
mod tests;

/// A row: delays that double. Its documentation says what failed, and after that what giving up does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The first delay and the longest, in milliseconds.
    ms: [u64; 2],
    /// The number of delays.
    most: u32,
    /// The percentages of a delay between which it is drawn.
    jitter: [u32; 2],
}

/// There is no last delay. The loops of [`Retry::API_SERVER`] and [`Retry::KUBELET_POD`] would wait for ever after one:
/// before these rows get a number, their loops have to return an error.
const ENDLESS: u32 = u32::MAX;
const EXACT: [u32; 2] = [100, 100];
const SOONER: [u32; 2] = [50, 100];
const LATER: [u32; 2] = [100, 150];

const fn row(first: u64, longest: u64, most: u32, jitter: [u32; 2]) -> Retry {
    Retry { ms: [first, longest], most, jitter }
}

impl Retry {
    /// The runtime did not stop a pod; leaves the pod as it is until something about it changes.
    pub const STOP: Self = row(1_000, 10_000, ENDLESS, LATER);
    /// Another step of a pod worker failed (a start, a cleanup); as for [`STOP`](Self::STOP).
    pub const STEP: Self = row(1_000, 10_000, ENDLESS, LATER);
    /// A step needs something outside the pod that is about to be ready (its network); as for [`STOP`](Self::STOP).
    pub const TRANSIENT: Self = row(1_000, 1_000, ENDLESS, LATER);
    /// The runtime could not be listed; waits for the next periodic listing.
    pub const LISTING: Self = row(10_000, 10_000, ENDLESS, EXACT);
    /// A start in progress delays the stop; fails the stop.
    pub const START: Self = row(500, 500, ENDLESS, EXACT);
    /// A container runtime did not accept a stop; fails the stop.
    pub const RUNTIME_CALL: Self = row(50, 1_000, ENDLESS, SOONER);
    /// A container runtime has not carried out SIGKILL; kills the container's process directly.
    pub const RUNTIME_KILL: Self = row(1_000, 1_000, 4, EXACT);
    /// A program of the host has not exited after SIGKILL; fails the stop. Only the time that is left limits the delays.
    pub const KILL: Self = row(u64::MAX, u64::MAX, 4, EXACT);
    /// Processes that were killed may have forked before; reports that some still run.
    pub const SURVIVORS: Self = row(500, 500, 6, EXACT);
    /// Children of a container's supervisor survive SIGKILL; leaves them to the agent.
    pub const CHILDREN: Self = row(1, 1_000, ENDLESS, EXACT);
    /// Processes of a container whose supervisor is dead survive SIGKILL; counts the container as exited.
    pub const UNSUPERVISED: Self = row(1_000, 60_000, ENDLESS, SOONER);
    /// systemd did not stop the unit of a container that has exited; counts the unit as still loaded.
    pub const UNIT: Self = row(2_000, 60_000, ENDLESS, SOONER);
    /// A pod of a kubelet could not be stopped through the container runtime; leaves it to the kubelet.
    pub const KUBELET_POD: Self = row(100, 1_000, ENDLESS, SOONER);
    /// The API server did not carry out an eviction, or a deletion; deletes the pod, or leaves it to the runtime.
    pub const API_SERVER: Self = row(100, 2_000, ENDLESS, SOONER);
    /// A disruption budget refused an eviction; deletes the pod.
    pub const BUDGET: Self = row(1_000, 1_000, ENDLESS, EXACT);
    /// Eviction responders have not stopped the pod; evicts it.
    pub const RESPONDERS: Self = row(1_000, 1_000, ENDLESS, EXACT);

    /// How long a container may take to exit after SIGKILL before its stop fails.
    pub const KILL_TIMEOUT: Duration = Duration::from_secs(10);

    /// The delay after `failures` others; `None` to give up. `left` is the time until the promised end: a limited number
    /// of delays shares it, and no delay exceeds it. `fraction`, from 0 to 1, is the jitter.
    pub fn delay(self, failures: u32, left: Duration, fraction: f64) -> Option<Duration> {
        let delays = self.most.saturating_sub(failures);
        if delays == 0 || left.is_zero() {
            return None;
        }
        let share = if self.most == ENDLESS { left } else { left / delays };
        let ([first, longest], [from, to]) =
            (self.ms.map(Duration::from_millis), self.jitter.map(f64::from));
        let delay = doubled(first, longest, failures).min(share);
        Some(delay.mul_f64((from + (to - from) * fraction) / 100.0).min(share))
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
