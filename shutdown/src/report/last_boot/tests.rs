use std::time::Duration;

use winddown_shared::WallTime;

use super::super::tests::{group, ms, pod, report};
use super::{BootMark, Evidence, LastBoot, Outcome, PodEnd, ShutdownReport, Trigger, last_boot};
use crate::{PreviousBoot, RunPhase, RunRecord, RunReport, RunStop};

const NOW: &str = "now-now-now";
const BEFORE: &str = "before-before";

fn at(minute: u32) -> WallTime {
    format!("2026-11-20T03:{minute:02}:00Z").parse().unwrap()
}

/// The mark of an agent that was started in `boot` five minutes past.
fn mark(boot: &str) -> Option<BootMark> {
    Some(BootMark::after(None, boot, at(5)))
}

fn shutdown(boot: &str, minute: u32, outcome: Outcome) -> ShutdownReport {
    let ended = pod("web", PodEnd::Exited, Some(0), Some(1250));
    let run = report(outcome, 1300, vec![group(0, Some((0, 1250)), vec![ended])]);
    ShutdownReport { boot_id: boot.into(), started_at: at(minute), finished_at: at(minute), ..run }
}

fn record(boot: &str, minute: u32, phase: RunPhase) -> RunRecord {
    RunRecord {
        version: 1,
        sequence: 3,
        phase,
        started_boot_ms: 60_000,
        suspended_ms: None,
        login_since_ms: Some(0),
        first_group_ms: 0,
        report: shutdown(boot, minute, Outcome::Interrupted),
    }
}

fn evidence(mark: Option<BootMark>) -> Evidence {
    Evidence { boot_id: NOW.into(), mark, ..Evidence::default() }
}

#[test]
fn the_first_start_ever_says_nothing() {
    let last = last_boot(evidence(None));
    assert_eq!(last, LastBoot::Unknown);
    assert_eq!((last.graceful(), last.describe()), (None, None));
    // A restart of the agent in the first boot shows nothing either.
    assert_eq!(last_boot(evidence(mark(NOW))), LastBoot::Unknown);
}

#[test]
fn a_boot_that_ended_with_a_report_is_told_by_it() {
    for (outcome, graceful) in [
        (Outcome::Clean, true),
        (Outcome::Forced, false),
        (Outcome::Incomplete, false),
        (Outcome::Interrupted, false),
        // The pods ran on, and what became of them is not known.
        (Outcome::Cancelled, false),
    ] {
        let report = shutdown(BEFORE, 30, outcome);
        let found = Evidence { report: Some(report.clone()), ..evidence(mark(BEFORE)) };
        let last = last_boot(found);
        assert_eq!(last, LastBoot::Reported(Box::new(report)));
        assert_eq!(last.graceful(), Some(graceful), "{outcome:?}");
    }
}

#[test]
fn an_agent_that_is_restarted_in_the_same_boot_comes_to_the_same_answer() {
    let first = mark(BEFORE);
    let again = BootMark::after(first.as_ref(), NOW, at(40));
    let third = BootMark::after(Some(&again), NOW, at(50));
    let report = Some(shutdown(BEFORE, 30, Outcome::Clean));
    for mark in [first, Some(again), Some(third)] {
        let last = last_boot(Evidence { report: report.clone(), ..evidence(mark) });
        assert_eq!(last.report(), report.as_ref());
    }
}

#[test]
fn a_machine_that_did_not_wait_leaves_the_record_and_a_report_is_made_of_it() {
    let cases: &[(RunPhase, &[PodEnd], Outcome)] = &[
        (RunPhase::LameDuck, &[PodEnd::Spared], Outcome::CutOff),
        (RunPhase::Ending, &[PodEnd::Terminating, PodEnd::Exited], Outcome::CutOff),
        (RunPhase::Ending, &[PodEnd::Exited, PodEnd::Spared], Outcome::CutOff),
        (RunPhase::Ending, &[PodEnd::Exited], Outcome::Clean),
        (RunPhase::Reporting, &[PodEnd::Exited, PodEnd::Killed], Outcome::Forced),
        (RunPhase::Reporting, &[PodEnd::StillRunning, PodEnd::Killed], Outcome::Incomplete),
        (RunPhase::Released, &[PodEnd::Exited], Outcome::Clean),
    ];
    for (phase, ends, outcome) in cases {
        let mut record = record(BEFORE, 30, *phase);
        record.report.groups[0].pods =
            ends.iter().map(|end| pod("web", *end, Some(0), None)).collect();
        let last = last_boot(Evidence { record: Some(record), ..evidence(mark(BEFORE)) });
        let LastBoot::Recorded(report) = &last else { panic!("{phase:?}: {last:?}") };
        assert_eq!(report.outcome, *outcome, "{phase:?} {ends:?}");
        assert!(report.warnings[0].starts_with("The machine went down before this report"));
    }
}

