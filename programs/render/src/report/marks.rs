//! The marks and remarks of a pod that all pictures of a report share.

use std::time::Duration;

use winddown_shared::display::in_seconds;
use winddown_shutdown::{EndDetail, PodEnd, PodEndText, PodReport, Tone};

use super::sentences;

/// The times at which the parts of a pod's bar begin and end.
pub(super) struct BarTimes {
    pub(super) asked: Duration,
    pub(super) term: Duration,
    pub(super) kill: Option<Duration>,
    pub(super) end: Duration,
}

impl BarTimes {
    /// The times of `pod` in a run that took `took`; none if the pod was not asked to stop.
    pub(super) fn of(pod: &PodReport, took: Duration) -> Option<Self> {
        let asked = pod.asked?;
        let term = pod.sigterm.unwrap_or(asked).max(asked);
        // A pod that exited unseen has no known exit time: no bar is drawn.
        let is_killed = pod.end == PodEnd::Killed;
        let unseen = if pod.end.has_terminated() && !is_killed { term } else { took };
        let end = pod.exit.unwrap_or(unseen).max(term);
        // The report does not contain the time of SIGKILL, but it is sent when the grace is over.
        let over = asked.saturating_add(pod.grace).clamp(term, end);
        let kill = is_killed.then_some(over);
        Some(Self { asked, term, kill, end })
    }
}

/// The CSS class of the remark about a pod.
pub(super) fn class(pod: &PodReport) -> &'static str {
    class_of(sentences::tone(pod))
}

/// The CSS class of a tone; of none, that of what is not to be noticed.
pub(super) fn class_of(tone: Option<Tone>) -> &'static str {
    match tone {
        Some(Tone::Good) => "good",
        Some(Tone::Warn) => "warn",
        Some(Tone::Bad) => "bad",
        None => "dim",
    }
}

/// The remark about a pod at the right of its bar.
pub(super) fn remark(pod: &PodReport) -> String {
    let took = pod.exit.zip(pod.asked).map(|(exit, asked)| in_seconds(exit.saturating_sub(asked)));
    let PodEndText { word, detail, .. } = pod.end.text();
    let (mut said, names_containers) = match detail {
        EndDetail::Duration => {
            (took.unwrap_or_else(|| "terminated at an unknown time".to_owned()), false)
        }
        EndDetail::Containers => {
            let after = took.map(|took| format!(" after {took}")).unwrap_or_default();
            let of = pod.wanted_grace.map(|wanted| format!(" of {}", in_seconds(wanted)));
            (format!("{word}{after}{}", of.unwrap_or_default()), true)
        }
        EndDetail::ContainersOrError => (word.to_owned(), true),
        EndDetail::Nothing | EndDetail::Reason => (word.to_owned(), false),
    };
    if names_containers && !pod.containers.is_empty() {
        said.push_str(&format!(" · {}", pod.containers.join(", ")));
    }
    if !pod.mounts.is_empty() {
        said.push_str(" · still held");
    }
    said
}

/// The tooltip with all facts about a pod.
pub(super) fn hover(pod: &PodReport, name: &str) -> String {
    let seconds = |at: Duration| format!("{:.3} s", at.as_secs_f64());
    let priority = match pod.priority {
        Some(priority) => format!("priority {priority}"),
        None => "no priority".to_owned(),
    };
    let mut lines = vec![format!("{name}, {priority}")];
    let times = [("asked", pod.asked), ("SIGTERM", pod.sigterm), ("exit", pod.exit)];
    let known = times.into_iter().filter_map(|(what, at)| Some(format!("{what} {}", seconds(at?))));
    let known: Vec<String> = known.collect();
    if !known.is_empty() {
        lines.push(known.join(", "));
    }
    let mut grace = format!("grace {}", sentences::length(pod.grace));
    if let Some(wanted) = pod.wanted_grace {
        grace.push_str(&format!(", its own is {}", in_seconds(wanted)));
    }
    lines.push(grace);
    let said = sentences::remark(pod);
    if !said.is_empty() {
        lines.push(said);
    }
    lines.extend(pod.mounts.iter().map(|mount| format!("still held: {mount}")));
    lines.push(format!("uid {}", pod.uid));
    lines.join("\n")
}
