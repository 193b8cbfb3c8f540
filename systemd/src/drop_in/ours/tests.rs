#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::{Applied, RequiredDropIn, apply, ours};
use crate::drop_in::{Content, INFINITY, Source, WriteError, find};

const OURS: &str = "/etc/systemd/logind.conf.d/zz-winddown.conf";
const OURS_IN_RUN: &str = "/run/systemd/logind.conf.d/zz-winddown.conf";
const UNATTENDED: &str = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";
const LATER: &str = "/etc/systemd/logind.conf.d/zzz-site.conf";
const MAIN: &str = "/etc/systemd/logind.conf";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sets(file: &str, value: &str) -> Source {
    let text = format!("[Login]\nInhibitDelayMaxSec={value}\n");
    Source { file: file.into(), content: Content::Text(text) }
}

#[test]
fn ours_is_there_only_while_logind_gives_less_without_it() {
    type Case<'a> = (&'a [(&'a str, &'a str)], u64, Option<u64>);
    let cases: [Case<'_>; 16] = [
        // Nothing sets it: systemd's default of five seconds applies.
        (&[], 0, None),
        (&[], 5, None),
        (&[], 6, Some(6)),
        (&[(OURS, "60")], 0, None),
        (&[(OURS, "60")], 5, None),
        (&[(OURS, "60")], 22, Some(22)),
        // Another package's value is never reduced.
        (&[(UNATTENDED, "60")], 22, None),
        (&[(UNATTENDED, "60"), (OURS, "22")], 22, None),
        (&[(UNATTENDED, "60"), (OURS, "0")], 0, None),
        (&[(UNATTENDED, "30"), (OURS, "90")], 40, Some(40)),
        (&[(UNATTENDED, "30"), (OURS, "90")], 30, None),
        (&[(UNATTENDED, "infinity")], 3600, None),
        (&[(MAIN, "60"), (OURS_IN_RUN, "22")], 22, None),
        // A value below systemd's default was set on purpose, and stays unless more is wanted.
        (&[(MAIN, "1")], 0, None),
        (&[(MAIN, "1")], 4, Some(4)),
        // A later name wins in any case; ours is written for when that file is removed.
        (&[(LATER, "3")], 22, Some(22)),
    ];
    for (files, wanted, expected) in cases {
        let (main, drop_ins): (Vec<_>, Vec<_>) = files
            .iter()
            .map(|(file, value)| sets(file, value))
            .partition(|source| source.file == Path::new(MAIN));
        let expected =
            expected.map_or(RequiredDropIn::Absent, |delay| RequiredDropIn::Present(secs(delay)));
        assert_eq!(
            ours(&main, &drop_ins, "winddown", secs(wanted)),
            expected,
            "{files:?} {wanted}"
        );
        // The delay grows with what is wanted, and is never less than without our file.
        if let RequiredDropIn::Present(delay) = ours(&main, &drop_ins, "winddown", INFINITY) {
            assert_eq!(delay, INFINITY, "{files:?}");
        }
    }
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn given(root: &Path) -> u64 {
    find(root).map_or(5, |setting| setting.value.as_secs())
}

#[test]
fn a_file_of_ours_goes_from_both_places_when_others_give_enough_and_comes_back_when_not() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let other = "[Login]\nInhibitDelayMaxSec=60\n";
    assert_eq!(
        apply(root, "winddown", secs(22), true).expect("written"),
        Applied::Wrote { file: OURS.into() }
    );
    assert_eq!(apply(root, "winddown", secs(22), true).expect("read"), Applied::Nothing);
    let text = fs::read_to_string(root.join(&OURS[1..])).expect("ours");
    put(root, OURS_IN_RUN, &text);
    put(root, UNATTENDED, other);
    assert_eq!(given(root), 22, "ours has the last name");
    let removed = apply(root, "winddown", secs(22), false).expect("removed");
    assert_eq!((removed, given(root)), (Applied::Removed { file: OURS.into() }, 60));
    assert!(!root.join(&OURS[1..]).exists() && !root.join(&OURS_IN_RUN[1..]).exists());
    assert_eq!(apply(root, "winddown", secs(22), false).expect("read"), Applied::Nothing);
    // logind already gives enough for another reason: nothing is written.
    fs::remove_file(root.join(&UNATTENDED[1..])).expect("it was there");
    assert_eq!(apply(root, "winddown", secs(22), false).expect("read"), Applied::Nothing);
    assert_eq!(
        apply(root, "winddown", secs(22), true).expect("written"),
        Applied::Wrote { file: OURS.into() }
    );
}

#[test]
fn what_is_not_ours_stays_although_it_has_our_name() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    put(root, OURS, "[Login]\nInhibitDelayMaxSec=7\n");
    assert_eq!(apply(root, "winddown", Duration::ZERO, false).expect("read"), Applied::Nothing);
    assert_eq!(given(root), 7);
    fs::remove_file(root.join(&OURS[1..])).expect("it was there");
    symlink("/dev/null", root.join(&OURS[1..])).expect("a link");
    assert_eq!(apply(root, "winddown", Duration::ZERO, false).expect("read"), Applied::Nothing);
    let masked = apply(root, "winddown", secs(60), true);
    assert!(matches!(masked, Err(WriteError::Masked { .. })), "{masked:?}");
}
