//! The reports on disk, in the form of the control API and the commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_shared::error_chain;
use winddown_shutdown::{
    FileError, LastBoot, Listing, RecordFile, ReportStore, RunRecord, ShutdownReport,
    find_last_boot,
};

use winddown_control::ApiError;
use winddown_control::api::{ErrorCode, ReportEntry, ReportList};

use super::running;
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
        let (error, hint) = match (id, listing.broken.first()) {
            ("latest", Some(broken)) => (
                format!("the last report cannot be read: {}", error_chain(broken)),
                "move that file away: `winddown report` then shows the one before it, if there is one",
            ),
            ("latest", None) => (
                "no shutdown has been reported on this node yet".to_owned(),
                "`winddown plan shutdown` shows what one would do, `winddown drill` rehearses one",
            ),
            (id, _) => (
                format!("there is no report {id:?}"),
                "`winddown report --list` lists the reports there are",
            ),
        };
        return Err(ApiError::new(ErrorCode::NotFound, error).with_hint(hint));
    };
    serde_json::to_value(report)
        .map_err(|error| ApiError::new(ErrorCode::Internal, error_chain(&error)))
}

/// Why the last of the reports in `list` may not be of the last run, if so; while an agent runs, its status says it
/// (`NodeStatus::unreported`). `state` and `volatile` are the agent's directories; the boot's id comes with when the
/// system was started in it. Blocks on the disk.
///
/// # Errors
/// What earlier agents left cannot be read.
pub fn unreported(
    state: &Path,
    volatile: Option<&Path>,
    (boot_id, system_start): (&str, Duration),
    list: &ReportList,
) -> Result<Option<String>, FileError> {
    if boot_id.is_empty() {
        return Ok(None);
    }
    let records = running::places(state, volatile, std::convert::identity);
    let of_drains = running::places(state, volatile, RecordFile::of_drain);
    let mut left = Vec::new();
    for place in records.iter().chain(&of_drains) {
        left.extend(place.read()?.filter(|run| run.report.boot_id == boot_id));
    }
    let mut problems = Vec::new();
    let store = ReportStore::new(directory(state));
    let (before, _) =
        find_last_boot(state, &store, &records, (boot_id, system_start), &mut problems);
    if let Some(problem) = problems.pop() {
        return Err(problem);
    }
    let is_of_this_boot = list.last_run().is_some_and(|last| last.boot_id == boot_id);
    Ok(match &before {
        // The next agent stores its report.
        LastBoot::Recorded(_) => before.describe(),
        LastBoot::Unseen { .. } if !is_of_this_boot => before.describe(),
        _ => cut_off(left, &store)?,
    })
}

/// Says which run is the last of this boot, if an agent neither finished nor reported it.
fn cut_off(left: Vec<RunRecord>, store: &ReportStore) -> Result<Option<String>, FileError> {
    // By time since the boot: the clock may have been set back between two runs.
    let last = left.into_iter().max_by_key(RunRecord::age).filter(|run| !run.phase.is_over());
    let Some(last) = last else { return Ok(None) };
    let began = last.report.started_at.strftime("%Y-%m-%d %H:%M:%S UTC");
    let what = format!("the agent was stopped in the middle of the run that began at {began}");
    Ok(store.of_run(&last)?.is_none().then_some(what))
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
