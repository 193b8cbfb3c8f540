use std::sync::Arc;

use super::*;
use winddown_shared::PluginName;

const MINE: PluginName = PluginName::new("mine");
const THEIRS: PluginName = PluginName::new("theirs");

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn label(uid: &str) -> PodRef {
    PodRef { namespace: "default".into(), name: "web".into(), uid: PodUid::new(uid) }
}

fn asked(uid: &str, by: KillReason) -> Event {
    let grace = Duration::from_secs(30);
    Event::KillRequested { pod: label(uid), is_static: true, by, grace, status: None }
}

fn to(seconds: u64, node_waits: bool) -> StopChange {
    let mut change = StopChange::default();
    (change.grace, change.node_waits) = (secs(seconds), node_waits);
    change
}

fn stopped(uid: &str) -> Event {
    let (took, forced) = (Duration::ZERO, Vec::new());
    Event::PodStopped { pod: label(uid), by: None, took, forced, remark: None }
}

fn open(state: &Path, boot: &str, at: u64) -> (KeptKills, PodUidMap<EarlierKill>) {
    let clock = BootClock::new(move || Duration::from_secs(at));
    KeptKills::open(
        state.join("kills"),
        boot,
        clock,
        &[RegisteredPlugin { name: MINE, metrics: Vec::new() }],
    )
}

#[test]
fn the_next_agent_of_this_boot_finds_what_has_not_ended_with_the_rest_of_its_grace() {
    let state = tempfile::tempdir().unwrap();
    let (kept, found) = open(state.path(), "boot", 100);
    assert!(found.is_empty());
    kept.record(&asked("a", KillReason::Eviction));
    kept.record(&asked("b", KillReason::Plugin(MINE)));
    kept.record(&asked("left", KillReason::Removed));
    kept.record(&asked("ended", KillReason::Operator));
    kept.record(&stopped("ended"));

    let (kept, found) = open(state.path(), "boot", 112);
    assert_eq!(found.len(), 3);
    assert_eq!(found[&PodUid::new("left")].request.reason, KillReason::Removed);
    let a = &found[&PodUid::new("a")];
    assert_eq!((a.request.reason, a.request.evict), (KillReason::Eviction, true));
    assert_eq!(a.request_at(secs(112)).grace, Some(secs(18)));
    assert_eq!(found[&PodUid::new("b")].request.reason, KillReason::Plugin(MINE));
    // It ended while no agent ran, and is admitted again.
    kept.record(&Event::PodAdmitted { pod: label("a") });
    let (_, found) = open(state.path(), "boot", 500);
    assert_eq!(found[&PodUid::new("b")].request_at(secs(500)).grace, Some(secs(0)));
    assert_eq!(found.len(), 2);
}

#[test]
fn what_must_not_start_yet_is_kept_until_it_is_admitted_and_its_end_does_not_move() {
    let state = tempfile::tempdir().unwrap();
    let (kept, _) = open(state.path(), "boot", 100);
    for (uid, by) in [("a", KillReason::Eviction), ("b", KillReason::Preemption)] {
        kept.record(&asked(uid, by));
        kept.record(&stopped(uid));
    }
    let (kept, found) = open(state.path(), "boot", 105);
    assert_eq!(found.keys().collect::<Vec<_>>(), [&PodUid::new("a")]);
    assert!(found[&PodUid::new("a")].has_terminated, "the earlier agent has logged it");
    // The successor asks again, with a grace period that it has rounded up.
    kept.record(&asked("a", KillReason::Eviction));
    let (kept, found) = open(state.path(), "boot", 110);
    assert_eq!(found[&PodUid::new("a")].until, secs(130));
    kept.record(&Event::PodAdmitted { pod: label("a") });
    assert_eq!(open(state.path(), "boot", 115).1.len(), 0);
}

