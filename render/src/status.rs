//! `winddown status` on one screen.

use anstyle::Style;
use winddown_shared::display::{age, clean, seconds};
use winddown_shared::{WAITING_FOR_PREEMPTION, WallTime};

use super::group_state::GroupState;
use super::paint::{BAD, DIM, GOOD, HEAD, Paint, WARN};
use super::{Column, PODS_UNKNOWN, Table, View, group_title, since, wrap};
use winddown_control::api::{ClosedBy, LockState, Phase, PodState, PodStatus, Status};

pub(super) mod problems;

/// Decisions shown unless the view is wide.
const DECISIONS: usize = 5;

/// Columns the labels at the left take.
const LABEL: usize = 11;

/// The status as text.
pub fn status(status: &Status, view: &View) -> String {
    let mut page = Page { text: String::new(), view, paint: Paint { color: view.color } };
    page.head(status);
    page.pods(status);
    page.problems(status);
    page.decisions(status);
    page.text
}

/// What a pod does, in one word as kubectl would put it.
pub(super) fn pod_state(pod: &PodStatus) -> String {
    const ORDINARY: [&str; 2] = ["ContainerCreating", "PodInitializing"];
    match pod.state {
        PodState::Terminating => return "Terminating".to_owned(),
        PodState::Waiting if pod.reason.is_empty() => return "Waiting".to_owned(),
        _ => {}
    }
    if !pod.reason.is_empty() {
        return pod.reason.clone();
    }
    let stuck = pod.containers.iter().find(|container| {
        container.state == "waiting"
            && !container.reason.is_empty()
            && !ORDINARY.contains(&container.reason.as_str())
    });
    match (stuck, pod.state, pod.phase.as_str()) {
        (Some(container), ..) => container.reason.clone(),
        (None, PodState::Finished | PodState::Terminated, "" | "Running") => "Ended".to_owned(),
        (None, _, "Succeeded") => "Completed".to_owned(),
        (None, _, "") => "Pending".to_owned(),
        (None, _, phase) => phase.to_owned(),
    }
}

/// The containers that are ready of those that should be. None is where the pod is not ready
/// although they all are: no traffic reaches it, as while the node goes down.
pub(super) fn ready(pod: &PodStatus) -> String {
    let all = pod.ready_containers >= pod.wanted_containers;
    let ready = if all && !pod.ready { 0 } else { pod.ready_containers };
    format!("{ready}/{}", pod.wanted_containers)
}

struct Page<'a> {
    text: String,
    view: &'a View,
    paint: Paint,
}

