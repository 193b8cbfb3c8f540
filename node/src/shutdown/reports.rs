//! The reports on disk, in the form of the control API and the commands.

use std::path::{Path, PathBuf};

use winddown_shared::error_chain;
use winddown_shutdown::{Listing, ReportStore, ShutdownReport};

use winddown_control::ApiError;
use winddown_control::api::{ErrorCode, ReportEntry, ReportList};

use crate::api::unreadable;

/// The directory of reports below the state directory.
pub fn directory(state: &Path) -> PathBuf {
    state.join("reports")
}

/// The report store of the node that `config` describes.
#[cfg(feature = "config")]
pub fn store(config: &winddown_config::Config) -> ReportStore {
    let kept = usize::try_from(config.shutdown.reports_kept).unwrap_or(usize::MAX);
    ReportStore::new(directory(&config.access.state_directory)).keeping(kept)
}

/// Lists the reports, newest first. Blocks on the disk.
///
/// # Errors
/// The directory cannot be read.
pub fn list(store: &ReportStore) -> Result<ReportList, ApiError> {
    let listing = listing(store)?;
    Ok(ReportList {
        reports: listing.reports.iter().map(entry).collect(),
        problems: listing.broken.iter().map(|error| error_chain(error)).collect(),
    })
}

/// Finds one report; `latest` names the newest. Blocks on the disk.
///
/// # Errors
/// The directory cannot be read, or there is no such report.
pub fn find(store: &ReportStore, id: &str) -> Result<serde_json::Value, ApiError> {
    let listing = listing(store)?;
    let found = listing.reports.iter().find(|r| id == "latest" || r.id() == id);
    let Some(report) = found else {
        let (error, hint) = match id {
            "latest" => (
                "no shutdown has been reported on this node yet".to_owned(),
                "`winddown plan shutdown` shows what one would do, `winddown drill` rehearses one",
            ),
            id => (
                format!("there is no report {id:?}"),
                "`winddown report --list` lists the reports there are",
            ),
        };
        return Err(ApiError::new(ErrorCode::NotFound, error).with_hint(hint));
    };
    serde_json::to_value(report)
        .map_err(|error| ApiError::new(ErrorCode::Internal, error_chain(&error)))
}

fn listing(store: &ReportStore) -> Result<Listing, ApiError> {
    store.list().map_err(|error| unreadable(&error))
}

fn entry(report: &ShutdownReport) -> ReportEntry {
    ReportEntry {
        id: report.id(),
        boot_id: report.boot_id.clone(),
        started_at: Some(report.started_at),
        trigger: json_name(&report.trigger),
        outcome: json_name(&report.outcome),
        pods: report.groups.iter().map(|g| g.pods.len()).sum(),
        took_seconds: report.took.as_secs_f64(),
        graceful: Some(report.is_graceful()),
    }
}

/// The name of an enum's variant in JSON.
fn json_name(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).ok();
    json.and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
