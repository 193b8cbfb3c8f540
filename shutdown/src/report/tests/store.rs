use std::fs;

use super::{Outcome, report};
use crate::{ReportStore, ShutdownReport};

fn at(second: u32) -> ShutdownReport {
    let started_at = format!("2026-11-20T03:44:{second:02}.5Z").parse().unwrap();
    ShutdownReport { started_at, ..report(Outcome::Clean, 1000, vec![]) }
}

fn seconds(reports: &[ShutdownReport]) -> Vec<String> {
    reports.iter().map(|report| report.started_at.strftime("%S").to_string()).collect()
}

#[test]
fn reports_are_listed_newest_first_and_the_oldest_go() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path().join("made/on/demand")).keeping(3);
    assert!(store.list().unwrap().reports.is_empty());
    for second in 1..=5 {
        store.write(&at(second)).unwrap();
    }
    let listing = store.list().unwrap();
    assert_eq!(seconds(&listing.reports), ["05", "04", "03"]);
    assert!(listing.broken.is_empty());
    assert_eq!(store.latest().unwrap(), Some(at(5)));
}

#[test]
fn the_report_of_a_boot_whose_clock_was_set_back_is_still_the_latest() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path()).keeping(2);
    store.write(&at(50)).unwrap();
    store.write(&at(51)).unwrap();
    let path = store.write(&at(1)).unwrap();
    assert_eq!(path.file_name().unwrap(), "shutdown-000003-20261120T034401.500Z.json");
    assert_eq!(seconds(&store.list().unwrap().reports), ["01", "51"]);
    assert_eq!(store.latest().unwrap(), Some(at(1)));
}

#[test]
fn a_broken_file_is_named_and_hides_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    store.write(&at(1)).unwrap();
    let broken = directory.path().join("shutdown-000009-20261120T034459.000Z.json");
    fs::write(&broken, "{\"kind\":").unwrap();
    fs::create_dir(directory.path().join("shutdown-a-directory.json")).unwrap();
    fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    fs::write(directory.path().join(".tmp-shutdown-abc"), "cut off").unwrap();

    let listing = store.list().unwrap();
    assert_eq!(seconds(&listing.reports), ["01"]);
    let errors: Vec<String> = listing.broken.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            format!("{} is not a shutdown report; remove it", broken.display()),
            format!("cannot read {}", directory.path().join("shutdown-a-directory.json").display()),
        ]
    );
    assert_eq!(store.latest().unwrap(), Some(at(1)));
}

#[test]
fn two_runs_in_the_same_millisecond_are_two_reports() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    let first = store.write(&at(1)).unwrap();
    let second = store.write(&at(1)).unwrap();
    assert_ne!(first, second);
    assert_eq!(store.list().unwrap().reports.len(), 2);
}

#[test]
fn what_a_power_cut_left_behind_is_swept_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    let remains = directory.path().join(".tmp-shutdown-abc");
    fs::write(&remains, "cut off").unwrap();
    store.write(&at(1)).unwrap();
    assert!(!remains.exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let store = ReportStore::new(directory.path().join("file/below"));
    let error = store.write(&at(1)).unwrap_err().to_string();
    assert!(error.starts_with("cannot create ") && error.ends_with("file/below"), "{error}");
}
