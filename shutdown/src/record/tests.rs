#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{BootClock, KillReason, RequestReport, error_chain};

use super::{RecordFile, RecordStore, RunPhase, RunRecord};
use crate::report::{Ended, ReportHeader};
use crate::{
    Budget, BudgetReport, GroupReport, NoticeReport, PodEnd, PodReport, Policy, RunReport, RunStop,
    ShutdownReport, Trigger,
};

pub(crate) fn record(boot: &str, started_boot_ms: u64, sequence: u64) -> RunRecord {
    let policy = Policy::from_periods(Duration::from_secs(30), Duration::from_secs(10)).unwrap();
    let budget = Budget::new(&policy, Some(Duration::from_secs(40)));
    let header = ReportHeader {
        trigger: Trigger::LoginManager,
        node_action: winddown_shared::ShutdownKind::Kexec,
        boot_id: boot.into(),
        started_at: "2026-11-20T03:44:00.123456789Z".parse().unwrap(),
        budget: BudgetReport::new(budget, Some("/etc/x.conf")),
        requested_by: Some(RequestReport { uid: Some(1000), ..RequestReport::default() }),
        notice: Some(NoticeReport {
            source: "aws".into(),
            text: "spot".into(),
            deadline: Duration::from_secs(120),
        }),
        endpoint_drain: Some(Duration::from_secs(5)),
        resumed: vec![Duration::from_secs(3)],
        warnings: vec!["hm".into()],
    };
    let ended = Ended { at: header.started_at, took: Duration::from_secs(3) };
    RunRecord {
        version: 1,
        sequence,
        phase: RunPhase::Ending,
        started_boot_ms,
        suspended_ms: None,
        login_since_ms: Some(7),
        first_group_ms: 5000,
        report: ShutdownReport::new(header, without_pods(), ended),
    }
}

fn without_pods() -> RunReport {
    let (groups, work) = (Vec::new(), Vec::new());
    RunReport { groups, work, stop: RunStop::Cancelled, pods_unknown: false }
}

#[test]
fn what_is_written_is_read_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::in_directory(directory.path().join("not/there/yet"));
    assert_eq!(file.read().unwrap(), None);
    let record = record("boot", 1000, 1);
    file.write(&record).unwrap();
    let read = file.read().unwrap().unwrap();
    assert_eq!(read, record);
    let mode = fs::metadata(file.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(file.path().parent().unwrap()).unwrap().count(), 1);

    let context = read.context();
    assert_eq!(context.budget.pods, Duration::from_secs(30));
    assert_eq!(context.login_since, Some(Duration::from_millis(7)));
    assert_eq!(context.delay_set_by.as_deref(), Some("/etc/x.conf"));
    assert_eq!(context.kind, winddown_shared::ShutdownKind::Kexec);
    let header = read.header(Duration::from_secs(9));
    assert_eq!(header.resumed, [Duration::from_secs(3), Duration::from_secs(9)]);
    assert_eq!(header.started_at, record.report.started_at);
}

#[test]
fn every_way_down_is_known_to_the_next_agent() {
    use winddown_shared::ShutdownKind::{Halt, Kexec, PowerOff, Reboot, SoftReboot, Unknown};
    for kind in [Unknown, PowerOff, Halt, Reboot, Kexec, SoftReboot] {
        let mut record = record("boot", 1000, 1);
        let header = ReportHeader { node_action: kind, ..record.header(Duration::ZERO) };
        let ended = Ended { at: record.report.finished_at, took: Duration::ZERO };
        record.report = ShutdownReport::new(header, without_pods(), ended);
        let text = serde_json::to_string(&record).unwrap();
        let read: RunRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read.context().kind, kind);
    }
}

/// The record that an agent of the boot finds.
fn of_boot(places: &[Arc<dyn RecordStore>], since: Duration) -> Option<RunRecord> {
    let found = RunRecord::of_boot(places, ("boot", &BootClock::new(Duration::default)), since)?;
    Some(RunRecord { suspended_ms: None, ..found })
}