#[test]
fn a_report_wins_over_the_record_of_its_run_and_of_earlier_ones() {
    let report = shutdown(BEFORE, 30, Outcome::Clean);
    for (minute, phase, wins) in [
        (30, RunPhase::Reporting, true),
        (30, RunPhase::Released, true),
        (20, RunPhase::Ending, true),
        (31, RunPhase::Ending, false),
        // The record of a run whose report is gone, but which was released.
        (31, RunPhase::Released, true),
    ] {
        let record = Some(record(BEFORE, minute, phase));
        let found = Evidence { report: Some(report.clone()), record, ..evidence(mark(BEFORE)) };
        let reported = matches!(last_boot(found), LastBoot::Reported(_));
        assert_eq!(reported, wins, "{minute} {phase:?}");
    }
}

#[test]
fn what_was_called_off_or_rehearsed_is_not_how_a_boot_ended() {
    let cancelled = record(BEFORE, 30, RunPhase::Cancelled);
    let mut drain = record(BEFORE, 30, RunPhase::Ending);
    drain.report.trigger = Trigger::Drain;
    for record in [cancelled, drain] {
        let last = last_boot(Evidence { record: Some(record), ..evidence(mark(BEFORE)) });
        let unseen = LastBoot::Unseen {
            boot_id: BEFORE.into(),
            agent_stopped_at: None,
            disk_was_full: false,
        };
        assert_eq!(last, unseen);
        assert_eq!(last.graceful(), Some(false));
    }
}

#[test]
fn a_boot_that_left_only_its_mark_went_down_without_a_shutdown() {
    let last = last_boot(evidence(mark(BEFORE)));
    assert_eq!(
        last.describe().unwrap(),
        "the node went down without a shutdown: power loss, a crash, or a forced one"
    );
    let stopped = BootMark { stopped_at: Some(at(20)), ..mark(BEFORE).unwrap() };
    let last = last_boot(evidence(Some(stopped)));
    assert_eq!(last.graceful(), None);
    assert_eq!(
        last.describe().unwrap(),
        "unknown outcome: the agent had been stopped at 2026-11-20 03:20:00 UTC"
    );
}

/// An orderly shutdown whose record and report the disk refused looks like a power cut to the next agent otherwise.
#[test]
fn a_boot_whose_end_a_full_disk_kept_out_is_not_taken_for_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let path = mark(BEFORE).unwrap().store(directory.path()).unwrap();
    let full = |_: &[u8]| Err(std::io::ErrorKind::StorageFull.into());
    let size = std::fs::metadata(&path).unwrap().len();
    let stopped = BootMark { stopped_at: Some(at(20)), ..mark(BEFORE).unwrap() };
    stopped.store_by(&path, full).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size, "it takes no more room");
    let found = BootMark::load(directory.path()).unwrap();
    let last = last_boot(evidence(found.clone()));
    assert_eq!(last.graceful(), None);
    assert!(last.describe().unwrap().contains("full"), "{last:?}");
    let next = BootMark::after(found.as_ref(), NOW, at(25));
    assert_eq!(
        last_boot(evidence(Some(next))).graceful(),
        None,
        "whoever starts again in this boot"
    );
    found.unwrap().store(directory.path()).unwrap();
    let found = BootMark::load(directory.path()).unwrap();
    assert_eq!(found.as_ref(), Some(&stopped), "the disk has room again");
    std::fs::write(&path, "").unwrap();
    assert!(stopped.store_by(&path, full).is_err(), "there is no room to write over");
}

