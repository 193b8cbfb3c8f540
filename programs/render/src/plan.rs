//! The output of `winddown plan`, and the list of reports.

mod consent;

use std::time::Duration;

use winddown_shared::display::{self, clean, seconds};
use winddown_shutdown::{Outcome, PlanAnswer, Tone};

use super::{Column, PODS_UNKNOWN, Table, View, hanging, priority_unless_unset};
use winddown_control::api::{
    PlannedGroup, PlannedPodStatus, ReportEntry, ReportList, ShutdownPlan,
};

/// The plan of a shutdown as text.
pub fn plan(plan: &ShutdownPlan, view: &View) -> String {
    let mut text = String::new();
    for line in heading(plan) {
        text.push_str(&hanging(&line, view.width, "", 2));
    }
    for (number, group) in plan.groups.iter().filter(|group| !group.pods.is_empty()).enumerate() {
        let title = group_title(group.name.as_deref(), group.priority);
        let pods = match (&group.name, group.pods.len()) {
            (Some(_), count) => count.to_string(),
            (None, count) => display::pod_count(count),
        };
        let (number, time) = (number + 1, group_time(group));
        text.push_str(&format!("\n{number}. {title}: {pods}, {time}\n"));
        text.push_str(&pod_table(&group.pods, view));
    }
    if !plan.not_protected.is_empty() {
        text.push_str("\nnot protected:\n");
        text.push_str(&pod_table(&plan.not_protected, view));
    }
    for work in &plan.work {
        let time = work.seconds.map(|time| format!(", up to {}", seconds(time)));
        text.push_str(&format!(
            "\n{}: {}, {}{}\n",
            clean(&work.plugin),
            clean(&work.what),
            clean(&work.point),
            time.unwrap_or_default()
        ));
    }
    text.push_str(&remarks(plan, view));
    text
}

/// How many pods end, within which time, and what holds for all of them; one line each.
fn heading(plan: &ShutdownPlan) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |line: &str| lines.push(line.to_owned());
    let pods = match plan.pod_count() {
        0 if plan.requested_seconds == 0.0 => off(plan.not_protected.len()),
        0 if plan.pods_unknown => PODS_UNKNOWN.to_owned(),
        0 => "no pods to terminate".to_owned(),
        1 => "1 pod to terminate".to_owned(),
        count => format!("{count} pods to terminate"),
    };
    let ends = plan.groups.iter().filter(|group| !group.pods.is_empty());
    let last = ends.filter_map(|group| group.deadline_seconds).reduce(f64::max);
    // A node that will be lost anyway gives its pods more time than is configured.
    let requested = plan.requested_seconds.max(last.unwrap_or_default());
    match &plan.shortened {
        None if plan.requested_seconds == 0.0 => say(&format!("shutdown: {pods}")),
        None => say(&format!("shutdown: {pods}, {}", at_most(last, requested))),
        Some(shortened) => {
            let (most, requested) =
                (at_most(last, shortened.available_seconds), seconds(requested));
            say(&format!("shutdown: {pods}, {most}; {requested} are configured"));
            let by = match (plan.within_seconds, &shortened.set_by) {
                (Some(within), _) => format!("  the node is gone after {}", seconds(within)),
                (None, Some(file)) => format!("  logind allows no more, set by {}", clean(file)),
                (None, None) => "  logind allows no more".to_owned(),
            };
            say(&by);
        }
    }
    if plan.pods_unknown && (plan.pod_count() > 0 || plan.requested_seconds == 0.0) {
        say(PODS_UNKNOWN);
    }
    if let Some(drain) = plan.endpoint_drain_seconds {
        let drain = seconds(drain);
        let line = format!(
            "SIGTERM comes after {drain}; until then pods are not ready, so that load balancers \
             turn away"
        );
        say(&line);
    }
    lines
}

/// How long a shutdown takes at most, whose last group is gone after `last` seconds and which may take `allowed`.
pub(crate) fn at_most(last: Option<f64>, allowed: f64) -> String {
    let text = seconds(allowed);
    match last.filter(|last| *last < allowed).map(seconds) {
        Some(last) if last != text => format!("at most {last}, of {text} allowed"),
        _ => format!("at most {text}"),
    }
}

/// What the plan says beside its groups: the pods that stay, the consent that is asked for, and warnings.
fn remarks(plan: &ShutdownPlan, view: &View) -> String {
    let mut text = String::new();
    let stay = [
        ("after a reboot these start again here", named(plan, |pod| pod.stays_on_reboot)),
        ("a soft-reboot these survive", named(plan, |pod| pod.survives_soft_reboot)),
        (
            "no controller creates these again: they are deleted, and will not come back",
            named(plan, |pod| pod.is_lost),
        ),
    ];
    for (what, names) in stay.iter().filter(|(_, names)| !names.is_empty()) {
        let line = format!("{what}: {names}");
        text.push('\n');
        text.push_str(&hanging(&line, view.width, "", 2));
    }
    let consent = consent::lines(plan);
    if !consent.is_empty() {
        text.push('\n');
    }
    for line in consent {
        text.push_str(&hanging(&line, view.width, "", 2));
    }
    let mut warnings = String::new();
    for warning in &plan.warnings {
        warnings.push_str(&hanging(&clean(warning), view.width, "! ", 2));
    }
    if !warnings.is_empty() {
        text.push('\n');
        text.push_str(&warnings);
    }
    text
}

