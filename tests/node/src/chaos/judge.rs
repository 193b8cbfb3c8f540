//! The invariants of every schedule. Each is a function of the record.

mod lock;
mod order;
mod pods;
mod report;
mod switched_on;
#[cfg(test)]
mod tests;

use super::record::Record;
use super::stage::SECONDS;
use crate::TestPod;
use crate::scenario::group_of;
use crate::witness::At;

/// The result of an invariant: nothing, or what was seen instead.
type Verdict = Result<(), String>;
/// An invariant, with its name in the table.
type Invariant = (&'static str, fn(&Record) -> Verdict);

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant.
    pub invariant: &'static str,
    /// What was seen.
    pub seen: String,
}

/// All invariants.
const INVARIANTS: [Invariant; 13] = [
    ("order", order::groups_end_one_after_the_other),
    ("budget", order::the_budget_is_kept),
    ("grace", order::nobody_is_killed_before_the_grace),
    ("no orphan", pods::nothing_is_left_running),
    ("once", pods::nobody_is_started_twice),
    ("drained", pods::a_drained_node_starts_nothing),
    ("own end", pods::who_can_end_alone_does),
    ("lock kept", lock::the_lock_is_there_within_a_second),
    ("lock released", lock::the_lock_goes_with_the_last_pod),
    ("report", report::the_report_is_complete),
    ("told", switched_on::pods_are_told),
    ("cancelled", switched_on::a_notice_goes_when_it_is_called_off),
    ("switched on", switched_on::what_is_switched_on_works),
];

/// Returns every invariant that does not hold.
pub(super) fn judge(record: &Record) -> Vec<Violation> {
    let verdicts = INVARIANTS.into_iter().filter_map(|(invariant, holds)| {
        holds(record).err().map(|seen| Violation { invariant, seen })
    });
    verdicts.collect()
}

const SECOND: At = 1_000_000_000;
/// The tolerance for things that take no time: the machine is busy with other nodes.
const SLACK: At = SECOND;

/// The time of a pod's group.
fn period_of(pod: &TestPod) -> At {
    At::from(SECONDS[group_of(pod)]) * SECOND
}

/// How long a pod may run in a shutdown after it was asked to stop.
fn grace_of(pod: &TestPod) -> At {
    (At::from(pod.grace_seconds) * SECOND).min(period_of(pod))
}

/// The `times` within a range.
pub(super) fn within(times: &[At], (from, to): (At, At)) -> impl Iterator<Item = At> + '_ {
    times.iter().copied().filter(move |at| (from..to).contains(at))
}

/// Nanoseconds as text for people.
fn seconds(nanoseconds: At) -> String {
    format!("{:.2} s", std::time::Duration::from_nanos(nanoseconds).as_secs_f64())
}
