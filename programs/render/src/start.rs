//! The start order of pods: the plan, and the report.

use std::time::Duration;

use winddown_control::api::StartPlan;
use winddown_node::ordered_start::{PodStart, StartOutcome, StartReport, StartedGroup, StartedPod};
use winddown_shared::display::{clean, duration, in_seconds, pod_count, seconds};

use super::paint::{BAD, DIM, GOOD, Paint, WARN};
use super::{Column, Table, View, hanging, priority_unless_unset};

/// The plan of a start as text.
pub fn start_plan(plan: &StartPlan, view: &View) -> String {
    let count = plan.groups.iter().map(|group| group.pods.len()).sum();
    let time = match plan.group_timeout_seconds {
        0.0 if plan.groups.len() > 1 => {
            "all at once; with startGroupTimeout, in this order:".to_owned()
        }
        0.0 => "all at once".to_owned(),
        time => format!("each group when the one before it is ready, or after {}", seconds(time)),
    };
    let mut text = hanging(&format!("start: {}, {time}", pod_count(count)), view.width, "", 2);
    for (number, group) in plan.groups.iter().enumerate() {
        let (name, count) = (clean(&group.name), group.pods.len());
        text.push_str(&format!("\n{}. {name}: {count}\n", number + 1));
        let mut table = Table::new([
            Column::words("NAMESPACE"),
            Column::words("NAME"),
            Column::numbers("PRIORITY"),
        ]);
        for pod in &group.pods {
            let priority = priority_unless_unset(pod.priority, pod.has_no_priority);
            let cells = [pod.namespace.clone(), pod.name.clone(), priority];
            table.row(cells.map(|cell| (cell, None)));
        }
        text.push_str(&table.indented(view));
    }
    for warning in &plan.warnings {
        text.push('\n');
        text.push_str(&hanging(&clean(warning), view.width, "! ", 2));
    }
    text
}

/// The report of an ordered start as text: a headline, then a table per group.
pub fn start_report(report: &StartReport, view: &View) -> String {
    let paint = Paint { color: view.color };
    let took = in_seconds(report.took.unwrap_or_default());
    let waiting = pod_count(report.waiting.len());
    let (style, said) = match report.outcome {
        StartOutcome::Ready => (GOOD, format!("The pods started in order within {took}.")),
        StartOutcome::NotReady => {
            let late = report.groups.iter().flat_map(StartedGroup::not_ready).count();
            let late = pod_count(late);
            (WARN, format!("The pods started in order within {took}; {late} not ready in time."))
        }
        StartOutcome::Cancelled => {
            (BAD, format!("The start was cancelled after {took}; {waiting} had not started."))
        }
        StartOutcome::InProgress => {
            (WARN, format!("The pods are starting in order; {waiting} to come."))
        }
    };
    let mut text = format!("{}\n", paint.with(style, &said));
    let occasion = format!(
        "{}, {} after the boot; a group was waited for up to {}",
        report.started_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        in_seconds(report.boot),
        duration(report.group_timeout)
    );
    text.push_str(&format!("{}\n", paint.with(DIM, &occasion)));
    for group in &report.groups {
        text.push_str(&format!("\n{}\n", headline(group, report)));
        text.push_str(&pods(group).indented(view));
    }
    if !report.waiting.is_empty() {
        let names = clean(&report.waiting.join(", ")).into_owned();
        text.push('\n');
        text.push_str(&hanging(&names, view.width, "not started: ", 2));
    }
    text
}

fn headline(group: &StartedGroup, report: &StartReport) -> String {
    let late: Vec<String> = group.not_ready().collect();
    let how = match group.took.map(in_seconds) {
        None => format!("waits for {}", clean(&late.join(", "))),
        Some(took) if late.is_empty() => format!("ready after {took}"),
        Some(took) if report.outcome == StartOutcome::Cancelled => {
            format!("cancelled after {took}")
        }
        Some(took) => format!("not ready after {took}: {}", clean(&late.join(", "))),
    };
    format!("{} · started at {} · {how}", clean(&group.name), in_seconds(group.started))
}

fn pods(group: &StartedGroup) -> Table {
    let mut table = Table::new([
        Column::words("POD"),
        Column::numbers("WAITED"),
        Column::numbers("READY"),
        Column::fixed(""),
    ]);
    for pod in &group.pods {
        let StartedPod { namespace, name, waited, ready, state, .. } = pod;
        let offset = |at: Duration| format!("{:.3}", at.as_secs_f64());
        table.row([
            (format!("{namespace}/{name}"), None),
            (offset(*waited), None),
            (ready.map_or_else(|| "-".to_owned(), offset), None),
            match state {
                PodStart::Ready => (String::new(), None),
                PodStart::Starting => ("starting".to_owned(), Some(WARN)),
                PodStart::Succeeded => ("done".to_owned(), None),
                PodStart::Failed => ("failed".to_owned(), Some(BAD)),
                PodStart::Removed => ("not wanted any more".to_owned(), None),
                PodStart::NotReady => ("not ready".to_owned(), Some(WARN)),
            },
        ]);
    }
    table
}