impl Page<'_> {
    fn head(&mut self, status: &Status) {
        let node = &status.node;
        let mut about = format!("{}, winddown {}", clean(&node.name), clean(&node.version));
        about.push_str(&format!(", pid {}", node.pid));
        if let Some(started) = node.started_at {
            about.push_str(&format!(", up {}", since(status.time, started)));
        }
        if !status.runtime.name.is_empty() {
            about.push_str(&format!(", runtime {}", clean(&status.runtime.name)));
        }
        self.labelled("node", &about, None);
        self.lock(status);
        self.shutdown(status);
        self.notices(status);
        if !status.admission_closed_by.is_empty() {
            self.labelled("admission", &closed_line(status), Some(WARN));
        }
        if status.shutdown.phase == Phase::Idle {
            self.labelled("plan", &plan_line(status), None);
        }
        if let Some(cluster) = &status.cluster {
            let (text, style) = super::cluster::summary(cluster, status.time);
            self.labelled("cluster", &text, Some(style));
        }
        if let Some(pressure) = status.pressure.as_ref().filter(|p| !p.thresholds.is_empty()) {
            let (text, style) = super::eviction::summary(pressure);
            self.labelled("pressure", &text, Some(style));
        }
        for plugin in &status.plugins {
            let text = format!("{}: {}", plugin.name, plugin.text);
            self.labelled("plug-in", &clean(&text), None);
        }
        if let Some(last) = &status.last_boot {
            let style = (last.graceful == Some(false)).then_some(WARN);
            self.labelled("last boot", &clean(&last.text), style);
        }
        let file = match status.config.file.as_str() {
            "" => "built-in defaults, no file".into(),
            file => clean(file),
        };
        self.labelled("config", &file, None);
    }

    fn lock(&mut self, status: &Status) {
        let lock = &status.lock;
        let why = lock.why.as_deref().map(clean).unwrap_or_default();
        let (text, style) = match lock.state {
            LockState::Held => {
                let held = match lock.held_since {
                    Some(then) => format!("held for {}", since(status.time, then)),
                    None => "held".to_owned(),
                };
                match lock.delay_seconds {
                    Some(delay) if delay < lock.wanted_seconds => {
                        let (delay, wanted) = (seconds(delay), seconds(lock.wanted_seconds));
                        (format!("{held}; logind waits {delay} of the {wanted} wanted"), WARN)
                    }
                    Some(delay) => {
                        let wanted = seconds(lock.wanted_seconds);
                        (format!("{held}; logind waits {}, {wanted} wanted", seconds(delay)), GOOD)
                    }
                    None => (held, GOOD),
                }
            }
            LockState::Waiting => (format!("NOT HELD, trying again: {why}"), BAD),
            LockState::Released => ("released, the node may go down".to_owned(), WARN),
            LockState::Absent => (format!("none: {why}"), BAD),
            LockState::Unknown => ("unknown".to_owned(), WARN),
        };
        self.labelled("lock", text.trim_end_matches(": "), Some(style));
    }

    fn shutdown(&mut self, status: &Status) {
        let shutdown = &status.shutdown;
        let running = shutdown.phase == Phase::Running;
        let text = match shutdown.phase {
            Phase::Idle => "none under way".to_owned(),
            Phase::Running => {
                let mut text = "UNDER WAY".to_owned();
                if let Some(then) = shutdown.since {
                    text.push_str(&format!(" for {}", since(status.time, then)));
                }
                if let Some(end) = shutdown.deadline {
                    text.push_str(&format!(", at most {} left", since(end, status.time)));
                }
                text
            }
            Phase::Cancelled => "called off".to_owned(),
            Phase::Done => "done, the node goes down".to_owned(),
            Phase::Unknown => "unknown".to_owned(),
        };
        self.labelled("shutdown", &text, running.then_some(WARN));
        if shutdown.phase == Phase::Idle {
            return;
        }
        if shutdown.pods_unknown {
            self.labelled("", PODS_UNKNOWN, running.then_some(WARN));
        }
        for group in &shutdown.groups {
            let how = GroupState::of(group, shutdown.phase).as_str();
            let title = group_title(group.name.as_deref(), group.priority);
            let line = format!("{title}: {how}, {} of {} ended", group.ended, group.pods);
            self.labelled("", &line, None);
        }
    }

    /// Who says that the node goes away.
    fn notices(&mut self, status: &Status) {
        for notice in &status.notices {
            let Some(deadline) = notice.deadline else { continue };
            let ahead = deadline.duration_since(status.time).as_secs();
            let when = if ahead >= 0 {
                format!("the node goes away in {}", age(ahead))
            } else {
                format!("the node should have gone away {} ago", age(-ahead))
            };
            let far = if notice.in_force { "" } else { "; not yet acted on" };
            let (source, text) = (clean(&notice.source), clean(&notice.text));
            let style = notice.in_force.then_some(WARN);
            self.labelled("notice", &format!("{when}{far} ({source}: {text})"), style);
        }
    }

    fn pods(&mut self, status: &Status) {
        self.text.push('\n');
        if status.pods_unknown {
            self.line(PODS_UNKNOWN, Some(WARN));
        }
        if status.pods.is_empty() && status.pods_unknown {
            return;
        }
        if status.pods.is_empty() {
            self.line("no pods", None);
            if !status.manifests.directory.is_empty() {
                let directory = clean(&status.manifests.directory);
                self.note(&format!("put a pod's manifest into {directory} to run it"));
            }
            return;
        }
        let mut columns = vec![
            Column::words("NAMESPACE"),
            Column::words("NAME"),
            Column::numbers("PRIORITY"),
            Column::words("STATE"),
            Column::numbers("READY"),
            Column::numbers("RESTARTS"),
            Column::numbers("AGE"),
        ];
        if self.view.wide {
            columns.extend([
                Column::fixed("QOS"),
                Column::fixed("CRITICAL"),
                Column::numbers("GRACE-LEFT"),
                Column::fixed("UID"),
                Column::words("SOURCE"),
            ]);
        }
        let mut table = Table::new(columns);
        let mut pods: Vec<&PodStatus> = status.pods.iter().collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for pod in pods {
            table.row(pod_row(pod, status.time, self.view.wide));
        }
        self.text.push_str(&table.render(self.view));
    }

    fn problems(&mut self, status: &Status) {
        let problems = problems::of(status, self.view.wide);
        if problems.is_empty() {
            return;
        }
        self.heading("PROBLEMS");
        for problem in problems {
            let lines = wrap(&problem.text, self.view.width, 2);
            for (number, line) in lines.iter().enumerate() {
                let mark = if number == 0 { self.paint.with(BAD, "!") } else { " ".to_owned() };
                self.text.push_str(&format!("{mark} {line}\n"));
            }
            if !problem.next.is_empty() {
                self.note(&problem.next);
            }
        }
    }

    fn decisions(&mut self, status: &Status) {
        if status.decisions.is_empty() {
            return;
        }
        self.heading("LAST DECISIONS");
        let shown = if self.view.wide { usize::MAX } else { DECISIONS };
        let skipped = status.decisions.len().saturating_sub(shown);
        for decision in status.decisions.iter().skip(skipped) {
            let when = decision.time.map(|then| since(status.time, then)).unwrap_or_default();
            let text = clean(&decision.text);
            let lines = wrap(&text, self.view.width, 8);
            for (number, line) in lines.iter().enumerate() {
                let when = if number == 0 { format!("{when:>6}") } else { " ".repeat(6) };
                self.text.push_str(&format!("{}  {line}\n", self.paint.with(DIM, &when)));
            }
        }
    }

    fn heading(&mut self, text: &str) {
        self.text.push('\n');
        self.line(text, Some(HEAD));
    }

    fn labelled(&mut self, label: &str, text: &str, style: Option<Style>) {
        let lines = wrap(text, self.view.width, LABEL);
        for (number, line) in lines.iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            let label = format!("{label:<LABEL$}");
            self.text.push_str(&self.paint.with(HEAD, &label));
            self.line(line, style);
        }
    }

    /// What to do next, under what it is about.
    fn note(&mut self, text: &str) {
        for line in wrap(text, self.view.width, 4) {
            self.text.push_str("    ");
            self.line(&line, Some(DIM));
        }
    }

    fn line(&mut self, text: &str, style: Option<Style>) {
        let painted = style.map_or_else(|| text.to_owned(), |style| self.paint.with(style, text));
        self.text.push_str(&painted);
        self.text.push('\n');
    }
}

