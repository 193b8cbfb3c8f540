use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{Event, WallTime};
use winddown_shutdown::{Outcome, RecordFile, RecordStore, ReportStore, RunRecord, ShutdownReport};

use super::{LastBootState, note_stop};

/// A machine with a state directory.
struct Machine {
    state: tempfile::TempDir,
    reports: ReportStore,
}

fn at(minute: u32) -> WallTime {
    format!("2026-11-20T03:{minute:02}:00Z").parse().unwrap()
}

fn report(boot: &str, minute: u32, outcome: &str) -> ShutdownReport {
    let at = at(minute);
    serde_json::from_value(serde_json::json!({
        "apiVersion": "winddown.dev/v1alpha1", "kind": "ShutdownReport", "version": 1,
        "trigger": "loginManager", "bootId": boot, "startedAt": at, "finishedAt": at,
        "tookSeconds": 1.5, "outcome": outcome,
        "budget": { "requestedSeconds": 30.0, "podsSeconds": 30.0, "reserveSeconds": 2.0 },
        "groups": [{
            "priority": 0, "configuredSeconds": 20.0, "allowedSeconds": 20.0,
            "deadlineSeconds": 30.0, "startedMs": 0, "pods": [{
                "namespace": "default", "name": "web", "uid": "u", "graceSeconds": 20.0,
                "requestedMs": 0, "outcome": if outcome == "clean" { "exited" } else { "terminating" },
            }],
        }],
    }))
    .unwrap()
}

impl Machine {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let reports = ReportStore::new(state.path().join("reports"));
        Self { state, reports }
    }

    fn agent_starts(&self, boot: &str, minute: u32) -> LastBootState {
        self.agent_starts_in(boot, Duration::ZERO, minute)
    }

    /// In a system that was started this long after the kernel.
    fn agent_starts_in(&self, boot: &str, system_start: Duration, minute: u32) -> LastBootState {
        let place = Arc::new(RecordFile::in_directory(self.state.path())) as Arc<dyn RecordStore>;
        let system = (boot, system_start);
        LastBootState::new(self.state.path(), &self.reports, &[place], system, at(minute))
    }

    fn leave_record(&self, boot: &str, minute: u32) {
        let record: RunRecord = serde_json::from_value(serde_json::json!({
            "version": 1, "sequence": 2, "phase": "ending", "startedBootMs": 1000,
            "report": report(boot, minute, "interrupted"),
        }))
        .unwrap();
        RecordFile::in_directory(self.state.path()).write(&record).unwrap();
    }
}

