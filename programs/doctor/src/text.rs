//! The diagnosis as text for users: the worst first, aligned, one screen if all is well.

use anstyle::{AnsiColor, Style};

use winddown_control::api::{Protection, ProtectionState};
use winddown_shared::display::clean;

use super::checks::LONGEST_ID;
use super::finding::{Diagnosis, Finding, Severity};
use super::fix::Fix;
use winddown_render::{Paint, View, hanging};

/// How problems look.
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Number of columns before a finding's ID, and before its title.
const ID_AT: usize = 9;
const TITLE_AT: usize = ID_AT + LONGEST_ID + 1;
/// Number of columns before the lines below a title. They can be longer than a title, so they start further left.
const DETAIL_AT: usize = ID_AT + 6;

/// Renders the diagnosis as text; every line ends with a newline.
pub fn render(diagnosis: &Diagnosis, view: &View) -> String {
    let mut text = String::new();
    let mut before = None;
    for finding in &diagnosis.findings {
        if before.is_some_and(|before| before != finding.severity) {
            text.push('\n');
        }
        let first = before != Some(finding.severity) || finding.severity != Severity::Ok;
        push(&mut text, finding, first, view);
        before = Some(finding.severity);
    }
    let verdict = diagnosis.protection.as_ref();
    let is_protected = verdict.is_some_and(|verdict| verdict.state == ProtectionState::Protected);
    // That stands apart by its mark, and the checks of a healthy node fill a screen with it.
    if !text.is_empty() && !is_protected {
        text.push('\n');
    }
    if let Some(verdict) = verdict {
        text.push_str(&sentence(verdict, is_well(diagnosis), view));
    }
    text.push_str(&summary(diagnosis));
    text.push('\n');
    text
}

/// Whether there is neither a problem nor a warning.
fn is_well(diagnosis: &Diagnosis) -> bool {
    diagnosis.counts.problem + diagnosis.counts.warning == 0
}

/// The verdict. If nothing is wrong, the summary has it when it is not known.
fn sentence(verdict: &Protection, is_well: bool, view: &View) -> String {
    let (mark, style) = match verdict.state {
        ProtectionState::Protected => ("PROTECTED: ", AnsiColor::Green.on_default()),
        ProtectionState::Unprotected => ("NOT PROTECTED: ", BAD),
        ProtectionState::Unknown if is_well => return String::new(),
        ProtectionState::Limited => ("PROTECTED IN PART: ", AnsiColor::Yellow.on_default()),
        ProtectionState::Unknown => ("NOT KNOWN: ", AnsiColor::Yellow.on_default()),
    };
    let painted = Paint { color: view.color }.with(style, mark);
    hanging(&clean(&verdict.text), view.width, &painted, mark.len())
}

fn push(text: &mut String, finding: &Finding, first: bool, view: &View) {
    let word = if first { finding.severity.as_str() } else { "" };
    let style = match finding.severity {
        Severity::Ok => AnsiColor::Green.on_default(),
        Severity::Info => Style::new().bold(),
        Severity::Warning => AnsiColor::Yellow.on_default(),
        Severity::Problem => BAD,
    };
    let lead = format!("{word:ID_AT$}");
    text.push_str(&Paint { color: view.color }.with(style, &lead));
    text.push_str(&format!("{:width$}", finding.id, width = TITLE_AT - ID_AT));
    text.push_str(&hanging(&clean(&finding.title), view.width, "", TITLE_AT));
    if finding.severity == Severity::Ok {
        return;
    }
    for (index, line) in finding.evidence.iter().enumerate() {
        detail(text, if index == 0 { "seen" } else { "" }, view.color);
        text.push_str(&hanging(&clean(line), view.width, "", DETAIL_AT));
    }
    if finding.severity > Severity::Info {
        detail(text, "why", view.color);
        text.push_str(&hanging(&clean(finding.why), view.width, "", DETAIL_AT));
    }
    for (index, command) in finding.fix.iter().enumerate() {
        detail(text, if index == 0 { "fix" } else { "" }, view.color);
        // Commands are never wrapped, so that they can be copied.
        text.push_str(&clean(command));
        text.push('\n');
    }
    for (index, sentence) in finding.advice.iter().enumerate() {
        detail(text, if index == 0 { "hint" } else { "" }, view.color);
        text.push_str(&hanging(&clean(sentence), view.width, "", DETAIL_AT));
    }
}

/// Writes the label of a line below a title.
fn detail(text: &mut String, word: &str, color: bool) {
    text.push_str(&" ".repeat(ID_AT));
    let lead = format!("{word:width$}", width = DETAIL_AT - ID_AT);
    text.push_str(&Paint { color }.with(Style::new().dimmed(), &lead));
}

/// The number of checks.
fn counted(checks: usize) -> String {
    format!("{checks} {}", if checks == 1 { "check" } else { "checks" })
}

fn summary(diagnosis: &Diagnosis) -> String {
    let counts = diagnosis.counts;
    let checks = counted(diagnosis.findings.len());
    let name = clean(&diagnosis.node);
    let is_unseen = |finding: &&Finding| finding.fix_id == Some(Fix::NotPermitted);
    let unseen: Vec<_> = diagnosis.findings.iter().filter(is_unseen).collect();
    if let (0, Some(first)) = (counts.problem + counts.warning, unseen.first()) {
        let seen = counted(diagnosis.findings.len() - unseen.len());
        let unseen = unseen.len();
        let need = if unseen == 1 { "needs" } else { "need" };
        let fix = first.fix.join("; ");
        return format!("{name}: nothing wrong in {seen}; {unseen} {need} root: {}", clean(&fix));
    }
    let verdict = diagnosis.protection.as_ref();
    let unknown = verdict.filter(|verdict| verdict.state == ProtectionState::Unknown);
    if let (0, Some(verdict)) = (counts.problem + counts.warning, unknown) {
        return format!("{name}: nothing wrong in {checks}; {}", clean(&verdict.text));
    }
    if counts.problem + counts.warning == 0 {
        let more = match counts.info {
            0 => String::new(),
            1 => ", 1 thing to know".to_owned(),
            info => format!(", {info} things to know"),
        };
        return format!("{name}: {checks}, all well{more}");
    }
    let mut parts = Vec::new();
    for (count, one, many) in [
        (counts.problem, "problem", "problems"),
        (counts.warning, "warning", "warnings"),
        (counts.info, "thing to know", "things to know"),
        (counts.ok, "well", "well"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {}", if count == 1 { one } else { many }));
        }
    }
    format!("{name}: {checks}: {}", parts.join(", "))
}