/// Of a shutdown and of a drain.
#[test]
fn the_start_in_a_record_moves_by_the_time_for_which_the_machine_was_suspended() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::in_directory(directory.path());
    for file in [file.clone(), file.of_drain()] {
        let places: Vec<Arc<dyn RecordStore>> = vec![Arc::new(file.clone())];
        let start = |suspended_ms| {
            let clock = BootClock::new(Duration::default)
                .with_suspended(move || Duration::from_millis(suspended_ms));
            let found = RunRecord::of_boot(&places, ("boot", &clock), Duration::ZERO).unwrap();
            (found.started_boot_ms, found.suspended_ms)
        };
        file.write(&record("boot", 77, 1)).unwrap();
        assert_eq!(start(50), (77, Some(50)), "of an older version");
        let suspended_ms = Some(30);
        file.write(&RunRecord { suspended_ms, ..record("boot", 77, 1) }).unwrap();
        assert_eq!(start(50), (97, Some(50)));
    }
}

#[test]
fn the_newest_record_of_this_boot_counts_wherever_it_is() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let files: Vec<RecordFile> =
        directories.iter().map(|d| RecordFile::in_directory(d.path())).collect();
    let places: Vec<Arc<dyn RecordStore>> =
        files.iter().cloned().map(|file| Arc::new(file) as Arc<dyn RecordStore>).collect();
    assert_eq!(of_boot(&places, Duration::ZERO), None);
    for (first, second, newest) in [
        (("boot", 1, 1), ("boot", 1, 2), Some((1, 2))),
        (("boot", 1, 3), ("boot", 1, 2), Some((1, 3))),
        (("boot", 1, 9), ("boot", 2, 1), Some((2, 1))),
        (("boot", 1, 1), ("other", 9, 9), Some((1, 1))),
        (("other", 1, 1), ("other", 9, 9), None),
    ] {
        for (file, (boot, started, sequence)) in files.iter().zip([first, second]) {
            file.write(&record(boot, started, sequence)).unwrap();
        }
        let found = of_boot(&places, Duration::ZERO);
        assert_eq!(found.map(|r| (r.started_boot_ms, r.sequence)), newest);
    }
    // The system was started again in this boot, and its record is from before.
    files[0].write(&record("boot", 5, 1)).unwrap();
    for (since, is_found) in [(5, true), (6, false)] {
        let found = of_boot(&places, Duration::from_millis(since));
        assert_eq!(found.is_some(), is_found, "{since}");
    }
    // A kernel that does not say which boot this is has no earlier agent.
    files[0].write(&record("", 1, 1)).unwrap();
    assert_eq!(
        RunRecord::of_boot(&places, ("", &BootClock::new(Duration::default)), Duration::ZERO),
        None
    );
}

#[test]
fn what_is_no_record_is_an_error_that_names_the_file_and_does_not_hide_the_other_place() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [bad, good] = directories.each_ref().map(|d| RecordFile::in_directory(d.path()));
    good.write(&record("boot", 1, 1)).unwrap();
    let path = bad.path().display().to_string();
    let mut newer = serde_json::to_value(record("boot", 9, 9)).unwrap();
    newer["version"] = 2.into();
    newer.as_object_mut().unwrap().remove("report");
    let cases = [
        ("{".to_owned(), format!("{path} is not the record of a run; remove it: EOF")),
        ("[]".to_owned(), format!("{path} is not the record of a run; remove it: ")),
        (r#"{"version":1}"#.to_owned(), format!("{path} is not the record of a run; ")),
        (newer.to_string(), format!("{path} has format version 2, this agent knows 1; remove it")),
    ];
    for (content, expected) in cases {
        fs::write(bad.path(), content).unwrap();
        let text = error_chain(&bad.read().unwrap_err());
        assert!(text.starts_with(&expected), "{text}");
        let places: Vec<Arc<dyn RecordStore>> = vec![Arc::new(bad.clone()), Arc::new(good.clone())];
        assert_eq!(of_boot(&places, Duration::ZERO).unwrap().sequence, 1);
    }
}

