//! Invariants about the pods.

use super::{SECOND, Verdict, group_of, seconds, within};
use crate::chaos::record::Record;
use crate::chaos::seen::REMAINS;
use crate::chaos::{Fault, Service};
use crate::witness::At;
use crate::{PodBehavior, TestPod};

/// How long after the release of the lock the exit of a pod may be noticed.
const READ: At = SECOND / 2;

/// No process of a pod runs when the node continues to power off, none was surplus when the node was at rest, and
/// systemd found nothing to kill.
pub(super) fn nothing_is_left_running(record: &Record) -> Verdict {
    if let Some(at_rest) = &record.at_rest
        && let Some((pod, count)) = at_rest.iter().find(|(_, count)| **count > 1)
    {
        return Err(format!("{pod} had {count} processes"));
    }
    let released = record.released().unwrap_or(At::MAX);
    for life in &record.lives {
        match life.ended {
            None => return Err(format!("nobody saw {} end", life.pod)),
            Some(ended) if ended > released.saturating_add(READ) => {
                let late = seconds(ended - released);
                return Err(format!("{} terminated {late} after the lock was released", life.pod));
            }
            Some(_) => {}
        }
    }
    let counts = |(at, text): &&(At, String)| {
        // A killed agent leaves its pods alone, and so does containerd. What a killed pod leaves in its own service,
        // systemd kills.
        let is_pods_own = text.starts_with("winddown-pod") && text.contains("Killing process");
        let is_left = text.contains(REMAINS) || is_pods_own;
        !is_left || (*at > released && !text.starts_with("containerd.service"))
    };
    let complaint = record.complaints.iter().find(counts);
    complaint.map_or(Ok(()), |(_, text)| Err(format!("systemd said: {text}")))
}

/// A pod is started once. A pod that was stopped may come back after a cancelled shutdown, or when there is room again,
/// but never next to itself and never during a shutdown.
pub(super) fn nobody_is_started_twice(record: &Record) -> Verdict {
    let taken_back = record.asked.len().saturating_sub(1);
    for pod in &record.pods {
        let log = &record.logs[&pod.name];
        let starts: Vec<At> = log.starts.iter().map(|(at, _)| *at).collect();
        let begun_again = gave_up_a_start(record);
        if starts.len() > 1 + taken_back && !record.victims.contains(&pod.name) && !begun_again {
            return Err(format!("{} was started {} times", pod.name, starts.len()));
        }
        for pair in starts.windows(2) {
            let between = (pair[0], pair[1]);
            let ended = record.lives.iter().filter(|life| life.pod == pod.name);
            let ended: Vec<At> = ended.filter_map(|life| life.ended).collect();
            let has_ended = within(&log.exits, between).chain(within(&ended, between)).next();
            if has_ended.is_none() && !begun_again && pod.behavior != PodBehavior::Hog {
                return Err(format!("{} was started beside itself", pod.name));
            }
        }
        let shutdown = (record.last_asked(), At::MAX);
        let alike = record
            .pods
            .iter()
            .filter(|other| group_of(other) == group_of(pod) && !record.is_without_manifest(other));
        let asked =
            alike.filter_map(|other| within(&record.logs[&other.name].terms, shutdown).next());
        let turn = asked.min().map_or(At::MAX, |turn| turn + SECOND / 2);
        if starts.iter().any(|start| *start > turn) {
            return Err(format!(
                "{} was started when its group had been asked to terminate",
                pod.name
            ));
        }
    }
    Ok(())
}

/// Pods that a drain stopped stay so for as long as the node is up, whatever happens meanwhile.
pub(super) fn a_drained_node_starts_nothing(record: &Record) -> Verdict {
    let Some(drained) = record.drained else { return Ok(()) };
    for (name, log) in &record.logs {
        if log.starts.iter().any(|(at, _)| *at > drained) {
            return Err(format!("{name} was started on a drained node"));
        }
    }
    Ok(())
}

/// A pod that stops when asked is never killed.
pub(super) fn who_can_end_alone_does(record: &Record) -> Verdict {
    let can = |pod: &&TestPod| {
        matches!(
            pod.behavior,
            PodBehavior::Willing
                | PodBehavior::NeverReady
                | PodBehavior::Holding
                | PodBehavior::Staying
        )
    };
    for pod in record.pods.iter().filter(can) {
        let log = &record.logs[&pod.name];
        let lives = if gave_up_a_start(record) { 1 } else { log.starts.len() };
        if log.exits.len() < lives.min(log.starts.len()) {
            return Err(format!("{} did not exit by itself: {log:?}", pod.name));
        }
    }
    Ok(())
}

/// Whether containerd may have given up a start. It does so, and kills what it had started, when it is stopped itself
/// or its caller is gone. Such a container is started again.
fn gave_up_a_start(record: &Record) -> bool {
    let is = |fault: Fault| fault.kills_the_agent() || fault.service() == Some(Service::Containerd);
    record.runtime.has_containers() && record.harms.iter().any(|harm| is(harm.fault))
}
