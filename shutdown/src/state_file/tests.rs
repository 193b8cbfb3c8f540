#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{StateFile, StateTimes};

fn chain(error: &dyn std::error::Error) -> String {
    format!("{error}: {}", error.source().unwrap())
}

// TestLocalStorage of the reference.
#[test]
fn what_is_stored_is_loaded_and_is_byte_for_byte_the_kubelets() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::in_directory(directory.path());
    let times = StateTimes {
        start: Some("2026-11-20T03:44:00.123456789Z".parse().unwrap()),
        end: Some("2026-11-20T03:44:09.5Z".parse().unwrap()),
    };
    file.store(times).unwrap();
    assert_eq!(file.load().unwrap(), times);
    assert_eq!(
        fs::read_to_string(directory.path().join("graceful_node_shutdown_state")).unwrap(),
        r#"{"startTime":"2026-11-20T03:44:00.123456789Z","endTime":"2026-11-20T03:44:09.5Z"}"#
    );
    let mode = fs::metadata(file.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn a_time_that_is_not_set_is_gos_zero_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::in_directory(directory.path());
    let times = StateTimes { start: Some("2026-11-20T03:44:00Z".parse().unwrap()), end: None };
    file.store(times).unwrap();
    assert_eq!(
        fs::read_to_string(file.path()).unwrap(),
        r#"{"startTime":"2026-11-20T03:44:00Z","endTime":"0001-01-01T00:00:00Z"}"#
    );
    assert_eq!(file.load().unwrap(), times);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_file_of_a_node_with_another_local_time_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::in_directory(directory.path());
    let text = r#"{"startTime":"2026-11-20T05:44:00.5+02:00","endTime":"0001-01-01T00:00:00Z"}"#;
    fs::write(file.path(), text).unwrap();
    assert_eq!(file.load().unwrap().start, Some("2026-11-20T03:44:00.5Z".parse().unwrap()));
}

#[test]
fn no_file_holds_no_times() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::in_directory(directory.path());
    assert_eq!(file.load().unwrap(), StateTimes::default());
}

#[test]
fn a_broken_file_and_a_missing_directory_are_errors_that_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::in_directory(directory.path());
    let path = file.path().display().to_string();
    fs::write(file.path(), "{").unwrap();
    let text = chain(&file.load().unwrap_err());
    assert!(text.starts_with(&format!("{path} is not a shutdown state file; remove it: EOF")));
    fs::write(file.path(), r#"{"startTime":"soon","endTime":""}"#).unwrap();
    assert!(chain(&file.load().unwrap_err()).contains("soon"));

    let nowhere = StateFile::in_directory(directory.path().join("none"));
    let text = chain(&nowhere.store(StateTimes::default()).unwrap_err());
    assert!(text.starts_with("cannot write "), "{text}");
    assert!(text.contains("none/graceful_node_shutdown_state"), "{text}");
}
