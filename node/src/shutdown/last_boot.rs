//! How the node went down before this boot: determined at the start, reported as an event once, shown from then on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{Event, WallTime};
use winddown_shutdown::{
    BootMark, FileError, LastBoot, RecordStore, ReportStore, RunPhase, find_last_boot,
};

use winddown_control::api::LastBootStatus;

#[cfg(test)]
mod tests;

/// How long the agent's stop waits for the disk.
const DISK_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// The result at the start.
#[derive(Clone, Debug)]
pub(super) struct LastBootState {
    last: LastBoot,
    is_news: bool,
}

impl LastBootState {
    /// Knows nothing and reports nothing; for drills.
    pub(super) fn nothing() -> Self {
        Self { last: LastBoot::Unknown, is_news: false }
    }

    /// Evaluates what earlier agents left in `state`, writes the report of a run that the machine did
    /// not wait for, and stores the boot mark of this start. Blocks on the disk. What cannot be read or
    /// written is logged and counts as missing.
    pub(super) fn new(
        state: &Path,
        reports: &ReportStore,
        records: &[Arc<dyn RecordStore>],
        (boot_id, system_start): (&str, Duration),
        now: WallTime,
    ) -> Self {
        if boot_id.is_empty() {
            return Self::nothing();
        }
        reports.remove_drafts();
        or_log(reports.reserve_room());
        let mut problems = Vec::new();
        let system = (boot_id, system_start);
        let (last, mark) = find_last_boot(state, reports, records, system, &mut problems);
        problems.iter().for_each(log);
        let first = mark.as_ref().is_none_or(|mark| mark.boot_id != boot_id);
        let is_told = match &last {
            LastBoot::Recorded(report) => or_log(reports.write(report)),
            _ => true,
        };
        if is_told {
            close_earlier(records, system);
        }
        or_log(BootMark::after(mark.as_ref(), boot_id, now).store(state));
        let again = last.report().is_some_and(|report| report.boot_id == boot_id);
        Self { last, is_news: first || again }
    }

    /// The event to record now, if any.
    pub(super) fn event(&self) -> Option<Event> {
        let text = self.last.describe().filter(|_| self.is_news)?;
        Some(Event::LastBoot { graceful: self.last.graceful(), text: text.into() })
    }

    /// Whether every pod exited by itself; `None` if unknown.
    pub(super) fn graceful(&self) -> Option<bool> {
        self.last.graceful()
    }

    /// The part of `status`.
    pub(super) fn status(&self) -> Option<LastBootStatus> {
        let report = self.last.report();
        Some(LastBootStatus {
            text: self.last.describe()?,
            graceful: self.last.graceful(),
            boot_id: match &self.last {
                LastBoot::Unseen { boot_id, .. } => boot_id.clone(),
                _ => report.map(|report| report.boot_id.clone()).unwrap_or_default(),
            },
            report: report.map(winddown_shutdown::ShutdownReport::id),
            took_seconds: report.map(|report| report.took.as_secs_f64()),
        })
    }
}

/// Stores in `state` that the agent was stopped properly. Waits at most a second for the disk.
pub(super) async fn note_stopped(state: PathBuf, boot_id: String, now: WallTime) {
    let write = tokio::task::spawn_blocking(move || note_stop(&state, &boot_id, now));
    if tokio::time::timeout(DISK_WRITE_TIMEOUT, write).await.is_err() {
        tracing::warn!("the disk does not respond: the agent's stop is not recorded");
    }
}

fn note_stop(state: &Path, boot_id: &str, now: WallTime) {
    match BootMark::load(state) {
        Ok(Some(mark)) if mark.boot_id == boot_id => {
            or_log(BootMark { stopped_at: Some(now), ..mark }.store(state));
        }
        Ok(_) => {}
        Err(error) => log(&error),
    }
}

/// Closes the records of this boot's runs before the system was started again: they are told once, and do not say how the
/// boot ends.
fn close_earlier(records: &[Arc<dyn RecordStore>], (boot_id, system_start): (&str, Duration)) {
    for place in records {
        let found = place.read().ok().flatten().filter(|record| {
            let is_earlier = !record.is_of(boot_id, system_start);
            record.report.boot_id == boot_id && is_earlier && record.phase != RunPhase::Cancelled
        });
        if let Some(record) = found {
            or_log(place.write(&record.closed()));
        }
    }
}

/// Returns whether it went well.
fn or_log<T>(result: Result<T, FileError>) -> bool {
    result.inspect_err(log).is_ok()
}

fn log(error: &FileError) {
    tracing::warn!(
        "the record of the last shutdown may be incomplete: {}",
        winddown_shared::error_chain(error)
    );
}