#[test]
fn only_the_boot_before_counts() {
    let older = Some(shutdown("much-older", 1, Outcome::Clean));
    let last = last_boot(Evidence { report: older.clone(), ..evidence(mark(BEFORE)) });
    assert!(matches!(last, LastBoot::Unseen { .. }));
    // Without a mark there is only the last report: older agents wrote no mark.
    let last = last_boot(Evidence { report: older, ..evidence(None) });
    assert_eq!(last.graceful(), Some(true));
}

/// In a container, or by a soft-reboot: the boot is the same.
#[test]
fn a_run_that_the_system_did_not_wait_for_is_told_although_the_boot_is_the_same() {
    for mark in [None, mark(NOW), mark(BEFORE)] {
        for minute in [None, Some(20)] {
            let same_boot = minute.map(|minute| shutdown(NOW, minute, Outcome::Clean));
            let record = Some(record(NOW, 30, RunPhase::Ending));
            let last = last_boot(Evidence { record, same_boot, ..evidence(mark.clone()) });
            assert!(matches!(&last, LastBoot::Recorded(_)), "{last:?}");
        }
    }
    for (phase, is_told) in [(RunPhase::Released, true), (RunPhase::Cancelled, false)] {
        let report = shutdown(NOW, 30, Outcome::Forced);
        let same_boot = Some(report.clone());
        let record = Some(record(NOW, 30, phase));
        let last = last_boot(Evidence { record, same_boot, ..evidence(mark(NOW)) });
        let reported = LastBoot::Reported(Box::new(report));
        assert_eq!(last, if is_told { reported } else { LastBoot::Unknown }, "{phase:?}");
    }
}

#[test]
fn a_restart_of_user_space_is_told_although_the_boot_is_the_same() {
    let soft = ShutdownReport {
        node_action: Some("softReboot".into()),
        ..shutdown(NOW, 30, Outcome::Clean)
    };
    let found = |mark| Evidence { same_boot: Some(soft.clone()), ..evidence(mark) };
    assert_eq!(last_boot(found(mark(NOW))), LastBoot::Reported(Box::new(soft.clone())));
    // It counts once: the next start of the agent is just a restart.
    let told = BootMark::after(mark(NOW).as_ref(), NOW, at(31));
    assert_eq!(last_boot(found(Some(told))), LastBoot::Unknown);
    // A shutdown that is about to happen, or that was called off, is not a reboot.
    let plain = Some(shutdown(NOW, 30, Outcome::Clean));
    let last = last_boot(Evidence { same_boot: plain, ..evidence(mark(NOW)) });
    assert_eq!(last, LastBoot::Unknown);
}

#[test]
fn a_boot_that_went_on_after_a_soft_reboot_did_not_end_with_it() {
    let first = mark(BEFORE);
    let again = BootMark::after(first.as_ref(), NOW, at(40));
    for (minute, went_on) in [(4, true), (30, false)] {
        let soft = ShutdownReport {
            node_action: Some("softReboot".into()),
            ..shutdown(BEFORE, minute, Outcome::Clean)
        };
        for mark in [first.clone(), Some(again.clone())] {
            let last = last_boot(Evidence { report: Some(soft.clone()), ..evidence(mark) });
            assert_eq!(last.graceful(), Some(!went_on), "ended at {minute}: {last:?}");
        }
    }
}

#[test]
fn one_line_says_how_long_it_took_and_who_was_cut() {
    let mut run = shutdown(BEFORE, 30, Outcome::Clean);
    let says =
        |report: &ShutdownReport| LastBoot::Reported(Box::new(report.clone())).describe().unwrap();
    assert_eq!(says(&run), "clean shutdown: 1 pod exited by itself in 1.3 s (budget 30 s)");
    let killed = (0..7).map(|n| pod(&format!("k{n}"), PodEnd::Killed, Some(0), Some(20_000)));
    let left = pod("hung", PodEnd::StillRunning, Some(0), None);
    run.groups[0].pods.extend(killed.chain([left]));
    run.outcome = Outcome::Incomplete;
    run.took = ms(31_000);
    assert_eq!(
        says(&run),
        "incomplete shutdown: 1 of 9 pods was still running when the lock was released, after 31 s (budget \
         30 s); killed: default/k0, default/k1, default/k2, default/k3, default/k4 and 2 more; \
         not seen to terminate: default/hung"
    );
    let mut record = record(BEFORE, 30, RunPhase::Ending);
    record.report.took = Duration::from_secs(12);
    record.report.groups[0].pods.push(pod("db", PodEnd::Terminating, Some(0), None));
    let last = last_boot(Evidence { record: Some(record), ..evidence(mark(BEFORE)) });
    assert_eq!(
        last.describe().unwrap(),
        "cut-off shutdown: the machine went down in the middle. At its last record, 12 s after the \
         signal, 1 pod had terminated, 1 still terminating, 0 not asked yet; still terminating: default/db"
    );
}

