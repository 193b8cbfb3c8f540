//! The changes between two statuses, one per line: the output of `status --watch` into a pipe.

use std::collections::{HashMap, HashSet};

use winddown_shared::display::{clean, seconds};

use super::eviction::kind;
use super::rows::why_closed;
use super::status::{pod_state, problems, ready};
use super::{PODS_UNKNOWN, group_title};
use winddown_control::api::{LockState, Phase, PodStatus, ShutdownProgress, Status};

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
    if old.map(drain).unwrap_or_default() != drain(new) {
        let none = || vec!["drain none".to_owned()];
        lines.extend(Some(drain(new)).filter(|lines| !lines.is_empty()).unwrap_or_else(none));
    }
    begun_and_over(old, new, conditions, ["", "over: "], &mut lines);
    pods(old, new, &mut lines);
    begun_and_over(old, new, manifests, ["problem ", "fixed "], &mut lines);
    let time = new.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    lines.into_iter().map(|line| format!("{time} {line}")).collect()
}

/// What is true of a node for a time.
fn conditions(status: &Status) -> Vec<String> {
    let mut found = Vec::new();
    for by in &status.admission_closed_by {
        found.push(format!("admission closed: {}", why_closed(*by)));
    }
    for notice in &status.notices {
        let source = &notice.source;
        if let Some(deadline) = notice.deadline {
            let far = if notice.in_effect { "" } else { ", not yet acted on" };
            let until = format!("the node goes away at {deadline:.0}{far}");
            found.push(format!("notice of {source}, {until}: {}", notice.text));
        }
        if let Some(problem) = &notice.problem {
            found.push(format!("notices of {source} cannot be received: {problem}"));
        }
    }
    let runtime = &status.runtime;
    if !runtime.healthy && !runtime.name.is_empty() {
        found.push(format!("runtime {} unavailable: {}", runtime.name, runtime.message));
    }
    let thresholds = status.pressure.iter().flat_map(|pressure| &pressure.thresholds);
    for met in thresholds.filter(|one| one.met_for_seconds.is_some()) {
        found.push(format!("pressure {}, {}", met.signal, kind(met)));
    }
    if status.pods_unknown {
        found.push(PODS_UNKNOWN.to_owned());
    }
    for pod in &status.rejected {
        let (namespace, name) = (&pod.namespace, &pod.name);
        found.push(format!("rejected {namespace}/{name}, {}: {}", pod.reason, pod.message));
    }
    found.iter().map(|text| clean(text).into_owned()).collect()
}

fn manifests(status: &Status) -> Vec<String> {
    status.manifests.problems.iter().map(problems::manifest).collect()
}

/// One line for each text of a status that is new, and for each that is no longer true.
fn begun_and_over(
    old: Option<&Status>,
    new: &Status,
    told: fn(&Status) -> Vec<String>,
    [begun, over]: [&str; 2],
    lines: &mut Vec<String>,
) {
    let (before, now) = (old.map(told).unwrap_or_default(), told(new));
    let missing_in = |these: &[String], those: &[String]| -> Vec<String> {
        let those: HashSet<&String> = those.iter().collect();
        these.iter().filter(|problem| !those.contains(problem)).cloned().collect()
    };
    lines.extend(missing_in(&now, &before).iter().map(|text| format!("{begun}{text}")));
    lines.extend(missing_in(&before, &now).iter().map(|text| format!("{over}{text}")));
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
    let mut lines = run("shutdown", &status.shutdown);
    if let Some(scheduled) = &status.shutdown.scheduled {
        let kind = clean(&scheduled.kind).into_owned();
        lines.push(format!("shutdown scheduled: {kind} at {:.0}", scheduled.at));
    }
    lines
}

fn drain(status: &Status) -> Vec<String> {
    status.drain.as_ref().map(|drain| run("drain", &drain.progress)).unwrap_or_default()
}

/// The phase and the groups of a shutdown or a drain.
fn run(what: &str, run: &ShutdownProgress) -> Vec<String> {
    let phase = match run.phase {
        Phase::Idle => return vec![format!("{what} none")],
        Phase::Running => "running",
        Phase::Cancelled => "cancelled",
        Phase::Done => "done",
        Phase::Unknown => "unknown",
    };
    let mut lines = vec![format!("{what} {phase}")];
    for group in run.groups.iter().filter(|group| group.started) {
        let title = group_title(group.name.as_deref(), group.priority);
        lines.push(format!(
            "{what} {phase}: {title}, {} of {} terminated",
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