fn closed_line(status: &Status) -> String {
    let reasons: Vec<&str> = status.admission_closed_by.iter().map(|by| closed_by(*by)).collect();
    format!("closed, no new pod is let in: {}", reasons.join(", "))
}

/// What keeps new pods out, for people.
pub(super) const fn closed_by(by: ClosedBy) -> &'static str {
    match by {
        ClosedBy::Startup => "the agent is starting",
        ClosedBy::Shutdown => "the node is shutting down",
        ClosedBy::UnitStop => "the agent's unit is being stopped",
        ClosedBy::Notice => "a notice is in force",
        ClosedBy::Drain => "an operator drains the node",
        ClosedBy::Unknown => "a reason that this version does not know",
    }
}

fn plan_line(status: &Status) -> String {
    let plan = &status.shutdown_plan;
    if !plan.enabled {
        return "OFF: a shutdown would not wait for the pods".to_owned();
    }
    let most = plan.available_seconds.min(plan.requested_seconds);
    let groups: Vec<String> = plan
        .groups
        .iter()
        .filter(|group| group.pods > 0)
        .map(|group| {
            let (pods, time) = (group.pods, seconds(group.seconds));
            let title = group_title(group.name.as_deref(), group.priority);
            match group.name {
                Some(_) => format!("{title} ({pods}) in {time}"),
                None if pods == 1 => format!("1 pod of {title} in {time}"),
                None => format!("{pods} pods of {title} in {time}"),
            }
        })
        .collect();
    if status.pods_unknown && groups.is_empty() {
        return format!("{PODS_UNKNOWN}; at most {}", seconds(most));
    }
    if groups.is_empty() {
        return format!("nothing to end; at most {}", seconds(most));
    }
    format!("at most {}: {}", seconds(most), groups.join(", then "))
}

fn pod_row(pod: &PodStatus, now: WallTime, wide: bool) -> Vec<(String, Option<Style>)> {
    let state = pod_state(pod);
    let style = match state.as_str() {
        "Running" | "Completed" => None,
        "Terminating" | "Terminated" | "Waiting" | "Pending" | "Ended" | WAITING_FOR_PREEMPTION => {
            Some(WARN)
        }
        _ => Some(BAD),
    };
    let ready = ready(pod);
    let age = pod.started_at.map_or_else(|| "-".to_owned(), |then| since(now, then));
    let mut row = vec![
        (pod.namespace.clone(), None),
        (pod.name.clone(), None),
        (pod.priority.to_string(), None),
        (state, style),
        (ready, None),
        (pod.restarts.to_string(), None),
        (age, None),
    ];
    if wide {
        let critical = if pod.critical { "yes" } else { "no" };
        let left = pod.grace_left_seconds.map_or_else(|| "-".to_owned(), |left| format!("{left}s"));
        row.extend([
            (pod.qos.clone(), None),
            (critical.to_owned(), None),
            (left, None),
            (pod.uid.clone(), None),
            (pod.source.clone(), None),
        ]);
    }
    row
}
