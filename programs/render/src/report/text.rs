//! The report as text.

use std::fmt::{self, Write};

use anstyle::Style;
use winddown_shared::display::clean;
use winddown_shutdown::{GroupReport, PodEnd, PodReport, ShutdownReport, Tone};

use super::sentences::{self, occasion, offset, shortage};
use crate::paint::{BAD, DIM, GOOD, Paint, WARN};

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
    let width =
        report.pods().map(|(_, pod)| pod.full_name().chars().count()).max().unwrap_or(0).max(3);
    let graces = report.pods().map(|(_, pod)| sentences::grace(pod).chars().count());
    let grace = graces.max().unwrap_or(0).max(6);
    for group in sentences::groups(report) {
        table(out, group, (width, grace), paint)?;
    }
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

/// Writes the pods of a group; of a very large one, those with problems and the slowest.
fn table(
    out: &mut String,
    group: &GroupReport,
    (width, grace): (usize, usize),
    paint: Paint,
) -> fmt::Result {
    writeln!(out, "\n{} · {}", sentences::group(group), sentences::group_facts(group))?;
    let any_terminated = group.pods.iter().any(|pod| pod.end.has_terminated());
    if group.started.is_none() && !any_terminated {
        return Ok(());
    }
    let head = format!(
        "  {:width$}  {:>grace$}  {:>8}  {:>8}  {:>8}",
        "POD", "GRACE", "ASKED", "SIGTERM", "EXIT"
    );
    writeln!(out, "{}", paint.with(DIM, &head))?;
    let (shown, folded) = sentences::fold(group);
    for pod in shown {
        write!(
            out,
            "  {:width$}  {:>grace$}  {:>8}  {:>8}  {:>8}",
            pod.full_name(),
            sentences::grace(pod),
            offset(pod.asked),
            offset(pod.sigterm),
            offset(pod.exit)
        )?;
        let remark = sentences::remark(pod);
        if !remark.is_empty() {
            write!(out, "  {}", paint.with(style(pod), &remark))?;
        }
        out.push('\n');
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
    Ok(())
}

/// The style of a remark.
fn style(pod: &PodReport) -> Style {
    match pod.end {
        PodEnd::StillRunning | PodEnd::Gone => BAD,
        PodEnd::Killed | PodEnd::Terminating => WARN,
        _ if !pod.mounts.is_empty() => WARN,
        _ => DIM,
    }
}
