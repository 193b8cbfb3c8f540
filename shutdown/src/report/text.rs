//! The report for people.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use super::{GroupReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger};

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
        Outcome::Left | Outcome::Interrupted => Style::Bad,
        Outcome::Forced | Outcome::Cancelled => Style::Warn,
    };
    writeln!(out, "{}", paint.with(style, headline(report)))?;
    writeln!(out, "{}", paint.with(Style::Dim, occasion(report)))?;
    if report.budget.is_short() {
        writeln!(out, "{}", paint.with(Style::Warn, shortage(report)))?;
    }
    let width = report.pods().map(|(_, pod)| name(pod).chars().count()).max().unwrap_or(0).max(3);
    for group in report.groups.iter().filter(|group| !group.pods.is_empty()) {
        table(out, group, width, paint)?;
    }
    for warning in &report.warnings {
        writeln!(out, "\n{}", paint.with(Style::Warn, printable(warning)))?;
    }
    Ok(())
}

fn headline(report: &ShutdownReport) -> String {
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
    }
}

fn occasion(report: &ShutdownReport) -> String {
    let action = match report.node_action.as_deref() {
        Some("powerOff") => " · power-off",
        Some("reboot") => " · reboot",
        Some("kexec") => " · kexec",
        Some("softReboot") => " · soft reboot",
        _ => "",
    };
    let at = report.started_at.strftime("%Y-%m-%d %H:%M:%S UTC");
    format!("{at}{action} · boot {}", printable(&report.boot_id))
}

fn shortage(report: &ShutdownReport) -> String {
    let budget = &report.budget;
    let (requested, given) = (Span(budget.requested), Span(budget.pods));
    let Some(delay) = budget.delay else {
        return format!("The groups ask for {requested}, the pods got {given}.");
    };
    let by = budget.delay_set_by.as_deref().map(printable);
    let by = by.map_or(String::new(), |file| format!(" (set by {file})"));
    format!(
        "The groups ask for {requested}, but the login manager waits only {}{by}: the pods got \
         {given}.",
        Span(delay)
    )
}

fn table(out: &mut String, group: &GroupReport, width: usize, paint: Paint) -> fmt::Result {
    write!(out, "\nGroup {} · {} · ", group.priority, pods(group.pods.len()))?;
    match (group.started, group.ended) {
        (Some(started), Some(ended)) => writeln!(
            out,
            "took {} of {}",
            Span(ended.saturating_sub(started)),
            Span(group.latest_end.saturating_sub(started))
        )?,
        (Some(_), None) => writeln!(out, "not finished")?,
        (None, _) => return writeln!(out, "spared"),
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
        let (style, remark) = remark(pod);
        if !remark.is_empty() {
            write!(out, "  {}", paint.with(style, remark))?;
        }
        out.push('\n');
    }
    Ok(())
}

/// What is worth saying about a pod, if anything.
fn remark(pod: &PodReport) -> (Style, String) {
    let containers = pod.containers.iter().map(|name| printable(name)).collect::<Vec<_>>();
    let containers = match containers.is_empty() {
        true => String::new(),
        false => format!(": {}", containers.join(", ")),
    };
    let wanted = pod
        .wanted_grace
        .map_or(String::new(), |wanted| format!(" (its own grace is {})", Span(wanted)));
    match pod.end {
        PodEnd::Exited => (Style::Dim, String::new()),
        PodEnd::Killed => (Style::Warn, format!("killed{containers}{wanted}")),
        PodEnd::Ending => (Style::Warn, "was still ending".into()),
        PodEnd::Spared => (Style::Dim, "spared".into()),
        PodEnd::Left if containers.is_empty() => {
            let error = pod.error.as_deref().map_or("unknown".into(), printable);
            (Style::Bad, format!("STILL RUNS? {error}"))
        }
        PodEnd::Left => (Style::Bad, format!("STILL RUNS{containers}{wanted}")),
    }
}

fn name(pod: &PodReport) -> String {
    printable(&format!("{}/{}", pod.namespace, pod.name))
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}

fn offset(at: Option<Duration>) -> String {
    at.map_or("-".into(), |at| format!("{:.3}", at.as_secs_f64()))
}

/// Text from elsewhere, unable to move the cursor or to turn the line around.
fn printable(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// A duration for people: `12 ms`, `8.2 s`, `30 s`.
struct Span(Duration);

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
