//! The sentences that every form of the report shares.

use std::fmt::{self, Display};
use std::time::Duration;

use super::{GroupReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger};

pub(super) fn headline(report: &ShutdownReport) -> String {
    let what = match report.trigger {
        Trigger::Drain => "drain",
        Trigger::Drill => "drill",
        _ => "shutdown",
    };
    let total = report.pods().count();
    let took = Span(report.took);
    let time = format!("{took} (budget {})", Span(report.budget.pods));
    let ended = report.count(PodEnd::Exited) + report.count(PodEnd::Killed);
    let killed = report.count(PodEnd::Killed);
    let left = report.count(PodEnd::Left);
    let tally = || {
        let ending = report.count(PodEnd::Ending) + left;
        let spared = report.count(PodEnd::Spared);
        format!("{} had ended, {ending} still ending, {spared} spared", pods(ended))
    };
    match report.outcome {
        Outcome::Clean if total == 0 => format!("Clean {what}: there were no pods to end."),
        Outcome::Clean => format!("Clean {what}: {} ended by themselves in {time}.", pods(total))
            .replace("1 pod ended by themselves", "1 pod ended by itself"),
        Outcome::Forced => format!(
            "Forced {what}: {killed} of {} had to be killed, all ended in {time}.",
            pods(total)
        ),
        Outcome::Left if left == 0 && report.pods_unknown => format!(
            "Incomplete {what}: the container runtime did not say what runs, so pods may have been \
             left running, after {time}."
        ),
        Outcome::Left if left == 0 => {
            format!("Failed {what}: it is not known what became of the pods, after {time}.")
        }
        Outcome::Left if report.trigger == Trigger::Drain => format!(
            "Incomplete {what}: {left} of {} still ran at its end, after {time}.",
            pods(total)
        ),
        Outcome::Left => format!(
            "Incomplete {what}: {left} of {} still ran when the node was let go, after {time}.",
            pods(total)
        ),
        Outcome::Cancelled => format!("Cancelled {what}, after {took}: {}.", tally()),
        Outcome::Interrupted => {
            format!("Interrupted {what}: the agent was stopped after {took}: {}.", tally())
        }
        Outcome::CutOff => format!(
            "Cut-off {what}: the machine went down in the middle. At its last record, {took} after \
             the signal, {} had ended, {} still ending, {} not asked yet.",
            pods(ended),
            report.count(PodEnd::Ending) + left,
            report.count(PodEnd::Spared)
        ),
    }
}

/// The pods of which the cluster does not know yet that they have ended.
pub(super) fn not_told(report: &ShutdownReport) -> Option<String> {
    const NAMED: usize = 5;
    let all = &report.statuses_not_told;
    if all.is_empty() {
        return None;
    }
    let named: Vec<String> = all.iter().take(NAMED).map(|pod| printable(pod)).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "Not told to the API server: the last status of {}: {}{more}. The next agent sends it.",
        pods(all.len()),
        named.join(", ")
    ))
}

pub(super) fn occasion(report: &ShutdownReport) -> String {
    let action = match report.node_action.as_deref() {
        Some("powerOff") => " · power-off",
        Some("halt") => " · halt",
        Some("reboot") => " · reboot",
        Some("kexec") => " · kexec",
        Some("softReboot") => " · soft reboot",
        _ => "",
    };
    let at = report.started_at.strftime("%Y-%m-%d %H:%M:%S UTC");
    format!("{at}{action} · boot {}", printable(&report.boot_id))
}

/// What was special about the run's beginning and its course, a sentence each.
pub(super) fn origin(report: &ShutdownReport) -> Vec<String> {
    let mut said = Vec::new();
    if report.trigger == Trigger::UnitStop {
        said.push(
            "The login manager did not announce it: the service was stopped and ended the pods."
                .to_owned(),
        );
    }
    if let Some(notice) = &report.notice {
        let (source, text) = (printable(&notice.source), printable(&notice.text));
        let deadline = Span(notice.deadline);
        said.push(format!(
            "Notice from {source}: {text}. The node ends {deadline} after the start."
        ));
    }
    if let Some(drain) = report.endpoint_drain.filter(|drain| !drain.is_zero()) {
        let drain = Span(drain);
        said.push(format!("Pods were not ready for {drain} before the first SIGTERM."));
    }
    if !report.resumed.is_empty() {
        let times: Vec<String> = report.resumed.iter().map(|at| Span(*at).to_string()).collect();
        said.push(format!(
            "The agent was restarted in the middle and went on after {}.",
            times.join(", then after ")
        ));
    }
    if report.pods_unknown {
        said.push(
            "The container runtime did not say what runs: there may have been pods that are not \
             listed here."
                .to_owned(),
        );
    }
    said
}

