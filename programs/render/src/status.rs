//! The output of `winddown status`.

use anstyle::Style;
use winddown_shared::display::clean;
use winddown_shared::{SYSTEM_CRITICAL_PRIORITY, WAITING_FOR_PREEMPTION, WAITING_FOR_TURN};

use super::paint::{BAD, DIM, HEAD, PLAIN, Paint, WARN};
use super::rows::rows;
use super::times::Times;
use super::{Column, PODS_UNKNOWN, Table, View, hanging, priority_of, wrap};
use winddown_control::api::{PodState, PodStatus, Status};

pub(super) mod problems;

/// The number of decisions shown unless the view is wide.
const SHOWN_DECISIONS: usize = 5;

/// The width of the labels at the left, in columns.
const LABEL_COLUMNS: usize = 11;

/// The status as text.
pub fn status(status: &Status, view: &View) -> String {
    let mut page = Page { text: String::new(), view, paint: Paint { color: view.color } };
    page.head(status);
    page.pods(status);
    page.problems(status);
    page.decisions(status);
    page.text
}

/// The state of a pod in one word, as kubectl shows it.
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

/// The style of a pod's state.
pub(super) fn state_style(state: &str) -> Style {
    match state {
        "Running" | "Completed" => PLAIN,
        "Terminating"
        | "Terminated"
        | "Waiting"
        | "Pending"
        | "Ended"
        | WAITING_FOR_PREEMPTION
        | WAITING_FOR_TURN => WARN,
        _ => BAD,
    }
}

/// The number of ready containers of those that should be ready. If the pod is unready although all containers are
/// ready, as during a shutdown of the node, the number is 0, because no traffic reaches the pod.
pub(super) fn ready(pod: &PodStatus) -> String {
    let all = pod.ready_containers >= pod.desired_containers;
    let ready = if all && !pod.ready { 0 } else { pod.ready_containers };
    format!("{ready}/{}", pod.desired_containers)
}

struct Page<'a> {
    text: String,
    view: &'a View,
    paint: Paint,
}

impl Page<'_> {
    fn head(&mut self, status: &Status) {
        for row in rows(status, times(status)) {
            self.labelled(row.label, &row.text, row.style);
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
        if status.pods.is_empty() && status.is_beside_kubelet() {
            self.line("the kubelet has no pods here", None);
            return;
        }
        if status.pods.is_empty() {
            self.line("no pods", None);
            if !status.manifests.directory.is_empty() && !status.admission_closed {
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
                Column::numbers("GRACE LEFT"),
                Column::fixed("UID"),
                Column::words("SOURCE"),
            ]);
        }
        let mut table = Table::new(columns);
        let mut pods: Vec<&PodStatus> = status.pods.iter().collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for pod in pods {
            table.row(pod_row(pod, times(status), self.view.wide));
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
            let mark = format!("{} ", self.paint.with(BAD, "!"));
            self.text.push_str(&hanging(&problem.text, self.view.width, &mark, 2));
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
        let shown = if self.view.wide { usize::MAX } else { SHOWN_DECISIONS };
        let skipped = status.decisions.len().saturating_sub(shown);
        for decision in status.decisions.iter().skip(skipped) {
            let when = decision.time.map(|then| times(status).age(then)).unwrap_or_default();
            let when = format!("{}  ", self.paint.with(DIM, &format!("{when:>6}")));
            self.text.push_str(&hanging(&clean(&decision.text), self.view.width, &when, 8));
        }
    }

    fn heading(&mut self, text: &str) {
        self.text.push('\n');
        self.line(text, Some(HEAD));
    }

    fn labelled(&mut self, label: &str, text: &str, style: Style) {
        let lines = wrap(text, self.view.width, LABEL_COLUMNS);
        for (number, line) in lines.iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            let label = format!("{label:<LABEL_COLUMNS$}");
            self.text.push_str(&self.paint.with(HEAD, &label));
            self.line(line, Some(style));
        }
    }

    /// Adds what to do next, below the line that it belongs to.
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

/// The time format relative to when the status was taken.
fn times(status: &Status) -> Times<'_> {
    Times { status, now: status.time, clock: false, brief: false }
}

fn pod_row(pod: &PodStatus, times: Times<'_>, wide: bool) -> Vec<(String, Option<Style>)> {
    let state = pod_state(pod);
    let style = Some(state_style(&state));
    let ready = ready(pod);
    let age = pod.started_at.map_or_else(|| "-".to_owned(), |then| times.age(then));
    let mut row = vec![
        (pod.namespace.clone(), None),
        (pod.name.clone(), None),
        (priority_of(pod), None),
        (state, style),
        (ready, None),
        (pod.restarts.to_string(), None),
        (age, None),
    ];
    if wide {
        let critical = match pod.critical {
            true if pod.priority < SYSTEM_CRITICAL_PRIORITY => "static",
            true => "yes",
            false => "no",
        };
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
