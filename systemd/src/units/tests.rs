use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use winddown_host::service_units::{
    JournalMarks, Keep, NewUnit, UnitExit, UnitLimits, UnitOutput, UnitPhase, UnitView,
};
use zbus::{OwnedVariant, Variant};

use super::path::unit_of;
use super::properties::properties;
use super::state::UnitProperties;

fn known(of: &[(&str, Variant<'static>)]) -> HashMap<String, OwnedVariant> {
    let owned = |value: &Variant<'static>| value.try_clone().unwrap().try_into_owned().unwrap();
    of.iter().map(|(name, value)| ((*name).to_owned(), owned(value))).collect()
}

fn state(of: &[(&str, Variant<'static>)]) -> UnitView {
    let mut all = UnitProperties::default();
    all.take(&known(of));
    all.state()
}

fn active(active: &'static str, sub: &'static str) -> Vec<(&'static str, Variant<'static>)> {
    vec![("ActiveState", active.into()), ("SubState", sub.into())]
}

#[test]
fn a_path_leads_back_to_the_unit_and_others_units_are_none() {
    let unit =
        |label: &str| unit_of(&format!("/org/freedesktop/systemd1/unit/{label}"), "winddown-pod");
    assert_eq!(
        unit("winddown_2dpoda_5cx2db_2dweb_2d0_2eservice").as_deref(),
        Some("winddown-poda\\x2db-web-0.service")
    );
    for label in ["winddown_2eservice", "ssh_2eservice", "winddown_2dpod_zz", "_2", ""] {
        assert_eq!(unit(label), None, "{label}");
    }
    assert_eq!(unit_of("/org/freedesktop/systemd1", "winddown-pod"), None);
}

#[test]
fn how_far_a_service_has_come_is_told_by_its_states() {
    for (one, sub, expected) in [
        ("inactive", "dead", UnitPhase::Starting),
        ("activating", "start", UnitPhase::Starting),
        ("activating", "auto-restart", UnitPhase::Starting),
        ("active", "running", UnitPhase::Running),
        ("active", "exited", UnitPhase::Exited),
        ("deactivating", "stop-sigterm", UnitPhase::Stopping),
        ("failed", "failed", UnitPhase::Over),
        ("what", "ever", UnitPhase::Starting),
    ] {
        assert_eq!(state(&active(one, sub)).phase, expected, "{one} {sub}");
    }
    let mut of = active("inactive", "dead");
    of.push(("ExecMainStartTimestampMonotonic", 5_u64.into()));
    of.push(("MainPID", 42_u32.into()));
    // As systemd 252 reports it for a moment.
    assert_eq!(state(&of).phase, UnitPhase::Starting, "its process has just been made");
    of.push(("MainPID", 0_u32.into()));
    of.push(("ExecMainExitTimestampMonotonic", 6_u64.into()));
    assert_eq!(state(&of).phase, UnitPhase::Over, "it ran and ended");
}

#[test]
fn how_a_service_ended_is_put_together_from_both_interfaces() {
    let mut all = UnitProperties::default();
    all.take(&known(&[
        ("MainPID", 0_u32.into()),
        ("Result", "oom-kill".into()),
        ("ExecMainCode", 2_i32.into()),
        ("ExecMainStatus", 9_i32.into()),
        ("ExecMainStartTimestamp", 1_700_000_000_000_000_u64.into()),
        ("ExecMainStartTimestampMonotonic", 1_000_000_u64.into()),
        ("ExecMainExitTimestamp", 1_700_000_002_500_000_u64.into()),
        ("ExecMainExitTimestampMonotonic", 3_500_000_u64.into()),
    ]));
    all.take(&known(&active("failed", "failed")));
    let seen = all.state();
    assert_eq!((seen.phase, seen.main_pid), (UnitPhase::Over, None));
    let end = seen.end.unwrap();
    assert_eq!((end.status, end.out_of_memory), (UnitExit::Signal(9), true));
    assert_eq!(end.ran, Duration::from_millis(2500));
    assert!(end.started_at < end.finished_at);
}

#[test]
fn an_exit_code_is_no_signal_and_a_service_that_runs_has_no_end() {
    let ended = |code: i32, at: u64| {
        let mut of = active("active", "exited");
        of.extend([
            ("ExecMainCode", code.into()),
            ("ExecMainStatus", 7_i32.into()),
            ("ExecMainExitTimestampMonotonic", at.into()),
            ("MainPID", 42_u32.into()),
        ]);
        state(&of)
    };
    let end = ended(1, 5).end.unwrap();
    assert_eq!((end.status, end.started_at), (UnitExit::Code(7), None));
    assert_eq!((ended(0, 0).end, ended(0, 0).main_pid), (None, Some(42)));
}

#[test]
fn a_service_that_systemd_was_stopping_before_it_exited_is_told_from_one_that_exits_by_itself() {
    for (inactive_at, exited_at, stopped) in [(0_u64, 7_u64, false), (8, 7, false), (6, 7, true)] {
        let mut of = active("inactive", "dead");
        of.extend([
            ("ExecMainCode", 1_i32.into()),
            ("ExecMainExitTimestampMonotonic", exited_at.into()),
            ("ActiveExitTimestampMonotonic", inactive_at.into()),
        ]);
        let end = state(&of).end.unwrap();
        assert_eq!(end.stopped, stopped, "inactive at {inactive_at}, exited at {exited_at}");
    }
}

#[test]
fn a_service_is_told_to_systemd_with_nothing_that_would_restart_or_expand_it() {
    let service = NewUnit {
        name: "winddown-podu-main-0.service".to_owned(),
        slice: "winddown-podu.slice".to_owned(),
        argv: vec!["/bin/x".to_owned(), "$HOME %n".to_owned()],
        limits: UnitLimits { memory_max: Some(5), cpu_milli: Some(1500), ..UnitLimits::default() },
        keep: Keep::Result,
        stop_timeout: Duration::from_secs(30),
        before: Some("my-agent.service".to_owned()),
        ..NewUnit::default()
    };
    let all: HashMap<&str, Variant<'_>> = properties(service).into_iter().collect();
    let number = |name: &str| match all.get(name) {
        Some(Variant::U64(number)) => Some(*number),
        _ => None,
    };
    assert_eq!((number("MemoryMax"), number("MemorySwapMax")), (Some(5), Some(0)));
    assert_eq!(number("CPUQuotaPerSecUSec"), Some(1_500_000));
    assert_eq!(number("TimeoutStopUSec"), Some(30_000_000));
    assert_eq!(all.get("RemainAfterExit"), Some(&Variant::Bool(true)));
    assert_eq!(all.get("DefaultDependencies"), Some(&Variant::Bool(false)));
    assert_eq!(all["Before"], vec!["my-agent.service".to_owned()].into());
    for absent in ["Restart", "CPUWeight", "TasksMax", "RuntimeMaxUSec", "After", "CollectMode"] {
        assert!(!all.contains_key(absent), "{absent}");
    }
    // systemd makes one `$` of two, and would put the value of a variable in place of one.
    let start = all["ExecStart"].to_string();
    assert!(start.contains("$$HOME %n"), "{start}");
    assert!(!all.contains_key("ExecStartEx"), "systemd 252 forgets it at a reload");
}

#[test]
fn what_a_container_prints_sets_no_level_in_the_journal_and_is_limited_as_any_services() {
    let marks = JournalMarks { identifier: "web-0/main".to_owned(), ..JournalMarks::default() };
    let service =
        NewUnit { error: UnitOutput::Journal, journal: Some(marks), ..NewUnit::default() };
    let all: HashMap<&str, Variant<'_>> = properties(service).into_iter().collect();
    assert_eq!(all["StandardError"], "journal".into());
    assert_eq!(all.get("SyslogLevelPrefix"), Some(&Variant::Bool(false)));
    for limit in ["LogRateLimitIntervalUSec", "LogRateLimitBurst"] {
        assert!(!all.contains_key(limit), "{limit} of journald.conf does not hold");
    }
}

#[test]
fn only_a_service_with_a_memory_limit_has_no_swap() {
    let swap = |memory_max| {
        let limits = UnitLimits { memory_max, ..UnitLimits::default() };
        let all = properties(NewUnit { limits, ..NewUnit::default() });
        assert!(all.iter().all(|(name, _)| *name != "Before"), "a hook would wait for the agent");
        all.into_iter().find_map(|(name, value)| (name == "MemorySwapMax").then_some(value))
    };
    assert_eq!((swap(Some(5)), swap(None)), (Some(Variant::U64(0)), None));
}

#[test]
fn only_what_survives_a_soft_reboot_is_left_alone_by_it_and_every_service_by_a_change_of_the_target()
 {
    let of = |survives| {
        let service = NewUnit { survives, ..NewUnit::default() };
        properties(service).into_iter().collect::<HashMap<&str, Variant<'_>>>()
    };
    assert_eq!(of(true).get("SurviveFinalKillSignal"), Some(&Variant::Bool(true)));
    assert_eq!(of(false).get("SurviveFinalKillSignal"), None);
    for survives in [true, false] {
        assert_eq!(of(survives).get("IgnoreOnIsolate"), Some(&Variant::Bool(true)));
    }
}

proptest! {
    #[test]
    fn any_path_is_read_without_harm(path in ".{0,80}") {
        let _ = unit_of(&path, "");
        let _ = unit_of(&format!("/org/freedesktop/systemd1/unit/{path}"), "");
    }
}
