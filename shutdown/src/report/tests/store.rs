use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use super::{Outcome, Trigger, report};
use crate::{ReportStore, ShutdownReport};

fn at(second: u32) -> ShutdownReport {
    let started_at = format!("2026-11-20T03:44:{second:02}.5Z").parse().unwrap();
    let boot_id = format!("{second:08x}-77aa-4c1e");
    ShutdownReport { started_at, boot_id, ..report(Outcome::Clean, 1000, vec![]) }
}

fn of_boot(boot: &str, second: u32) -> ShutdownReport {
    ShutdownReport { boot_id: boot.into(), ..at(second) }
}

fn seconds(reports: &[ShutdownReport]) -> Vec<String> {
    reports.iter().map(|report| report.started_at.strftime("%S").to_string()).collect()
}

#[test]
fn a_store_names_its_node_in_reports_that_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path()).of_node("edge-1");
    store.write(&at(1)).unwrap();
    store.write(&ShutdownReport { node: Some("edge-2".into()), ..at(2) }).unwrap();
    let names: Vec<_> =
        store.list().unwrap().reports.into_iter().filter_map(|report| report.node).collect();
    assert_eq!(names, ["edge-2", "edge-1"]);
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
    assert_eq!(path.file_name().unwrap(), "shutdown-000003-20261120T034401.500Z-00000001.json");
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
fn two_kinds_of_run_in_the_same_millisecond_are_two_reports() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    let first = store.write(&at(1)).unwrap();
    let drain = ShutdownReport { trigger: Trigger::Drain, ..at(1) };
    let second = store.write(&drain).unwrap();
    assert_ne!(first, second);
    assert_eq!(store.list().unwrap().reports, [drain, at(1)]);
}

#[test]
fn what_a_power_cut_left_behind_is_removed_at_the_start_and_never_while_reports_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    let remains = [".tmp-shutdown-012abc", ".tmp-drain-345def", ".tmp-drill-678abc"]
        .map(|name| directory.path().join(name));
    remains.iter().for_each(|path| fs::write(path, "cut off").unwrap());
    store.write(&at(1)).unwrap();
    let there = || remains.iter().filter(|path| path.exists()).count();
    assert_eq!(there(), 3, "it may be the draft of another report: a drain's, a shutdown's");
    store.remove_drafts();
    assert_eq!(there(), 0);
    assert_eq!(store.list().unwrap().reports, [at(1)]);
}

#[test]
fn a_run_that_is_called_off_after_its_end_replaces_its_report_and_tells_of_no_boot() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    let first = store.write(&at(1)).unwrap();
    // In the meantime, an operator has drained the node.
    let drain = ShutdownReport { trigger: Trigger::Drain, ..at(2) };
    store.write(&drain).unwrap();
    assert!(store.shutdown_of_boot(&at(1).boot_id).unwrap().is_some());
    let again = ShutdownReport { outcome: Outcome::Cancelled, ..at(1) };
    assert_eq!(store.write(&again).unwrap(), first);
    assert_eq!(store.shutdown_of_boot(&at(1).boot_id).unwrap(), None);
    assert_eq!(store.list().unwrap().reports.len(), 2);
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let store = ReportStore::new(directory.path().join("file/below"));
    let error = store.write(&at(1)).unwrap_err().to_string();
    assert!(error.starts_with("cannot create ") && error.ends_with("file/below"), "{error}");
}

/// Writes `report` to a disk that refuses with `why` until at most `room` of the shutdowns `1..=others` are left.
/// Returns whether that worked, and which are left.
fn squeezed(why: ErrorKind, room: usize, others: u32, report: &ShutdownReport) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    (1..=others).for_each(|second| drop(store.write(&at(second)).unwrap()));
    let left = || seconds(&store.list().unwrap().reports);
    let write = || if left().len() <= room { Ok(()) } else { Err(io::Error::from(why)) };
    let written = store.with_room(report, Path::new("new"), write).is_ok();
    (written, left().join(" "))
}