#[test]
fn a_field_of_a_later_version_of_the_same_shape_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::in_directory(directory.path());
    let mut later = serde_json::to_value(record("boot", 1, 1)).unwrap();
    later["more"] = true.into();
    fs::write(file.path(), later.to_string()).unwrap();
    assert_eq!(file.read().unwrap(), Some(record("boot", 1, 1)));
}

#[test]
fn a_place_that_cannot_be_written_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let blocked = directory.path().join("file");
    fs::write(&blocked, "").unwrap();
    let file = RecordFile::in_directory(&blocked);
    let text = error_chain(&file.write(&record("boot", 1, 1)).unwrap_err());
    assert!(text.starts_with("cannot write "), "{text}");
    assert!(text.contains("file/shutdown.json"), "{text}");
}

#[test]
fn a_record_in_memory_is_read_like_any_other_and_counts_when_it_is_newer() {
    let directory = tempfile::tempdir().unwrap();
    let [disk, memory] = ["disk", "memory"].map(|name| directory.path().join(name));
    let (disk, memory) = (RecordFile::in_directory(disk), RecordFile::in_memory(memory));
    assert!(memory.is_volatile() && !disk.is_volatile());
    disk.write(&record("boot", 1, 3)).unwrap();
    memory.write(&record("boot", 1, 4)).unwrap();
    memory.write(&record("boot", 1, 5)).unwrap();
    let places: Vec<Arc<dyn RecordStore>> = vec![Arc::new(disk), Arc::new(memory)];
    assert_eq!(of_boot(&places, Duration::ZERO), Some(record("boot", 1, 5)));
}

#[test]
fn impossible_times_are_not_counted_with() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::in_directory(directory.path());
    let places: Vec<Arc<dyn RecordStore>> = vec![Arc::new(file.clone())];
    let endless = Duration::from_secs(u64::MAX / 2048);
    let changes: [fn(&mut RunRecord, Duration); 4] = [
        |record, _| record.first_group_ms = u64::MAX,
        |record, _| record.login_since_ms = Some(u64::MAX),
        |record, endless| record.report.budget.pods = endless,
        |record, endless| record.report.notice.as_mut().unwrap().deadline = endless,
    ];
    for change in changes {
        let mut record = record("boot", 1, 1);
        file.write(&record).unwrap();
        assert!(of_boot(&places, Duration::ZERO).is_some());
        change(&mut record, endless);
        file.write(&record).unwrap();
        assert_eq!(of_boot(&places, Duration::ZERO), None);
    }
}

#[test]
fn the_farthest_deadline_that_a_notice_can_have_is_counted_with() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::in_directory(directory.path());
    let places: Vec<Arc<dyn RecordStore>> = vec![Arc::new(file.clone())];
    let mut record = record("boot", 1, 1);
    record.report.notice.as_mut().unwrap().deadline = winddown_shared::LONGEST_NOTICE;
    record.report.budget.pods = winddown_shared::LONGEST_NOTICE;
    file.write(&record).unwrap();
    assert!(of_boot(&places, Duration::ZERO).is_some());
}