fn named(plan: &ShutdownPlan, holds: impl Fn(&PlannedPodStatus) -> bool) -> String {
    let pods = plan.groups.iter().flat_map(|group| &group.pods).filter(|pod| holds(pod));
    let names = pods.map(|pod| format!("{}/{}", clean(&pod.namespace), clean(&pod.name)));
    names.collect::<Vec<_>>().join(", ")
}

/// One line per group and per pod in it, for the answer to a case.
pub fn groups(answer: &PlanAnswer) -> Vec<String> {
    let whole = |seconds: u64| display::duration(Duration::from_secs(seconds));
    let mut lines = Vec::new();
    for group in &answer.groups {
        let title = group_title(group.name.as_deref(), group.priority);
        lines.push(format!("{title}: at most {}", whole(group.shutdown_grace_period_seconds)));
        for pod in &group.pods {
            lines.push(format!("  {} {}", clean(&pod.name), whole(pod.grace_seconds)));
        }
    }
    if !answer.not_protected.is_empty() {
        lines.push(off(answer.not_protected.len()));
        lines.extend(answer.not_protected.iter().map(|pod| format!("  {}", clean(&pod.name))));
    }
    lines
}

/// The title of a group: its name, or its priorities.
pub fn group_title(name: Option<&str>, priority: i32) -> String {
    name.map_or_else(|| format!("priority {priority} and above"), |name| clean(name).into_owned())
}

/// The table of the reports that are kept.
pub fn reports(list: &ReportList, view: &View) -> String {
    if list.reports.is_empty() {
        return "no shutdown has left a report yet\n".to_owned();
    }
    let mut table = Table::new([
        Column::fixed("ID"),
        Column::fixed("STARTED"),
        Column::fixed("TRIGGER"),
        Column::fixed("OUTCOME"),
        Column::numbers("PODS"),
        Column::numbers("TOOK"),
        Column::words("BOOT"),
    ]);
    for report in &list.reports {
        let started = report.started_at.map(|at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string());
        table.row([
            (report.id.clone(), None),
            (started.unwrap_or_else(|| "-".to_owned()), None),
            (report.trigger.clone(), None),
            (word(report).to_owned(), None),
            (report.pods.to_string(), None),
            (seconds(report.took_seconds), None),
            (report.boot_id.clone(), None),
        ]);
    }
    table.render(view)
}

/// The word for the outcome of a run; one that this version does not know is called as in JSON.
fn word(entry: &ReportEntry) -> &str {
    Outcome::named(&entry.outcome).map_or(&entry.outcome, |outcome| outcome.text().word)
}

/// The durations of the latest shutdowns, newest last; none if there are fewer than three.
pub fn trend(list: &ReportList) -> Option<String> {
    const SHOWN_PODS: usize = 10;
    let is_shutdown = |entry: &&ReportEntry| {
        entry.pods > 0 && !matches!(entry.trigger.as_str(), "drain" | "drill")
    };
    let mut took: Vec<String> = list
        .reports
        .iter()
        .filter(is_shutdown)
        .take(SHOWN_PODS)
        .map(|entry| {
            let took = seconds(entry.took_seconds);
            let outcome = Outcome::named(&entry.outcome);
            match outcome.is_some_and(|outcome| outcome.text().tone == Tone::Good) {
                true => took,
                false => format!("{took} ({})", clean(&word(entry).to_lowercase())),
            }
        })
        .collect();
    took.reverse();
    let count = took.len();
    (count >= 3).then(|| format!("The last {count} shutdowns took {}.", took.join(", ")))
}

/// The length of a grace period in seconds: "none" if SIGKILL comes at once.
pub(super) fn grace(length: f64) -> String {
    if length == 0.0 { "none".to_owned() } else { seconds(length) }
}

fn group_time(group: &PlannedGroup) -> String {
    match group.deadline_seconds {
        Some(end) => format!("gone within {}", seconds(end)),
        None => format!("at most {}", seconds(group.shutdown_grace_period_seconds)),
    }
}

/// What a shutdown without any grace would do to so many pods.
fn off(pods: usize) -> String {
    match pods {
        0 => "OFF: no pod is protected".to_owned(),
        1 => "OFF: 1 pod would be killed at once".to_owned(),
        count => format!("OFF: {count} pods would be killed at once"),
    }
}

fn pod_table(pods: &[PlannedPodStatus], view: &View) -> String {
    let mut columns = vec![
        Column::words("NAMESPACE"),
        Column::words("NAME"),
        Column::numbers("PRIORITY"),
        Column::numbers("GRACE"),
        Column::numbers("OWN GRACE"),
    ];
    let terminating = pods.iter().any(|pod| pod.grace_left_seconds.is_some());
    if terminating {
        columns.push(Column::words("STATE"));
    }
    let mut table = Table::new(columns);
    for pod in pods {
        let own = pod.own_grace_seconds.map_or_else(|| "-".to_owned(), grace);
        let mut row = vec![
            (pod.namespace.clone(), None),
            (pod.name.clone(), None),
            (priority_unless_unset(pod.priority, pod.has_no_priority), None),
            (grace(pod.grace_seconds), None),
            (own, None),
        ];
        if terminating {
            let left = pod.grace_left_seconds.map(|left| seconds(left.ceil()));
            let state = left.map(|left| format!("terminating, {left} left"));
            row.push((state.unwrap_or_default(), None));
        }
        table.row(row);
    }
    table.indented(view)
}
