//! What a check found.

use serde::Serialize;

use winddown_control::api::API_VERSION;

/// How bad a finding is; the worst is the greatest.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing: nothing is lost by it, or it could not be seen.
    Info,
    /// A shutdown would end the pods, but with less time or less safety than configured.
    Warning,
    /// At some shutdown pods would not be ended in order.
    Problem,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Area {
    /// The agent, its lock, and the ways down.
    Shutdown,
    /// The systemd unit.
    Unit,
    /// What runs containers, and who else ends them.
    Containers,
    /// The configuration, the disk, the clock.
    Node,
}

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The check's stable name: one lower-case word, perhaps with hyphens.
    pub id: &'static str,
    /// What it is about.
    pub area: Area,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, for people.
    pub title: String,
    /// What was seen: values, files with their lines, answers.
    pub evidence: Vec<String>,
    /// The commands that fix it, in order; empty when there is nothing to fix.
    pub fix: Vec<String>,
    /// Why the check matters.
    pub why: &'static str,
}

/// All findings about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Always [`API_VERSION`].
    pub api_version: &'static str,
    /// Always `Diagnosis`.
    pub kind: &'static str,
    /// The node's name.
    pub node: String,
    /// The worst severity.
    pub severity: Severity,
    /// How many findings there are of each severity.
    pub counts: Counts,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
}

/// How many findings there are of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// As they should be.
    pub ok: usize,
    /// Worth knowing.
    pub info: usize,
    /// Warnings.
    pub warning: usize,
    /// Problems.
    pub problem: usize,
}

/// The lines of evidence that are kept of one finding.
const MOST_EVIDENCE: usize = 8;
/// The characters that are kept of one line.
const LONGEST_EVIDENCE: usize = 400;

// === impl Severity ===

impl Severity {
    /// The word for it, as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

// === impl Finding ===

impl Finding {
    /// The same finding with one more line of what was seen. Long lines are cut, lines beyond
    /// the eighth are dropped, and an empty one is none.
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

    /// The same finding with the lines of a list that may be long: what does not fit is counted.
    #[must_use]
    pub(super) fn saw_all(self, lines: &[String]) -> Self {
        self.saw_each(lines.iter().cloned())
    }

    /// The same with lines that are made only if they are shown.
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

    /// The same finding with one more command that fixes it.
    #[must_use]
    pub(super) fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix.push(command.into());
        self
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    /// Sorts the findings, the worst first and otherwise as they come, and counts them.
    pub fn new(node: impl Into<String>, mut findings: Vec<Finding>) -> Self {
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
            severity: findings.first().map_or(Severity::Ok, |worst| worst.severity),
            counts,
            findings,
        }
    }
}
