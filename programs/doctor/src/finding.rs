//! The results of checks.

use serde::Serialize;

use winddown_control::api::{API_VERSION, Protection};
use winddown_render::by_path;

use super::fix::Fix;

/// Severity of a finding, in ascending order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing: it does no harm, or the check could not be made.
    Info,
    /// A shutdown would stop the pods, but with less time or less safety than configured.
    Warning,
    /// At some shutdowns pods would not be stopped in order.
    Problem,
}

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Area {
    /// The agent, its inhibitor lock, and the ways in which the node can go down.
    Shutdown,
    /// The systemd unit.
    Unit,
    /// The container runtime, and other programs that stop containers.
    Containers,
    /// The configuration, the disk and the clock.
    Node,
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable name of the check: one lower-case word, possibly with hyphens.
    pub id: &'static str,
    /// The subject of the check.
    pub area: Area,
    /// Severity of the finding.
    pub severity: Severity,
    /// Summary of the finding, as text for users.
    pub title: String,
    /// The evidence: values, files with line numbers, answers.
    pub evidence: Vec<String>,
    /// Commands that mend the fault, to be typed as they are, in order; empty if there is nothing to mend, or no command
    /// that does it.
    pub fix: Vec<String>,
    /// The fault that the commands of `fix` mend; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix_id: Option<Fix>,
    /// What else to do, as sentences: what needs a decision, a look, or another machine.
    pub advice: Vec<String>,
    /// Why the check matters.
    pub why: &'static str,
}

/// All findings about a node.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Always [`API_VERSION`].
    pub api_version: &'static str,
    /// Always `Diagnosis`.
    pub kind: &'static str,
    /// Name of the node.
    pub node: String,
    /// The worst severity of all findings.
    pub severity: Severity,
    /// Whether the node's pods terminate in order and in time at a shutdown, and who terminates them; absent for an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protection: Option<Protection>,
    /// Number of findings of each severity.
    pub counts: Counts,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
}

/// Number of findings of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Findings that are as they should be.
    pub ok: usize,
    /// Findings worth knowing.
    pub info: usize,
    /// Warnings.
    pub warning: usize,
    /// Problems.
    pub problem: usize,
}

/// Maximum number of lines of evidence per finding.
const MOST_EVIDENCE: usize = 8;
/// Maximum number of characters per line.
const LONGEST_EVIDENCE: usize = 400;

// === impl Severity ===

impl Severity {
    /// The name of the severity, as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    /// The same where a shell finds no program by the name `winddown`: each of its commands is typed by the path of
    /// `program`, one word of a shell's.
    #[must_use]
    pub fn typed_by_path(mut self, program: &str) -> Self {
        let typed = |text: &str| by_path(text, Some(program)).into_owned();
        for finding in &mut self.findings {
            for line in &mut finding.fix {
                *line = typed(&format!("`{line}")).split_off(1);
            }
            for sentence in &mut finding.advice {
                *sentence = typed(sentence);
            }
        }
        if let Some(verdict) = &mut self.protection {
            verdict.next = typed(&verdict.next);
        }
        self
    }
}

// === impl Finding ===

impl Finding {
    /// The same about an agent of another product, whose unit is not known: the commands would be about winddown's.
    #[must_use]
    pub(super) fn without_fix(mut self, product: &str) -> Self {
        let count = self.fix.len() + self.advice.len();
        self.fix.clear();
        self.fix_id = None;
        self.advice.retain(|advice| !(advice.contains("systemctl") && advice.contains("winddown")));
        if self.advice.len() < count {
            self.advice.push(format!(
                "the agent is part of {product}, whose manual says how to restart it"
            ));
        }
        self
    }

    /// Adds a line of evidence. Long lines are cut; lines beyond the eighth and empty lines are
    /// dropped.
    #[must_use]
    pub(super) fn saw(mut self, line: impl Into<String>) -> Self {
        let mut line: String = line.into();
        if let Some((end, _)) = line.char_indices().nth(LONGEST_EVIDENCE) {
            line.truncate(end);
            line.push('…');
        }
        if !line.is_empty() && self.evidence.len() < MOST_EVIDENCE {
            self.evidence.push(line);
        }
        self
    }

    /// Adds the lines of a list that may be long; those that do not fit are counted.
    #[must_use]
    pub(super) fn saw_all(self, lines: &[String]) -> Self {
        self.saw_each(lines.iter().cloned())
    }

    /// Like [`saw_all`](Self::saw_all), but creates only the lines that are shown.
    #[must_use]
    pub(super) fn saw_each(mut self, lines: impl ExactSizeIterator<Item = String>) -> Self {
        let all = lines.len();
        let room = MOST_EVIDENCE.saturating_sub(self.evidence.len());
        let shown = if all > room { room.saturating_sub(1) } else { all };
        for line in lines.take(shown) {
            self = self.saw(line);
        }
        match all - shown {
            0 => self,
            more => self.saw(format!("and {more} more")),
        }
    }

    /// Sets the commands that mend the fault. They are typed into a root shell as they are, in order: no placeholder, no
    /// comment, nothing interactive.
    #[must_use]
    pub(super) fn fix(
        mut self,
        id: Fix,
        commands: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.fix_id = Some(id);
        self.fix = commands.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a sentence on what else to do.
    #[must_use]
    pub(super) fn advise(mut self, sentence: impl Into<String>) -> Self {
        self.advice.push(sentence.into());
        self
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    /// Sorts the findings by severity, the worst first, in a stable order, and counts them.
    pub fn new(
        node: impl Into<String>,
        protection: Option<Protection>,
        mut findings: Vec<Finding>,
    ) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let mut counts = Counts::default();
        for finding in &findings {
            match finding.severity {
                Severity::Ok => counts.ok += 1,
                Severity::Info => counts.info += 1,
                Severity::Warning => counts.warning += 1,
                Severity::Problem => counts.problem += 1,
            }
        }
        Self {
            api_version: API_VERSION,
            kind: "Diagnosis",
            node: node.into(),
            protection,
            severity: findings.first().map_or(Severity::Ok, |worst| worst.severity),
            counts,
            findings,
        }
    }
}