#[test]
fn a_mark_is_read_back_and_a_broken_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(BootMark::load(directory.path()).unwrap(), None);
    let first = BootMark { stopped_at: Some(at(9)), ..mark(BEFORE).unwrap() };
    let mark = BootMark::after(Some(&first), NOW, at(10));
    let previous = PreviousBoot {
        boot_id: BEFORE.into(),
        agent_started_at: Some(at(5)),
        agent_stopped_at: Some(at(9)),
        disk_was_full: false,
    };
    assert_eq!(mark.previous, Some(previous));
    let path = mark.store(directory.path()).unwrap();
    assert_eq!(BootMark::load(directory.path()).unwrap(), Some(mark));
    for broken in ["", "{}", "[1,2]", &"x".repeat(100_000)] {
        std::fs::write(&path, broken).unwrap();
        let error = BootMark::load(directory.path()).unwrap_err().to_string();
        assert_eq!(error, format!("{} is not the mark of a boot; remove it", path.display()));
    }
}

#[test]
fn a_run_that_did_not_know_what_ran_was_not_graceful() {
    for (phase, outcome) in
        [(RunPhase::LameDuck, Outcome::CutOff), (RunPhase::Released, Outcome::Incomplete)]
    {
        let mut record = record(BEFORE, 30, phase);
        record.report.pods_unknown = true;
        let last = last_boot(Evidence { record: Some(record), ..evidence(mark(BEFORE)) });
        let report = last.report().unwrap();
        assert_eq!((report.outcome, last.graceful()), (outcome, Some(false)), "{phase:?}");
    }
}

/// Every place that calls a run clean asks the same question of each pod: was its end seen?
#[test]
fn a_run_is_clean_only_if_the_end_of_each_pod_was_seen() {
    for (end, finished, recorded) in [
        (PodEnd::Exited, Outcome::Clean, Outcome::Clean),
        (PodEnd::NotRunning, Outcome::Clean, Outcome::Clean),
        (PodEnd::Survives, Outcome::Clean, Outcome::Clean),
        (PodEnd::NotDrainable, Outcome::Clean, Outcome::Clean),
        (PodEnd::Killed, Outcome::Forced, Outcome::Forced),
        (PodEnd::StillRunning, Outcome::Incomplete, Outcome::Incomplete),
        (PodEnd::Terminating, Outcome::Incomplete, Outcome::CutOff),
        (PodEnd::Spared, Outcome::Incomplete, Outcome::Incomplete),
        (PodEnd::Gone, Outcome::Incomplete, Outcome::Incomplete),
    ] {
        let pods =
            || vec![pod("seen", PodEnd::Exited, Some(0), Some(1)), pod("web", end, None, None)];
        let groups = vec![group(0, None, pods())];
        let run = RunReport {
            groups: groups.clone(),
            work: Vec::new(),
            stop: RunStop::Finished,
            pods_unknown: false,
        };
        assert_eq!(run.outcome(), finished, "{end:?}");
        assert_eq!(run.is_clean(), matches!(finished, Outcome::Clean | Outcome::Forced), "{end:?}");
        let mut record = record(BEFORE, 30, RunPhase::Released);
        record.report.groups = groups;
        let last = last_boot(Evidence { record: Some(record), ..evidence(mark(BEFORE)) });
        assert_eq!(last.report().unwrap().outcome, recorded, "{end:?}");
    }
}
