//! How a stop that failed is retried, and when it is given up: the one table from which every loop that retries a stop
//! takes its delays, until there is none left. `make lint` refuses any other back-off in the files of these loops, and a
//! loop that waits for ever after its last delay. A new loop takes a row of its own:
//! `for delay in Retry::KILL.within(time)`.

use std::time::Duration;

use crate::backoff::{doubled, fraction};

#[cfg(test)]
mod tests;

/// A row: delays that double. Its documentation says what failed, and after that what giving up does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The first delay and the longest, in milliseconds.
    ms: [u64; 2],
    until: GiveUp,
    /// The percentages of a delay between which it is drawn.
    jitter: [u32; 2],
}

/// When a loop gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GiveUp {
    /// Never: it ends with its success or its caller.
    Never,
    /// With the time that its caller has, which no delay exceeds.
    AtEnd,
    /// After so many delays, which share that time.
    After(u32),
}

use GiveUp::{After, AtEnd, Never};

const EXACT: [u32; 2] = [100, 100];
const SOONER: [u32; 2] = [50, 100];
const LATER: [u32; 2] = [100, 150];

const fn row(first: u64, longest: u64, until: GiveUp, jitter: [u32; 2]) -> Retry {
    Retry { ms: [first, longest], until, jitter }
}

impl Retry {
    /// The runtime did not stop a pod; leaves the pod as it is until something about it changes.
    pub const STOP: Self = row(1_000, 10_000, Never, LATER);
    /// Another step of a pod worker failed (a start, a cleanup); as for [`STOP`](Self::STOP).
    pub const STEP: Self = row(1_000, 10_000, Never, LATER);
    /// A step needs something outside the pod that is about to be ready (its network); as for [`STOP`](Self::STOP).
    pub const TRANSIENT: Self = row(1_000, 1_000, Never, LATER);
    /// The runtime could not be listed; waits for the next periodic listing.
    pub const LISTING: Self = row(10_000, 10_000, Never, EXACT);
    /// A start in progress delays the stop; fails the stop.
    pub const START: Self = row(500, 500, AtEnd, EXACT);
    /// A container runtime did not accept a stop; fails the stop.
    pub const RUNTIME_CALL: Self = row(50, 1_000, AtEnd, SOONER);
    /// A container runtime has not carried out SIGKILL; kills the container's process directly.
    pub const RUNTIME_KILL: Self = row(1_000, 1_000, After(4), EXACT);
    /// A program of the host has not exited after SIGKILL; fails the stop. Only the time that is left limits the delays.
    pub const KILL: Self = row(u64::MAX, u64::MAX, After(4), EXACT);
    /// Processes that were killed may have forked before; reports that some still run.
    pub const SURVIVORS: Self = row(500, 500, After(6), EXACT);
    /// Children of a container's supervisor survive SIGKILL; leaves them to the agent.
    pub const CHILDREN: Self = row(1, 1_000, Never, EXACT);
    /// Processes of a container whose supervisor is dead survive SIGKILL; counts the container as exited.
    pub const UNSUPERVISED: Self = row(1_000, 60_000, Never, SOONER);
    /// systemd did not stop the unit of a container that has exited; counts the unit as still loaded.
    pub const UNIT: Self = row(2_000, 60_000, Never, SOONER);
    /// A pod of a kubelet could not be stopped through the container runtime; fails the stop.
    pub const KUBELET_POD: Self = row(100, 1_000, Never, SOONER);
    /// The API server did not answer an eviction; deletes the pod.
    pub const EVICTION: Self = row(100, 2_000, AtEnd, SOONER);
    /// The API server did not carry out a deletion; fails the stop.
    pub const DELETION: Self = row(100, 2_000, Never, SOONER);
    /// A disruption budget refused an eviction; deletes the pod.
    pub const BUDGET: Self = row(1_000, 1_000, AtEnd, EXACT);
    /// Eviction responders have not stopped the pod; evicts it.
    pub const RESPONDERS: Self = row(1_000, 1_000, AtEnd, EXACT);

    /// How long a container may take to exit after SIGKILL before its stop fails.
    pub const KILL_TIMEOUT: Duration = Duration::from_secs(10);

    /// The delay after `failures` others; `None` to give up, always once no time is `left` until the promised end. No
    /// delay exceeds that time. `fraction`, from 0 to 1, is the jitter.
    pub fn delay(self, failures: u32, left: Duration, fraction: f64) -> Option<Duration> {
        let delays = match self.until {
            Never | AtEnd => 1,
            After(most) => most.saturating_sub(failures),
        };
        let share = left.checked_div(delays).filter(|_| !left.is_zero())?;
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
