#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::Duration;

use super::{TEMPLATE, WriteError, Written, content, remove, write};
use crate::drop_in::{NAME, find, inhibit_delay, name_of};

const FILE: &str = "/etc/systemd/logind.conf.d/zz-winddown.conf";
const SECOND_FILE: &str = "/run/systemd/logind.conf.d/zz-winddown.conf";

fn file_of(written: Result<Written, WriteError>) -> PathBuf {
    match written.expect("written") {
        Written::Changed { file } => file,
        Written::Unchanged { file } => panic!("{} was unchanged", file.display()),
    }
}

#[test]
fn the_content_has_whole_seconds_rounded_up() {
    assert_eq!(TEMPLATE.matches("@DELAY@").count(), 1);
    let cases = [(30_000, 30), (30_001, 31), (0, 0), (90_000, 90), (500, 1)];
    for (millis, seconds) in cases {
        let text = content("winddown", Duration::from_millis(millis));
        assert_eq!(inhibit_delay(&text), Some(Duration::from_secs(seconds)), "{millis} ms");
        assert!(text.contains("[Login]\nInhibitDelayMaxSec="), "{text}");
        assert!(text.ends_with('\n'));
    }
}

#[test]
fn each_agent_has_a_file_of_its_own_which_names_it_and_which_no_other_removes() {
    assert_eq!(name_of("winddown"), NAME);
    assert_eq!(name_of("my agent/2"), "zz-my-agent-2.conf");
    let root = tempfile::tempdir().expect("a directory");
    let file = file_of(write(root.path(), "my agent", Duration::from_secs(60)));
    assert_eq!(file, PathBuf::from("/etc/systemd/logind.conf.d/zz-my-agent.conf"));
    let path = root.path().join("etc/systemd/logind.conf.d/zz-my-agent.conf");
    let text = fs::read_to_string(&path).expect("the file");
    assert!(text.starts_with("# Written by my agent's agent. "), "{text}");
    assert!(!text.contains("winddown"), "{text}");
    assert_eq!(remove(root.path(), "winddown").expect("none of winddown's"), None);
    // Of the same name, but another agent's.
    assert_eq!(remove(root.path(), "my-agent").expect("none of my-agent's"), None);
    assert_eq!(remove(root.path(), "my agent").expect("removed"), Some(file));
    assert!(!path.exists());
}

#[test]
fn it_is_written_once_replaced_when_it_differs_and_leaves_no_draft() {
    let root = tempfile::tempdir().expect("a directory");
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    assert_eq!(file_of(write(root.path(), "winddown", minute)), PathBuf::from(FILE));
    let again = write(root.path(), "winddown", minute).expect("written");
    assert_eq!(again, Written::Unchanged { file: FILE.into() });
    assert_eq!(file_of(write(root.path(), "winddown", hour)), PathBuf::from(FILE));
    assert_eq!(find(root.path()).map(|setting| setting.value), Some(hour));
    let directory = root.path().join("etc/systemd/logind.conf.d");
    let names: Vec<_> = fs::read_dir(&directory)
        .expect("a list")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["zz-winddown.conf"]);
    let mode = |path| fs::metadata(path).expect("its mode").permissions().mode() & 0o7777;
    assert_eq!((mode(directory.join("zz-winddown.conf")), mode(directory)), (0o644, 0o755));
}

#[test]
fn what_cannot_be_written_in_etc_goes_to_run_and_the_old_file_is_unharmed() {
    let root = tempfile::tempdir().expect("a directory");
    // A file where the directory should be: this fails for root too, unlike a restrictive mode.
    fs::create_dir_all(root.path().join("etc/systemd")).expect("a directory");
    fs::write(root.path().join("etc/systemd/logind.conf.d"), "kept").expect("a file");
    assert_eq!(
        file_of(write(root.path(), "winddown", Duration::from_secs(60))),
        PathBuf::from(SECOND_FILE)
    );
    let kept = fs::read_to_string(root.path().join("etc/systemd/logind.conf.d"));
    assert_eq!(kept.expect("a file"), "kept");
}

#[test]
fn when_no_place_can_be_written_the_error_names_the_file_and_says_what_to_do() {
    let root = tempfile::tempdir().expect("a directory");
    for place in ["etc", "run"] {
        fs::write(root.path().join(place), "").expect("a file");
    }
    let error =
        write(root.path(), "winddown", Duration::from_secs(60)).expect_err("nowhere to write");
    assert_eq!(
        error.to_string(),
        "cannot write /run/systemd/logind.conf.d/zz-winddown.conf; it has to be writable in /etc or, \
         where /etc has none, in /run"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn what_cannot_be_replaced_in_etc_is_an_error_because_it_hides_the_one_in_run() {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(root.path().join(FILE.trim_start_matches('/')).join("x"))
        .expect("directories");
    let error = write(root.path(), "winddown", Duration::from_secs(60)).expect_err("it stays");
    assert!(matches!(&error, WriteError::Failed { file, .. } if file == FILE), "{error}");
    assert!(!root.path().join("run").exists());
}

#[test]
fn a_link_to_dev_null_is_an_administrators_no() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("etc/systemd/logind.conf.d");
    fs::create_dir_all(&directory).expect("a directory");
    symlink("/dev/null", directory.join("zz-winddown.conf")).expect("a link");
    let error = write(root.path(), "winddown", Duration::from_secs(60)).expect_err("masked");
    assert_eq!(
        error.to_string(),
        "/etc/systemd/logind.conf.d/zz-winddown.conf is linked to /dev/null, so winddown does not \
         set logind's delay"
    );
    assert!(!root.path().join("run").exists());
}