#[test]
fn on_a_full_disk_old_reports_make_room_for_that_of_a_shutdown() {
    use ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
    let (last, called_off) = (at(9), ShutdownReport { outcome: Outcome::Cancelled, ..at(9) });
    let drain = ShutdownReport { trigger: Trigger::Drain, ..at(9) };
    for (what, why, room, others, report, works, kept) in [
        ("the newest one stays", StorageFull, 1, 4, &last, true, "04"),
        ("a quota is a full disk too", QuotaExceeded, 1, 4, &last, true, "04"),
        ("the newest one stays, even in vain", StorageFull, 0, 4, &last, false, "04"),
        ("the only one goes", StorageFull, 0, 1, &last, true, ""),
        ("the boot before is still asked for", StorageFull, 2, 4, &called_off, true, "04 03"),
        ("the boot before is still asked for", StorageFull, 0, 1, &called_off, false, "01"),
        ("a drain displaces no shutdown", StorageFull, 0, 3, &drain, false, "03 02 01"),
        ("room is of no use", PermissionDenied, 0, 3, &last, false, "03 02 01"),
    ] {
        let (written, left) = squeezed(why, room, others, report);
        assert_eq!((written, &*left), (works, kept), "{what}");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it reads what it wrote")]
fn room_that_was_reserved_goes_to_the_report_of_a_shutdown_before_any_other_report_does() {
    let full = || io::Error::from(ErrorKind::StorageFull);
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path().join("reports"));
    store.reserve_room().unwrap();
    store.write(&at(1)).unwrap();
    let reserve = directory.path().join("reports.reserve");
    let bytes = std::fs::read(&reserve).unwrap();
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&bytes).unwrap();
    assert!(packed.finish().unwrap().len() >= bytes.len(), "a file system cannot compress it");
    let write = || if reserve.exists() { Err(full()) } else { Ok(()) };
    let drain = ShutdownReport { trigger: Trigger::Drain, ..at(9) };
    assert!(store.with_room(&drain, Path::new("new"), write).is_err(), "it is not for drains");
    store.with_room(&at(9), Path::new("new"), write).unwrap();
    assert_eq!(seconds(&store.list().unwrap().reports), ["01"]);
    store.reserve_room().unwrap();
    assert!(reserve.exists(), "the next agent reserves it again");
}

#[test]
fn drills_and_drains_push_no_shutdown_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path()).keeping(2);
    store.write(&at(1)).unwrap();
    for second in 2..=9 {
        let trigger = if second % 2 == 0 { Trigger::Drain } else { Trigger::Drill };
        store.write(&ShutdownReport { trigger, ..at(second) }).unwrap();
    }
    assert_eq!(seconds(&store.list().unwrap().reports), ["09", "08", "07", "06", "01"]);
    assert_eq!(store.shutdown_before("another").unwrap(), Some(at(1)));
}

#[test]
fn shutdowns_of_the_last_boots_are_kept_and_ten_of_each() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path()).keeping(2);
    store.write(&of_boot("aaaaaaaa", 1)).unwrap();
    store.write(&of_boot("bbbbbbbb", 2)).unwrap();
    for second in 10..25 {
        store.write(&of_boot("cccccccc", second)).unwrap();
    }
    let kept = store.list().unwrap().reports;
    assert_eq!(kept.len(), 11);
    assert_eq!(kept.last(), Some(&of_boot("bbbbbbbb", 2)));
    assert_eq!(store.shutdown_of_boot("bbbbbbbb").unwrap(), Some(of_boot("bbbbbbbb", 2)));
    assert_eq!(store.shutdown_before("cccccccc").unwrap(), Some(of_boot("bbbbbbbb", 2)));
    assert_eq!(store.shutdown_of_boot("aaaaaaaa").unwrap(), None);
}

#[test]
fn the_final_shutdown_of_an_old_boot_does_not_go_before_those_that_were_called_off() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path()).keeping(1);
    for second in 1..=3 {
        store.write(&of_boot("aaaaaaaa", second)).unwrap();
    }
    store.write(&of_boot("bbbbbbbb", 4)).unwrap();
    assert_eq!(seconds(&store.list().unwrap().reports), ["04"], "boots go as a whole");
}

#[test]
fn a_shutdown_that_was_called_off_is_not_how_a_boot_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    store.write(&at(1)).unwrap();
    let boot_id = at(1).boot_id;
    let called_off =
        ShutdownReport { outcome: Outcome::Cancelled, boot_id: boot_id.clone(), ..at(2) };
    store.write(&called_off).unwrap();
    assert_eq!(store.shutdown_of_boot(&boot_id).unwrap(), Some(at(1)));
}

#[test]
fn files_of_older_versions_are_read_and_go_in_their_turn() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path()).keeping(2);
    let path = store.write(&at(1)).unwrap();
    let old = directory.path().join("shutdown-000001-20261120T034401.500Z.json");
    fs::rename(path, &old).unwrap();
    assert_eq!(store.shutdown_of_boot(&at(1).boot_id).unwrap(), Some(at(1)));
    store.write(&at(2)).unwrap();
    assert!(old.exists());
    store.write(&at(3)).unwrap();
    assert!(!old.exists());
}

#[test]
fn a_report_that_a_second_agent_writes_again_takes_the_place_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let store = ReportStore::new(directory.path());
    let mut report = at(1);
    let first = store.write(&report).unwrap();
    report.resumed.push(std::time::Duration::from_millis(700));
    assert_eq!(store.write(&report).unwrap(), first);
    assert_eq!(store.list().unwrap().reports, [report]);
}
