//! The report for people.

use std::fmt::{self, Write};
use std::time::Duration;

use super::words::{self, Span, headline, name, occasion, printable, shortage};
use super::{GroupReport, Outcome, PodEnd, PodReport, ShutdownReport};

/// The report as text: one sentence that says it all, then a table per group. Ends with a newline.
///
/// Times in the tables are seconds since the signal. With `color`, ANSI colours mark what went
/// wrong. Names are shown without control characters, whoever gave them.
pub fn render_text(report: &ShutdownReport, color: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = render(&mut text, report, Paint { color });
    text
}

fn render(out: &mut String, report: &ShutdownReport, paint: Paint) -> fmt::Result {
    let style = match report.outcome {
        Outcome::Clean => Style::Good,
        Outcome::Left | Outcome::Interrupted | Outcome::CutOff => Style::Bad,
        Outcome::Forced | Outcome::Cancelled => Style::Warn,
    };
    writeln!(out, "{}", paint.with(style, headline(report)))?;
    writeln!(out, "{}", paint.with(Style::Dim, occasion(report)))?;
    for said in words::origin(report) {
        writeln!(out, "{said}")?;
    }
    if report.budget.is_short() {
        writeln!(out, "{}", paint.with(Style::Warn, shortage(report)))?;
    }
    let width = report.pods().map(|(_, pod)| name(pod).chars().count()).max().unwrap_or(0).max(3);
    for group in report.groups.iter().filter(|group| !group.pods.is_empty()) {
        table(out, group, width, paint)?;
    }
    if let Some(said) = words::not_told(report) {
        writeln!(out, "\n{}", paint.with(Style::Warn, said))?;
    }
    for warning in &report.warnings {
        writeln!(out, "\n{}", paint.with(Style::Warn, printable(warning)))?;
    }
    Ok(())
}

fn table(out: &mut String, group: &GroupReport, width: usize, paint: Paint) -> fmt::Result {
    writeln!(out, "\n{} · {}", words::group(group), words::group_facts(group))?;
    if group.started.is_none() {
        return Ok(());
    }
    let head = format!(
        "  {:width$}  {:>6}  {:>8}  {:>8}  {:>8}",
        "POD", "GRACE", "ASKED", "SIGTERM", "EXIT"
    );
    writeln!(out, "{}", paint.with(Style::Dim, head))?;
    for pod in &group.pods {
        write!(
            out,
            "  {:width$}  {:>6}  {:>8}  {:>8}  {:>8}",
            name(pod),
            Span(pod.grace).to_string(),
            offset(pod.asked),
            offset(pod.sigterm),
            offset(pod.exit)
        )?;
        let remark = words::remark(pod);
        if !remark.is_empty() {
            write!(out, "  {}", paint.with(style(pod), remark))?;
        }
        out.push('\n');
        for mount in &pod.mounts {
            let mount = format!("    still mounted: {}", printable(mount));
            writeln!(out, "{}", paint.with(Style::Warn, mount))?;
        }
    }
    Ok(())
}

/// How a remark looks.
fn style(pod: &PodReport) -> Style {
    match pod.end {
        PodEnd::Left => Style::Bad,
        PodEnd::Killed | PodEnd::Ending => Style::Warn,
        _ if !pod.mounts.is_empty() => Style::Warn,
        _ => Style::Dim,
    }
}

fn offset(at: Option<Duration>) -> String {
    at.map_or("-".into(), |at| format!("{:.3}", at.as_secs_f64()))
}

#[derive(Clone, Copy)]
enum Style {
    Good,
    Warn,
    Bad,
    Dim,
}

#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

// === impl Paint ===

impl Paint {
    fn with(self, style: Style, text: String) -> String {
        if !self.color {
            return text;
        }
        let code = match style {
            Style::Good => "1;32",
            Style::Warn => "33",
            Style::Bad => "1;31",
            Style::Dim => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