#[test]
fn pods_that_were_asked_are_asked_again_for_the_rest_of_their_grace_unless_the_run_was_called_off()
{
    let mut record = record("boot", 10_000, 1);
    let group = GroupReport {
        priority: 0,
        name: None,
        configured: Duration::from_secs(20),
        allowed: Duration::from_secs(20),
        latest_end: Duration::from_secs(20),
        started: Some(Duration::from_secs(1)),
        ended: None,
        pods: vec![
            asked("ending", Some(1), 9, PodEnd::Spared),
            asked("late", Some(1), 3, PodEnd::Spared),
            asked("gone", Some(1), 9, PodEnd::Exited),
            asked("killed", Some(1), 1, PodEnd::Killed),
            // A grace of zero means one second, and so does a group without time.
            asked("at-once", Some(1), 0, PodEnd::Spared),
            asked("too-late", Some(20), 0, PodEnd::Spared),
            asked("waiting", None, 9, PodEnd::Spared),
            asked("last", Some(1), 22, PodEnd::Terminating),
            PodReport { stays_on_reboot: true, ..asked("stays", Some(1), 9, PodEnd::Exited) },
        ],
    };
    record.report.groups = vec![group];
    // 6.5 s into the run: the first pod's time ends 10 s into it, the last one's with its group.
    let ends = |called_off| -> Vec<(String, u64)> {
        let asked = record.asked(Duration::from_millis(16_500), called_off);
        asked.map(|(uid, kill)| (uid.to_string(), kill.until.as_secs())).collect()
    };
    let end = |name: &str, seconds| (name.to_owned(), seconds);
    let all = [
        end("ending", 20),
        end("late", 14),
        end("gone", 20),
        end("killed", 12),
        end("at-once", 12),
        end("too-late", 31),
        end("last", 30),
        end("stays", 20),
    ];
    assert_eq!(ends(false), all);
    assert_eq!(
        ends(true),
        [end("ending", 20), end("too-late", 31), end("last", 30)],
        "the time of one is over, and it stays; one that has ended starts again"
    );
    let over = record.asked(Duration::ZERO, false).filter(|(_, kill)| kill.has_terminated);
    let over: Vec<String> = over.map(|(uid, _)| uid.to_string()).collect();
    assert_eq!(over, ["gone", "killed", "stays"]);
    let (_, kill) = record.asked(Duration::ZERO, false).next().unwrap();
    assert_eq!(kill.request.reason, KillReason::Shutdown);
    assert_eq!(&*kill.request.status.unwrap().reason, "Terminated");
    let (_, kill) = record.asked(Duration::ZERO, false).last().unwrap();
    assert!(kill.request.restarts_on_node());
}

fn asked(uid: &str, at: Option<u64>, grace: u64, end: PodEnd) -> PodReport {
    PodReport {
        namespace: "default".into(),
        name: uid.into(),
        uid: uid.into(),
        priority: None,
        grace: Duration::from_secs(grace),
        wanted_grace: None,
        asked: at.map(Duration::from_secs),
        sigterm: None,
        exit: None,
        end,
        stays_on_reboot: false,
        containers: Vec::new(),
        mounts: Vec::new(),
        error: None,
        prior_reason: None,
        remark: None,
    }
}

/// A link or device in place of one of our files is replaced, never written through, and never read without
/// limit.
#[test]
fn links_in_place_of_what_is_kept_reach_no_other_file() {
    use std::os::unix::fs::symlink;

    use crate::{BootMark, StateFile, StateTimes};

    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let record = record("boot", 1000, 1);
    let (on_disk, in_memory) = (RecordFile::in_directory(at("d")), RecordFile::in_memory(at("m")));
    let (state, mark) =
        (StateFile::in_directory(at("s")), BootMark::after(None, "b", record.report.started_at));
    for name in ["d", "m", "s", "b"] {
        fs::create_dir(at(name)).unwrap();
    }
    let marked = mark.store(&at("b")).unwrap();
    let paths = [on_disk.path(), in_memory.path(), state.path(), marked.as_path()];
    let link_all = |to: &std::path::Path| {
        for path in paths {
            let _ = fs::remove_file(path);
            symlink(to, path).unwrap();
        }
    };
    link_all(std::path::Path::new("/dev/zero"));
    assert!(on_disk.read().is_err() && in_memory.read().is_err());
    assert!(state.load().is_err() && BootMark::load(&at("b")).is_err());

    fs::write(at("victim"), "precious").unwrap();
    link_all(&at("victim"));
    on_disk.write(&record).unwrap();
    in_memory.write(&record).unwrap();
    state.store(StateTimes::default()).unwrap();
    mark.store(&at("b")).unwrap();
    assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");
    let reports = crate::ReportStore::new(at("r"));
    let report = reports.write(&record.report).unwrap();
    for path in paths.into_iter().chain([report.as_path()]) {
        let found = fs::symlink_metadata(path).unwrap();
        assert!(found.is_file(), "{}", path.display());
        // The kubelet's file holds two times, for everybody.
        let wanted = if path == state.path() { 0o644 } else { 0o600 };
        assert_eq!(found.permissions().mode() & 0o777, wanted, "{}", path.display());
    }
}
