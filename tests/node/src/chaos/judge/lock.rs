//! The lock must be held while pods run, and released when they have stopped.

use super::order::delay_at;
use serde_json::Value;

use super::{SECOND, SLACK, Verdict, report, seconds};
use crate::chaos::record::Record;
use crate::chaos::seen::is_called;
use crate::witness::At;

/// How long the lock may be absent.
const AWAY: At = SECOND;

/// Once the lock was held for the first time, it is absent for at most a second: after it was lost, after the end of a
/// fault that prevents it, or after logind gave up a shutdown.
pub(super) fn the_lock_is_there_within_a_second(record: &Record) -> Verdict {
    let held = record.lock.iter().skip_while(|(_, held)| !held);
    let changes: Vec<(At, bool)> = held.copied().collect();
    if changes.is_empty() {
        return Err("logind never had the lock".to_owned());
    }
    for pair in changes.windows(2) {
        let [(from, false), (to, true)] = *pair else { continue };
        let harms = record.harms.iter().filter(|harm| harm.fault.keeps_the_lock_away());
        let over = harms.map(|harm| harm.to).filter(|over| (from..=to + AWAY).contains(over));
        // Until logind gives up the shutdown, it grants no lock.
        let refused = record.gave_up.iter().copied().filter(|at| (from..=to).contains(at));
        let since = over.chain(refused).chain([from]).max().unwrap_or(from);
        if to > since + AWAY {
            return Err(format!("the lock was away for {}", seconds(to - since)));
        }
    }
    Ok(())
}

/// The lock is released only after the last pod has stopped, and then without delay.
pub(super) fn the_lock_goes_with_the_last_pod(record: &Record) -> Verdict {
    let asked = record.last_asked();
    let Some(released) = record.released() else {
        return Err("the lock was never released".to_owned());
    };
    let ended = record.lives.iter().filter_map(|life| life.ended).filter(|at| *at > asked);
    let exits = record.logs.values().flat_map(|log| log.exits.iter().copied());
    let last = ended.chain(exits.filter(|at| *at > asked)).chain(told(record)).max();
    let last = last.unwrap_or(asked);
    // The exit of a process is noticed a moment after it happened.
    if released + SLACK / 2 < last {
        return Err(format!(
            "the lock was released {} before the last end",
            seconds(last - released)
        ));
    }
    // The agent gives an API server that is slow all the time that is left, which another invariant checks.
    if record.slow_api.iter().any(|(from, to)| *from < released && *to + SECOND > last) {
        return Ok(());
    }
    let kept = released.saturating_sub(last);
    match kept > delay_at(record, last) + SLACK {
        true => Err(format!("the lock was held for {} after the last end", seconds(kept))),
        false => Ok(()),
    }
}

/// When the unwatched pods stopped, according to the agent: they were still being started when the shutdown was
/// requested.
fn told(record: &Record) -> impl Iterator<Item = At> + '_ {
    let is_watched = |said: &Value| {
        record
            .lives
            .iter()
            .any(|life| said["name"].as_str().is_some_and(|n| is_called(n, &life.pod)))
    };
    let pods = record.report().into_iter().flat_map(report::all);
    let others = pods.filter(move |said| !is_watched(said));
    let ends = others.filter_map(|said| said["exitMs"].as_u64());
    ends.map(|end| record.last_asked() + end * (SECOND / 1000))
}
