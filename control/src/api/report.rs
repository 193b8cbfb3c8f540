//! The list of shutdown reports. A report itself is `winddown_shutdown`'s type.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// The reports that are kept, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportList {
    /// The reports.
    pub reports: Vec<ReportEntry>,
    /// Files that could not be read, each with the reason, for people.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// One report in a [`ReportList`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportEntry {
    /// What `/v1/reports/{id}` takes.
    pub id: String,
    /// The boot it happened in.
    #[serde(default)]
    pub boot_id: String,
    /// When the signal came.
    #[serde(default)]
    pub started_at: Option<WallTime>,
    /// What set it off: `loginManager`, `drill`, `drain`, `unitStop`, `notice`.
    #[serde(default)]
    pub trigger: String,
    /// How it went: `clean`, `forced`, `left`, `cancelled`, `interrupted`.
    #[serde(default)]
    pub outcome: String,
    /// Pods it ended or tried to end.
    #[serde(default)]
    pub pods: usize,
    /// How long it took, in seconds.
    #[serde(default)]
    pub took_seconds: f64,
}
