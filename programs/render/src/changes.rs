//! The changes between two statuses, one per line: the output of `status --watch` into a pipe.

use std::collections::{HashMap, HashSet};

use winddown_shared::display::{clean, seconds};

use super::group_title;
use super::status::{pod_state, problems, ready};
use winddown_control::api::{LockState, Phase, PodStatus, Status};

/// One line for every difference in `new`, or, without `old`, for everything in `new`.
///
/// Each line starts with the time of `new`, in UTC.
pub fn changes(old: Option<&Status>, new: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let differs = |same: bool| old.is_none() || !same;
    if differs(old.is_some_and(|old| lock(old) == lock(new))) {
        lines.push(format!("lock {}", lock(new)));
    }
    if differs(old.is_some_and(|old| shutdown(old) == shutdown(new))) {
        lines.extend(shutdown(new));
    }
    pods(old, new, &mut lines);
    manifests(old, new, &mut lines);
    let time = new.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    lines.into_iter().map(|line| format!("{time} {line}")).collect()
}

fn manifests(old: Option<&Status>, new: &Status, lines: &mut Vec<String>) {
    let told = |status: &Status| -> Vec<String> {
        status.manifests.problems.iter().map(problems::manifest).collect()
    };
    let (before, now) = (old.map(told).unwrap_or_default(), told(new));
    let missing_in = |these: &[String], those: &[String]| -> Vec<String> {
        let those: HashSet<&String> = those.iter().collect();
        these.iter().filter(|problem| !those.contains(problem)).cloned().collect()
    };
    lines.extend(missing_in(&now, &before).iter().map(|problem| format!("problem {problem}")));
    lines.extend(missing_in(&before, &now).iter().map(|problem| format!("fixed {problem}")));
}

fn lock(status: &Status) -> String {
    let lock = &status.lock;
    let why = lock.why.as_deref().map(|why| format!(": {}", clean(why))).unwrap_or_default();
    match lock.state {
        LockState::Held => match lock.delay_seconds {
            Some(delay) => {
                format!("held, {} of {}", seconds(delay), seconds(lock.required_seconds))
            }
            None => "held".to_owned(),
        },
        LockState::Waiting => format!("not held{why}"),
        LockState::Released => "released".to_owned(),
        LockState::Absent => format!("none{why}"),
        LockState::Unknown => "unknown".to_owned(),
    }
}

fn shutdown(status: &Status) -> Vec<String> {
    let shutdown = &status.shutdown;
    let phase = match shutdown.phase {
        Phase::Idle => return vec!["shutdown none".to_owned()],
        Phase::Running => "running",
        Phase::Cancelled => "cancelled",
        Phase::Done => "done",
        Phase::Unknown => "unknown",
    };
    let mut lines = vec![format!("shutdown {phase}")];
    for group in shutdown.groups.iter().filter(|group| group.started) {
        let title = group_title(group.name.as_deref(), group.priority);
        lines.push(format!(
            "shutdown {phase}: {title}, {} of {} terminated",
            group.terminated, group.pods
        ));
    }
    lines
}

fn pods(old: Option<&Status>, new: &Status, lines: &mut Vec<String>) {
    let mut before: HashMap<&str, &PodStatus> = old
        .map(|old| old.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect())
        .unwrap_or_default();
    for pod in &new.pods {
        let was = before.remove(pod.uid.as_str());
        if was.is_none_or(|was| facts(was) != facts(pod)) {
            lines.push(format!("pod {}", facts(pod)));
        }
    }
    let mut gone: Vec<String> =
        before.into_values().map(|pod| format!("pod {} gone", name(pod))).collect();
    gone.sort_unstable();
    lines.extend(gone);
}

fn facts(pod: &PodStatus) -> String {
    let (name, state) = (name(pod), pod_state(pod));
    let (ready, restarts) = (ready(pod), pod.restarts);
    format!("{name} {} ready={ready} restarts={restarts}", clean(&state))
}

fn name(pod: &PodStatus) -> String {
    clean(&format!("{}/{}", pod.namespace, pod.name)).into_owned()
}
