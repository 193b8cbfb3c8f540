//! The list of shutdown reports. The type of a report is in `winddown_shutdown`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// The reports that are kept, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportList {
    /// The reports.
    pub reports: Vec<ReportEntry>,
    /// Files that could not be read, each with the reason, human-readable.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// An entry of a [`ReportList`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportEntry {
    /// The ID of the report in `/v1/reports/{id}`.
    pub id: String,
    /// The boot in which the shutdown happened.
    #[serde(default)]
    pub boot_id: String,
    /// When the shutdown was signalled.
    #[serde(default)]
    pub started_at: Option<WallTime>,
    /// What triggered the shutdown.
    #[serde(default)]
    #[cfg_attr(feature = "shutdown", schemars(with = "winddown_shutdown::Trigger"))]
    pub trigger: String,
    /// The outcome.
    #[serde(default)]
    #[cfg_attr(feature = "shutdown", schemars(with = "winddown_shutdown::Outcome"))]
    pub outcome: String,
    /// The number of pods that it stopped or tried to stop.
    #[serde(default)]
    pub pods: usize,
    /// The duration in seconds.
    #[serde(default)]
    pub took_seconds: f64,
    /// Whether each pod that it asked to terminate was seen to exit by itself; absent if the agent does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful: Option<bool>,
}

impl ReportList {
    /// The newest run that says how pods terminated: a drain that found none says nothing of the run before it, but one
    /// that did not know its pods does.
    pub fn last_run(&self) -> Option<&ReportEntry> {
        self.reports.iter().find(|entry| entry.pods > 0 || entry.graceful != Some(true))
    }
}