#[test]
fn a_shorter_grace_is_kept_and_no_other_request_writes_anything() {
    let state = tempfile::tempdir().unwrap();
    let (kept, _) = open(state.path(), "boot", 100);
    kept.record(&asked("a", KillReason::Operator));
    let evicted = StatusOverride::failed("Evicted", "", None);
    let mut change = to(60, true);
    (change.status, change.evict) = (Some(evicted.clone()), true);
    kept.change(&label("a"), &change);
    kept.change(&label("a"), &to(10, false));
    let (_, found) = open(state.path(), "boot", 104);
    let a = &found[&PodUid::new("a")];
    assert_eq!((a.request.reason, a.until), (KillReason::Operator, secs(110)));
    assert_eq!((&a.request.status, a.request.evict), (&Some(evicted), true));

    let file = state.path().join("kills/a.json");
    std::fs::remove_file(&file).unwrap();
    for seconds in [10, 11] {
        kept.change(&label("a"), &to(seconds, true));
        assert!(!file.exists(), "{seconds}");
    }
    kept.record(&stopped("a"));
    for uid in ["a", "unknown"] {
        kept.change(&label(uid), &to(1, true));
    }
    assert_eq!(std::fs::read_dir(state.path().join("kills")).unwrap().count(), 0);
}

/// As tokio's clock does, which the agent that asked goes by.
#[test]
#[allow(clippy::disallowed_methods, reason = "it reads what it wrote")]
fn the_rest_of_a_grace_stands_still_while_the_machine_is_suspended() {
    let state = tempfile::tempdir().unwrap();
    let at = |boot, suspended| {
        let clock = BootClock::new(move || secs(boot)).with_suspended(move || secs(suspended));
        KeptKills::open(state.path().join("kills"), "boot", clock, &[])
    };
    let (kept, _) = at(150, 50);
    kept.record(&asked("a", KillReason::Operator));
    let left = |found: PodUidMap<EarlierKill>, now| {
        found[&PodUid::new("a")].request_at(secs(now)).grace.unwrap()
    };
    let (kept, found) = at(7360, 7250);
    assert_eq!(left(found, 7360), secs(20));
    // Its requests are compared with what is left, too.
    kept.change(&label("a"), &to(25, false));
    assert_eq!(left(at(7361, 7250).1, 7361), secs(19));
    kept.change(&label("a"), &to(5, false));
    assert_eq!(left(at(8361, 8250).1, 8361), secs(4));

    let file = state.path().join("kills/a.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("suspendedMs", "ofALaterVersion")).unwrap();
    assert_eq!(left(at(8361, 9250).1, 7361), secs(4), "of an older version");
}

#[test]
fn the_next_agent_knows_for_which_pods_the_node_waits_whatever_they_were_first_requested_for() {
    let state = tempfile::tempdir().unwrap();
    let (kept, _) = open(state.path(), "boot", 100);
    for uid in ["later", "never"] {
        kept.record(&asked(uid, KillReason::Operator));
        kept.change(&label(uid), &to(600, uid == "later"));
    }
    kept.record(&asked("at-once", KillReason::Drain));
    let (kept, found) = open(state.path(), "boot", 101);
    for (uid, waits) in [("later", true), ("never", false), ("at-once", true)] {
        let kill = &found[&PodUid::new(uid)];
        assert_eq!((kill.node_waits, kill.until), (waits, secs(130)), "{uid}");
    }
    // It asks again, for the first reason.
    kept.record(&asked("later", KillReason::Operator));
    assert!(open(state.path(), "boot", 102).1[&PodUid::new("later")].node_waits);
}

#[test]
fn pods_of_a_shutdown_are_kept_once_it_is_called_off_or_their_grace_is_shorter() {
    let state = tempfile::tempdir().unwrap();
    let (kept, _) = open(state.path(), "boot", 100);
    kept.record(&asked("shorter", KillReason::Shutdown));
    kept.change(&label("shorter"), &to(5, true));
    for uid in ["late", "ended"] {
        kept.record(&asked(uid, KillReason::Shutdown));
    }
    kept.record(&stopped("ended"));
    let (_, found) = open(state.path(), "boot", 101);
    assert_eq!(found.keys().collect::<Vec<_>>(), [&PodUid::new("shorter")]);
    assert_eq!(found[&PodUid::new("shorter")].until, secs(105));

    kept.record(&Event::ShutdownCancelled { spared_groups: 0 });
    kept.record(&Event::PodAdmitted { pod: label("ended") });
    let (next, found) = open(state.path(), "boot", 102);
    assert_eq!(found.len(), 2);
    let late = &found[&PodUid::new("late")];
    assert_eq!((late.request.reason, late.until), (KillReason::Shutdown, secs(130)));
    // The next agent asks again.
    next.record(&asked("late", KillReason::Shutdown));
    assert_eq!(open(state.path(), "boot", 110).1[&PodUid::new("late")].until, secs(130));
    next.record(&stopped("late"));
    next.record(&Event::PodAdmitted { pod: label("late") });
    assert_eq!(open(state.path(), "boot", 111).1.len(), 1);
}

/// After a soft-reboot, or the restart of a container.
#[test]
fn what_was_asked_before_the_system_was_started_again_in_this_boot_is_removed() {
    let state = tempfile::tempdir().unwrap();
    let (kept, _) = open(state.path(), "boot", 100);
    kept.record(&asked("before", KillReason::Plugin(MINE)));
    let (kept, _) = open(state.path(), "boot", 130);
    kept.record(&asked("after", KillReason::Plugin(MINE)));
    let clock = BootClock::new(|| secs(140)).with_system_start(secs(120));
    let mine = RegisteredPlugin { name: MINE, metrics: Vec::new() };
    let (_, found) = KeptKills::open(state.path().join("kills"), "boot", clock, &[mine]);
    assert_eq!(found.keys().collect::<Vec<_>>(), [&PodUid::new("after")]);
    assert_eq!(std::fs::read_dir(state.path().join("kills")).unwrap().count(), 1);
}

#[test]
fn what_is_of_another_boot_or_plug_in_is_removed_and_what_is_unreadable_set_aside() {
    let state = tempfile::tempdir().unwrap();
    let (kept, _) = open(state.path(), "boot", 100);
    for (uid, by) in [
        ("a", KillReason::Preemption),
        ("b", KillReason::Plugin(THEIRS)),
        // A shutdown has a record of its own, and the last UID is not a file name.
        ("c", KillReason::Shutdown),
        ("../f", KillReason::Operator),
    ] {
        kept.record(&asked(uid, by));
    }
    let files = || std::fs::read_dir(state.path().join("kills")).unwrap().count();
    assert_eq!((files(), std::fs::read_dir(state.path()).unwrap().count()), (2, 1));
    std::fs::write(state.path().join("kills/broken.json"), "{").unwrap();
    let (_, found) = open(state.path(), "boot", 100);
    assert_eq!((found.len(), files()), (1, 2));
    let (_, found) = open(state.path(), "another", 1);
    assert_eq!((found.len(), files()), (0, 1));
    assert!(state.path().join("kills/broken.bad").exists());
}

/// What is logged when the records in `directory` are read.
fn logged(directory: &Path) -> String {
    let lines = Arc::<Mutex<Vec<u8>>>::default();
    let log = Arc::clone(&lines);
    let subscriber = tracing_subscriber::fmt().with_writer(move || Log(Arc::clone(&log)));
    tracing::subscriber::with_default(subscriber.finish(), || drop(records(directory)));
    let lines = lines.lock().clone();
    String::from_utf8(lines).unwrap()
}

struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_directory_that_is_not_in_memory_or_cannot_be_read_is_said_so_at_the_start() {
    let on_a_disk = "the state directory is on a disk";
    let unreadable = "cannot read which pods an earlier agent asked to terminate";
    for (directory, said) in [
        ("/dev/shm/winddown-nowhere", [false, false]),
        ("/proc/winddown-nowhere", [true, false]),
        ("/proc/self/status", [true, true]),
    ] {
        let log = logged(Path::new(directory));
        assert_eq!(
            [on_a_disk, unreadable].map(|line| log.contains(line)),
            said,
            "{directory}: {log}"
        );
    }
}
