//! Finds on disk how the node went down before this boot.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{BootMark, Evidence, LastBoot, ReportStore, last_boot};
use crate::{FileError, RecordStore, RunRecord};

/// Finds how the node went down before the boot `boot_id`, and the mark of the agent before. What cannot be read counts
/// as missing and is added to `problems`, but for `records`, whose reader has said so. Blocks on the disk.
pub fn find_last_boot(
    state: &Path,
    reports: &ReportStore,
    records: &[Arc<dyn RecordStore>],
    (boot_id, system_start): (&str, Duration),
    problems: &mut Vec<FileError>,
) -> (LastBoot, Option<BootMark>) {
    let mark = or_none(BootMark::load(state), problems);
    let previous = mark.as_ref().and_then(|mark| mark.previous_boot(boot_id));
    let report = match &previous {
        Some(previous) => reports.shutdown_of_boot(&previous.boot_id),
        None => reports.shutdown_before(boot_id),
    };
    let report = or_none(report, problems);
    let is_of_this_boot = mark.as_ref().is_some_and(|mark| mark.boot_id == boot_id);
    let record = newest_of_earlier(records, (boot_id, system_start));
    let is_recorded = record.as_ref().is_some_and(|record| record.report.boot_id == boot_id);
    let same_boot = match is_of_this_boot || is_recorded {
        true => or_none(reports.shutdown_of_boot(boot_id), problems),
        false => None,
    };
    let of_record = record.as_ref().map_or(Ok(None), |record| reports.of_run(record));
    let of_record = or_none(of_record, problems);
    let boot_id = boot_id.to_owned();
    let evidence = Evidence { boot_id, mark: mark.clone(), report, same_boot, record, of_record };
    (last_boot(evidence), mark)
}

/// The newest run record that an agent of another boot left, or one of this boot before the system was started again.
fn newest_of_earlier(
    records: &[Arc<dyn RecordStore>],
    (boot_id, system_start): (&str, Duration),
) -> Option<RunRecord> {
    // A record that cannot be read was logged when the run of this boot was looked for.
    let found = records.iter().filter_map(|place| place.read().ok().flatten());
    found
        .filter(|record| !record.is_of(boot_id, system_start))
        .max_by_key(|record| (record.report.started_at, record.sequence))
}

fn or_none<T>(result: Result<Option<T>, FileError>, problems: &mut Vec<FileError>) -> Option<T> {
    result.unwrap_or_else(|error| {
        problems.push(error);
        None
    })
}