pub(super) fn shortage(report: &ShutdownReport) -> String {
    let budget = &report.budget;
    let (requested, given) = (Span(budget.requested), Span(budget.pods));
    let Some(delay) = budget.delay else {
        return format!("The groups ask for {requested}, the pods got {given}.");
    };
    let by = budget.delay_set_by.as_deref().map(printable);
    let by = by.map_or(String::new(), |file| format!(" (set by {file})"));
    format!(
        "The groups ask for {requested}, but the login manager waits only {}{by}, and {} are kept \
         for the end: the pods got {given}.",
        Span(delay),
        Span(budget.reserve)
    )
}

/// A group's name, or its priority.
pub(super) fn group(group: &GroupReport) -> String {
    let named = group.name.as_deref().filter(|name| !name.is_empty());
    named.map_or_else(|| format!("priority {} and above", group.priority), printable)
}

/// How a group went, beside its name.
pub(super) fn group_facts(group: &GroupReport) -> String {
    let mut said = match &group.name {
        Some(_) => format!("priority {} · {}", group.priority, pods(group.pods.len())),
        None => pods(group.pods.len()),
    };
    match (group.started, group.ended) {
        (Some(started), Some(ended)) => {
            let took = ended.saturating_sub(started);
            let had = group.latest_end.saturating_sub(started);
            said.push_str(&format!(" · took {} of {}", Span(took), Span(had)));
        }
        (Some(_), None) => said.push_str(" · not finished"),
        (None, _) => said.push_str(" · spared"),
    }
    said
}

/// What is worth saying about a pod; empty for one that ended by itself and left nothing.
pub(super) fn remark(pod: &PodReport) -> String {
    let containers = pod.containers.iter().map(|name| printable(name)).collect::<Vec<_>>();
    let containers = match containers.is_empty() {
        true => String::new(),
        false => format!(": {}", containers.join(", ")),
    };
    let wanted = pod
        .wanted_grace
        .map_or(String::new(), |wanted| format!(" (its own grace is {})", Span(wanted)));
    let end = match pod.end {
        PodEnd::Exited => String::new(),
        PodEnd::Killed => format!("killed{containers}{wanted}"),
        PodEnd::Ending => "was still ending".into(),
        PodEnd::Spared => "spared".into(),
        PodEnd::Left if containers.is_empty() => {
            let error = pod.error.as_deref().map_or("unknown".into(), printable);
            format!("STILL RUNS? {error}")
        }
        PodEnd::Left => format!("STILL RUNS{containers}{wanted}"),
    };
    match (pod.mounts.is_empty(), end.is_empty()) {
        (true, _) => end,
        (false, true) => mounts(pod),
        (false, false) => format!("{end}; {}", mounts(pod)),
    }
}

/// How many mounts a pod left behind.
pub(super) fn mounts(pod: &PodReport) -> String {
    match pod.mounts.len() {
        1 => "1 mount not released".to_owned(),
        mounts => format!("{mounts} mounts not released"),
    }
}

pub(super) fn name(pod: &PodReport) -> String {
    printable(&format!("{}/{}", pod.namespace, pod.name))
}

pub(super) fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}

/// Text from elsewhere, unable to move the cursor or to turn the line around.
pub(super) fn printable(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// A duration for people: `12 ms`, `8.2 s`, `30 s`.
pub(super) struct Span(pub(super) Duration);

// === impl Span ===

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            1..100 => write!(f, "{millis} ms"),
            _ if millis.is_multiple_of(1000) => write!(f, "{} s", millis / 1000),
            _ => write!(f, "{:.1} s", self.0.as_secs_f64()),
        }
    }
}
