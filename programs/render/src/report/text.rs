//! The report as text.

use std::fmt::{self, Write};

use anstyle::Style;
use winddown_shared::display::clean;
use winddown_shutdown::{GroupReport, PodReport, ShutdownReport, Tone};

use super::sentences::{self, occasion, offset, shortage};
use crate::paint::{BAD, DIM, GOOD, Paint, WARN};
use crate::{Column, Table, View};

/// The report as text: a headline, then a table per group. Ends with a newline.
///
/// Times in the tables are seconds since the signal. With `color`, ANSI colours mark problems. Control characters in
/// names are escaped.
pub fn text(report: &ShutdownReport, color: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = render(&mut text, report, Paint { color });
    text
}

fn render(out: &mut String, report: &ShutdownReport, paint: Paint) -> fmt::Result {
    let style = match report.outcome.text().tone {
        Tone::Good => GOOD.bold(),
        Tone::Warn => WARN,
        Tone::Bad => BAD,
    };
    writeln!(out, "{}", paint.with(style, &report.headline()))?;
    writeln!(out, "{}", paint.with(DIM, &occasion(report)))?;
    for said in sentences::origin(report) {
        writeln!(out, "{said}")?;
    }
    if report.budget.is_short() {
        writeln!(out, "{}", paint.with(WARN, &shortage(report)))?;
    }
    tables(out, report, paint)?;
    if !report.work.is_empty() {
        writeln!(out)?;
    }
    for (said, is_done) in report.work.iter().map(sentences::work) {
        writeln!(out, "{}", if is_done { said } else { paint.with(WARN, &said) })?;
    }
    for warning in sentences::warnings(report) {
        writeln!(out, "\n{}", paint.with(WARN, &warning))?;
    }
    Ok(())
}

/// Writes the pods by group, in columns that all groups have in common; of a very large group, those with problems and the
/// slowest.
fn tables(out: &mut String, report: &ShutdownReport, paint: Paint) -> fmt::Result {
    let mut table = Table::new([
        Column::fixed("POD"),
        Column::numbers("GRACE").at_least(6),
        Column::numbers("ASKED").at_least(8),
        Column::numbers("SIGTERM").at_least(8),
        Column::numbers("EXIT").at_least(8),
        Column::fixed(""),
    ]);
    let groups: Vec<_> = sentences::groups(report).map(|group| (group, shown(group))).collect();
    for pod in groups.iter().flat_map(|(_, (pods, _))| pods) {
        table.row([
            (pod.full_name(), None),
            (sentences::grace(pod), None),
            (offset(pod.asked), None),
            (offset(pod.sigterm), None),
            (offset(pod.exit), None),
            (sentences::remark(pod), Some(style(pod))),
        ]);
    }
    let rows = table.render(&View { color: paint.color, ..View::default() });
    let mut rows = rows.lines();
    let head = rows.next().unwrap_or_default();
    for (group, (pods, folded)) in groups {
        writeln!(out, "\n{} · {}", sentences::group(group), sentences::group_facts(group))?;
        if !pods.is_empty() {
            writeln!(out, "  {head}")?;
        }
        for (pod, row) in pods.iter().zip(&mut rows) {
            writeln!(out, "  {row}")?;
            for mount in &pod.mounts {
                let mount = format!("    still held: {}", clean(mount));
                writeln!(out, "{}", paint.with(WARN, &mount))?;
            }
        }
        if !folded.is_empty() {
            let (more, how) = sentences::folded(&folded);
            let more = format!("  … {more}: {how}; -o json has them");
            writeln!(out, "{}", paint.with(DIM, &more))?;
        }
    }
    Ok(())
}

/// The pods of a group that are shown, and those that are folded away: none of a group that was not asked to terminate.
fn shown(group: &GroupReport) -> (Vec<&PodReport>, Vec<&PodReport>) {
    let any_terminated = group.pods.iter().any(|pod| pod.end.has_terminated());
    match group.started.is_some() || any_terminated {
        true => sentences::fold(group),
        false => (Vec::new(), Vec::new()),
    }
}

/// The style of a remark.
fn style(pod: &PodReport) -> Style {
    match sentences::tone(pod) {
        Some(Tone::Bad) => BAD,
        Some(Tone::Warn) => WARN,
        Some(Tone::Good) | None => DIM,
    }
}
