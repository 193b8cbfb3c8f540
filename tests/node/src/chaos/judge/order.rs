//! When pods are asked to stop, and when everything must be over.

use super::{SECOND, SLACK, Verdict, grace_of, group_of, period_of, seconds, within};
use crate::chaos::record::Record;
use crate::chaos::{Fault, Feature};
use crate::witness::At;
use crate::{PodBehavior, TestPod};

/// The time that logind gives beyond the budget.
const RESERVE: At = 2 * SECOND;
/// How much earlier than its grace period a pod may stop: it records the request with a separate program, a moment
/// after the agent has started to count.
const EARLY: At = SECOND / 4;

/// No group is asked to stop while a pod of an earlier group still has time and uses it. Critical pods are in the last
/// group.
pub(super) fn groups_end_one_after_the_other(record: &Record) -> Verdict {
    for shutdown in record.shutdowns() {
        for later in record.pods.iter().filter(|pod| !record.is_without_manifest(pod)) {
            let terms = &record.logs[&later.name].terms;
            let run = (record.asks_from(later, shutdown), shutdown.1);
            let Some(asked) = within(terms, run).next() else { continue };
            let before = |pod: &&TestPod| {
                group_of(pod) < group_of(later) && !record.is_without_manifest(pod)
            };
            for earlier in record.pods.iter().filter(before) {
                let log = &record.logs[&earlier.name];
                let Some(term) = within(&log.terms, shutdown).next() else { continue };
                let end = within(&log.exits, shutdown).next();
                if end.is_some_and(|end| asked < end && asked < term + period_of(earlier)) {
                    return Err(format!(
                        "{} was asked while {}, of a group before it, was still terminating",
                        later.name, earlier.name
                    ));
                }
                if asked < term {
                    return Err(format!("{} was asked before {}", later.name, earlier.name));
                }
            }
        }
    }
    Ok(())
}

/// The budget lasts from the request to the release of the lock, or to the exit of the last pod if that is later.
pub(super) fn the_budget_is_kept(record: &Record) -> Verdict {
    if record.lost_patience {
        return Err("logind waited no longer for the lock".to_owned());
    }
    let ended = record.lives.iter().filter_map(|life| life.ended);
    let over = ended.chain(record.released()).max().unwrap_or(0);
    let took = over.saturating_sub(record.last_asked());
    let seconds_of_groups = Feature::seconds(&record.features);
    let budget = seconds_of_groups.iter().map(|s| At::from(*s) * SECOND).sum::<At>() + RESERVE;
    match took > budget {
        true => Err(format!("it took {} of {}", seconds(took), seconds(budget))),
        false => Ok(()),
    }
}

/// No pod is killed before its grace period in a shutdown. Pods evicted for memory get one second. After the agent was
/// killed, its successor keeps the grace period to the nearest second.
pub(super) fn nobody_is_killed_before_the_grace(record: &Record) -> Verdict {
    let first = record.asked.first().copied().unwrap_or(At::MAX);
    let is_killed = record.was_harmed(Fault::kills_the_agent, first, At::MAX);
    for life in &record.lives {
        let Some(pod) = record.pods.iter().find(|pod| pod.name == life.pod) else { continue };
        let Some(ended) = life.ended.filter(|ended| *ended > record.last_asked()) else { continue };
        let log = &record.logs[&pod.name];
        let started = log.starts.iter().map(|(at, _)| *at).filter(|at| *at < ended).max();
        // It may have been asked in a shutdown that was cancelled, and still be terminating.
        let lived = (started.unwrap_or(0), ended);
        let asked = match pod.behavior {
            PodBehavior::Deaf | PodBehavior::Lasting => within(&log.terms, lived).next(),
            // A suspended pod records nothing; it is asked no sooner than in the first shutdown.
            PodBehavior::Stuck => Some(first.max(lived.0)),
            PodBehavior::Willing
            | PodBehavior::Hog
            | PodBehavior::NeverReady
            | PodBehavior::Holding
            | PodBehavior::Staying => None,
        };
        let Some(asked) = asked else { continue };
        let had = ended.saturating_sub(asked);
        let early = match is_killed {
            true => EARLY + SECOND / 2,
            false => EARLY,
        };
        if had + early < grace_of(pod) {
            let grace = seconds(grace_of(pod));
            return Err(format!("{} was killed after {} of {grace}", pod.name, seconds(had)));
        }
    }
    Ok(())
}

/// How much longer than usual the end may take, because of faults near it.
pub(super) fn delay_at(record: &Record, at: At) -> At {
    let near = |fault: Fault| {
        fault.keeps_the_lock_away()
            || matches!(fault, Fault::StateFull | Fault::DiskHangs | Fault::ApiDown)
    };
    match record.was_harmed(near, at.saturating_sub(SECOND), At::MAX) {
        true => 3 * SLACK,
        false => SLACK,
    }
}