fn told(back: &LastBootState) -> Option<(Option<bool>, String)> {
    match back.event()? {
        Event::LastBoot { graceful, text } => Some((graceful, text.to_string())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_is_told_once_in_a_boot_and_shown_ever_after() {
    let machine = Machine::new();
    let first = machine.agent_starts("boot-1", 1);
    assert_eq!((told(&first), first.status()), (None, None));
    machine.reports.write(&report("boot-1", 30, "clean")).unwrap();

    let second = machine.agent_starts("boot-2", 31);
    let (graceful, text) = told(&second).unwrap();
    assert_eq!(graceful, Some(true));
    assert_eq!(text, "clean shutdown: 1 pod exited by itself in 1.5 s (budget 30 s)");
    let again = machine.agent_starts("boot-2", 32);
    assert_eq!(told(&again), None);
    assert_eq!(again.graceful(), Some(true));
    let status = again.status().unwrap();
    assert_eq!(status.report.as_deref(), Some("20261120T033000.000Z"));
    assert_eq!((status.boot_id.as_str(), status.took_seconds), ("boot-1", Some(1.5)));
}

#[test]
fn a_machine_that_went_down_in_the_middle_gets_its_report_at_the_next_start() {
    let machine = Machine::new();
    machine.agent_starts("boot-1", 1);
    machine.leave_record("boot-1", 30);
    for minute in [31, 32] {
        let back = machine.agent_starts("boot-2", minute);
        assert_eq!(back.graceful(), Some(false));
        let kept = machine.reports.list().unwrap().reports;
        assert_eq!(kept.len(), 1, "kept once");
        assert_eq!(kept[0].outcome, Outcome::CutOff);
        assert!(back.status().unwrap().text.ends_with("still terminating: default/web"));
    }
}

/// By a soft-reboot, or in a container: the kernel, and with it the boot, is the same.
#[test]
fn a_system_that_went_down_in_the_middle_gets_its_report_and_is_told_once() {
    let machine = Machine::new();
    machine.agent_starts("boot", 1);
    machine.leave_record("boot", 30);
    let again = Duration::from_secs(600);
    let (graceful, text) = told(&machine.agent_starts_in("boot", again, 31)).unwrap();
    assert_eq!(graceful, Some(false));
    assert!(text.ends_with("still terminating: default/web"), "{text}");
    assert_eq!(told(&machine.agent_starts_in("boot", again, 32)), None);
    let kept = machine.reports.list().unwrap().reports;
    assert_eq!((kept.len(), kept[0].outcome), (1, Outcome::CutOff));
    // The boot that ends later did not end with that run.
    let (_, text) = told(&machine.agent_starts("next", 50)).unwrap();
    assert!(text.starts_with("the node went down without a shutdown"), "{text}");
}

/// The disk was full when the record was to be closed, and had room for the report later.
#[test]
fn a_run_whose_report_says_that_the_node_stayed_up_did_not_end_the_boot_whatever_its_record_says() {
    for after_the_end in [false, true] {
        let machine = Machine::new();
        machine.agent_starts("boot-1", 1);
        machine.leave_record("boot-1", 30);
        let mut stored = report("boot-1", 30, if after_the_end { "clean" } else { "cancelled" });
        stored.node_stayed_up = after_the_end;
        machine.reports.write(&stored).unwrap();
        let (graceful, text) = told(&machine.agent_starts("boot-2", 50)).unwrap();
        assert_eq!(graceful, Some(false));
        assert!(text.starts_with("the node went down without a shutdown"), "{text}");
        assert_eq!(machine.reports.list().unwrap().reports, [stored]);
    }
}

/// The system of the first run came back, and the boot ended otherwise later.
#[test]
fn the_stored_report_of_a_soft_reboot_is_not_replaced_by_what_its_record_says() {
    let machine = Machine::new();
    machine.agent_starts("boot-1", 1);
    machine.leave_record("boot-1", 30);
    let mut stored = report("boot-1", 30, "clean");
    stored.node_action = Some("softReboot".into());
    machine.reports.write(&stored).unwrap();
    machine.agent_starts("boot-1", 31);
    let (_, text) = told(&machine.agent_starts("boot-2", 50)).unwrap();
    assert!(text.starts_with("the node went down without a shutdown"), "{text}");
    assert_eq!(machine.reports.list().unwrap().reports, [stored]);
}

#[test]
fn a_machine_that_lost_power_is_told_apart_from_an_agent_that_was_stopped() {
    let machine = Machine::new();
    machine.agent_starts("boot-1", 1);
    let (graceful, text) = told(&machine.agent_starts("boot-2", 2)).unwrap();
    assert_eq!(graceful, Some(false));
    assert!(text.starts_with("the node went down without a shutdown"), "{text}");

    note_stop(machine.state.path(), "boot-2", at(5));
    let (graceful, text) = told(&machine.agent_starts("boot-3", 9)).unwrap();
    assert_eq!(graceful, None);
    assert!(text.ends_with("the agent had been stopped at 2026-11-20 03:05:00 UTC"), "{text}");
}

#[test]
fn a_broken_or_full_state_directory_costs_the_answer_and_nothing_else() {
    let machine = Machine::new();
    machine.agent_starts("boot-1", 1);
    std::fs::write(machine.state.path().join("boot.json"), "{").unwrap();
    std::fs::write(machine.state.path().join("shutdown.json"), "{").unwrap();
    assert_eq!(machine.agent_starts("boot-2", 2).status(), None);
    // The mark is valid again.
    assert!(machine.agent_starts("boot-3", 3).status().is_some());
    let nowhere = std::path::Path::new("/proc/nowhere");
    let system = ("boot", Duration::ZERO);
    let back = LastBootState::new(nowhere, &ReportStore::new(nowhere), &[], system, at(1));
    assert_eq!(back.status(), None);
    assert_eq!(machine.agent_starts("", 4).status(), None, "a boot without an id");
}
