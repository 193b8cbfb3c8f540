//! Records which pods were requested to stop, for the next agent of this boot.
//!
//! Without these records, an agent that takes over could not tell that a pod was terminating: a pod that was preempted for
//! a critical one would be started again, and another one preempted in its place. A shutdown has a record of its own,
//! which is closed when it is called off. Its pods that still terminate are recorded here from then on.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_host::machine::is_in_memory;
use winddown_shared::{
    BootClock, EarlierKill, Event, KillReason, KillRequest, Mutex, PodRef, PodUid, PodUidMap,
    Recorder, RestartCondition, StatusOverride, StopChange, error_chain,
};

use crate::kept_file;
use crate::registered_plugin::{OWN_REASONS, RegisteredPlugin};

/// Keeps a file for each pod that is terminating, and for each that has terminated and must not start yet
/// ([`KillReason::restart_condition`]). The files survive the agent but not the machine, so no write waits for a disk.
/// A pod that a shutdown terminates has one only if the shutdown's own record does not say all of it: once that was called
/// off, or the pod was given a shorter grace period.
pub(crate) struct KeptKills {
    directory: PathBuf,
    boot_id: String,
    clock: BootClock,
    /// The contents of the files. Not locked during a write.
    ending: Mutex<PodUidMap<KeptKill>>,
}

/// The contents of a file.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptKill {
    uid: PodUid,
    boot_id: String,
    /// When it was requested, in milliseconds since the boot; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked_boot_ms: Option<u64>,
    /// The pod, if it has no file yet.
    #[serde(skip)]
    unwritten: Option<PodRef>,
    /// Short name of the requester, see [`KillReason::as_str`].
    by: String,
    /// The end of the grace period, in milliseconds since the boot, unless the machine is suspended meanwhile.
    until_boot_ms: u64,
    /// For how many milliseconds the machine had been suspended by then; absent in files of older versions. The timers of
    /// the agent that asked stand still meanwhile, and so does the rest of the grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suspended_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<StatusOverride>,
    /// Whether the file stays when the pod has terminated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_kept_after_end: bool,
    /// Whether the node waits for the pod's end, for this or a later request; absent in files of older versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    node_waits: bool,
    /// Whether the pod has terminated: neither that nor the request is news to the next agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_terminated: bool,
}

// === impl KeptKills ===

impl KeptKills {
    /// Where they are in the node's directory for what may be lost with the boot.
    pub(crate) fn directory(volatile: &Path) -> PathBuf {
        volatile.join("kills")
    }

    /// Reads the records that an earlier agent of this boot left in `directory`, and deletes those of other boots, or from
    /// before the system was started again in it.
    /// `plugins` are the third-party plug-ins of this agent: a request of any other plug-in is dropped. Blocking.
    pub(crate) fn open(
        directory: PathBuf,
        boot_id: &str,
        clock: BootClock,
        plugins: &[RegisteredPlugin],
    ) -> (Self, PodUidMap<EarlierKill>) {
        let mut found = PodUidMap::default();
        let mut ending = PodUidMap::default();
        for path in records(&directory) {
            let mut kept = match kept_file::read::<KeptKill>(&path, kept_file::MOST_BYTES) {
                Ok(kept) => kept,
                Err(error) => {
                    tracing::warn!(
                        file = %path.display(), error = error_chain(&error),
                        "cannot read the record of a terminating pod, which may start again; setting it aside"
                    );
                    kept_file::set_aside(&path);
                    continue;
                }
            };
            let is_ours = kept.is_of(boot_id, clock.system_start());
            match reason(&kept.by, plugins).filter(|_| is_ours) {
                Some(by) => {
                    kept.go_on(&clock);
                    found.insert(kept.uid.clone(), kept.kill(by));
                    ending.insert(kept.uid.clone(), kept);
                }
                None => {
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
        let kept =
            Self { directory, boot_id: boot_id.to_owned(), clock, ending: Mutex::new(ending) };
        (kept, found)
    }

    /// The pods whose termination was requested for this reason.
    pub(crate) fn requested_by(&self, reason: KillReason) -> Vec<PodUid> {
        let ending = self.ending.lock();
        let of_reason = ending.values().filter(|kept| kept.by == reason.as_str());
        of_reason.map(|kept| kept.uid.clone()).collect()
    }

    fn keep(
        &self,
        pod: &PodRef,
        is_static: bool,
        by: KillReason,
        grace: Duration,
        status: Option<StatusOverride>,
    ) {
        let mut kept = KeptKill {
            uid: pod.uid.clone(),
            boot_id: self.boot_id.clone(),
            asked_boot_ms: Some(self.boot_ms_after(Duration::ZERO)),
            unwritten: (by == KillReason::Shutdown).then(|| pod.clone()),
            by: by.as_str().to_owned(),
            until_boot_ms: self.boot_ms_after(grace),
            suspended_ms: Some(millis(self.clock.suspended())),
            status,
            is_kept_after_end: is_static && by.restart_condition().is_kept_after_end(),
            node_waits: by.node_waits(),
            has_terminated: false,
        };
        {
            let mut ending = self.ending.lock();
            // Requested again after a restart: the end does not move.
            if let Some(before) = ending.get_mut(&pod.uid) {
                before.go_on(&self.clock);
                kept.until_boot_ms = before.until_boot_ms;
                kept.node_waits |= before.node_waits;
                kept.unwritten = kept.unwritten.filter(|_| before.unwritten.is_some());
            }
            ending.insert(pod.uid.clone(), kept);
        }
        self.write(pod);
    }

    /// Writes the files of pods that a shutdown terminates: its own record is about to be closed.
    fn write_all(&self) {
        let mut ending = self.ending.lock();
        let unwritten: Vec<_> =
            ending.values_mut().filter_map(|kept| kept.unwritten.take()).collect();
        drop(ending);
        unwritten.iter().for_each(|pod| self.write(pod));
    }

    fn has_stopped(&self, pod: &PodRef) {
        let outlasts = match self.ending.lock().get_mut(&pod.uid) {
            None => return,
            Some(kept) => {
                kept.has_terminated = true;
                kept.is_kept_after_end
            }
        };
        match outlasts {
            true => self.write(pod),
            false => self.forget(&pod.uid),
        }
    }

    /// Forgets the pods that can start no more.
    pub(crate) fn forget_all(&self, is_over: impl Fn(&PodUid) -> bool) {
        let kept: Vec<PodUid> = self.ending.lock().keys().cloned().collect();
        kept.iter().filter(|uid| is_over(uid)).for_each(|uid| self.forget(uid));
    }

    fn forget(&self, uid: &PodUid) {
        if self.ending.lock().remove(uid).is_some() {
            let file = kept_file::path(&self.directory, uid);
            // If this fails, the next agent deletes the file when the pod stops or is admitted, or in another boot.
            let _ = file.and_then(std::fs::remove_file);
        }
    }

    /// Keeps what a further request has changed. A grace period that ends no sooner than before changes nothing. Does
    /// nothing if the kill is not recorded yet.
    pub(crate) fn change(&self, pod: &PodRef, change: &StopChange) {
        let (until, node_waits) = (self.boot_ms_after(change.grace), change.node_waits);
        let mut ending = self.ending.lock();
        let Some(kept) = ending.get_mut(&pod.uid) else { return };
        kept.go_on(&self.clock);
        let is_known = until >= kept.until_boot_ms && (!node_waits || kept.node_waits);
        if is_known && change.status.is_none() {
            return;
        }
        kept.status = change.status.clone().or(kept.status.take());
        kept.until_boot_ms = until.min(kept.until_boot_ms);
        kept.node_waits |= node_waits;
        kept.unwritten = None;
        drop(ending);
        self.write(pod);
    }

    /// Writes the pod's file. One of a shutdown that goes on has none.
    fn write(&self, pod: &PodRef) {
        if self.ending.lock().get(&pod.uid).is_some_and(|kept| kept.unwritten.is_some()) {
            return;
        }
        if let Err(error) = self.try_write(&pod.uid) {
            tracing::warn!(
                %pod, error = error_chain(&error),
                "cannot record in {} that the pod is terminating: an agent restarted meanwhile would \
                 let it keep running or give it more time",
                self.directory.display()
            );
        }
    }

    /// Writes until the file is up to date: another request may shorten the grace period during a write, and the pod
    /// may stop.
    fn try_write(&self, uid: &PodUid) -> io::Result<()> {
        let file = kept_file::path(&self.directory, uid)?;
        let mut written = None;
        loop {
            let kept = self.ending.lock().get(uid).cloned();
            let Some(kept) = kept else {
                let _ = std::fs::remove_file(&file);
                return Ok(());
            };
            if written.as_ref() == Some(&kept) {
                return Ok(());
            }
            kept_file::write(&file, &kept)?;
            written = Some(kept);
        }
    }

    fn boot_ms_after(&self, grace: Duration) -> u64 {
        millis(self.clock.now().saturating_add(grace))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Recorder for KeptKills {
    fn record(&self, event: &Event) {
        match event {
            Event::KillRequested { pod, is_static, by, grace, status } => {
                self.keep(pod, *is_static, *by, *grace, status.clone());
            }
            Event::PodStopped { pod, .. } => self.has_stopped(pod),
            // It may have ended while no agent ran.
            Event::PodAdmitted { pod } => self.forget(&pod.uid),
            Event::ShutdownCancelled { .. } => self.write_all(),
            _ => {}
        }
    }
}

// === impl KeptKill ===

impl KeptKill {
    /// Whether it is of this boot, and of the system that was started in it then.
    fn is_of(&self, boot_id: &str, system_start: Duration) -> bool {
        let asked = self.asked_boot_ms.map(Duration::from_millis);
        self.boot_id == boot_id && asked.is_none_or(|asked| asked >= system_start)
    }

    /// Moves the end by the time for which the machine was suspended since it was last set.
    fn go_on(&mut self, clock: &BootClock) {
        let now = millis(clock.suspended());
        let since = self.suspended_ms.map_or(0, |then| now.saturating_sub(then));
        self.until_boot_ms = self.until_boot_ms.saturating_add(since);
        self.suspended_ms = self.suspended_ms.and(Some(now));
    }

    fn kill(&self, by: KillReason) -> EarlierKill {
        // The node needed what the pod had.
        let evict = matches!(
            by.restart_condition(),
            RestartCondition::RoomIsFree | RestartCondition::PressureEnds
        );
        let status = self.status.clone();
        let request = KillRequest::new(by).with_evict(evict).with_status(status);
        let mut kill = EarlierKill::new(request, Duration::from_millis(self.until_boot_ms));
        kill.has_terminated = self.has_terminated;
        kill.node_waits = self.node_waits;
        kill
    }
}

/// The files in `directory`, which should be in memory.
fn records(directory: &Path) -> Vec<PathBuf> {
    let shown = directory.display();
    if !is_in_memory(directory) {
        tracing::warn!(
            directory = %shown,
            "the state directory is on a disk: if that hangs, it holds up a shutdown; use one below /run"
        );
    }
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(
                directory = %shown, error = error_chain(&error),
                "cannot read which pods an earlier agent asked to terminate: some may start again"
            );
            return Vec::new();
        }
    };
    let files = entries.flatten().map(|entry| entry.path());
    files.filter(|path| kept_file::has_ending(path, kept_file::ENDING)).collect()
}

fn reason(word: &str, plugins: &[RegisteredPlugin]) -> Option<KillReason> {
    let theirs = plugins.iter().map(|plugin| KillReason::Plugin(plugin.name));
    OWN_REASONS.into_iter().chain(theirs).find(|reason| reason.as_str() == word)
}

#[cfg(test)]
mod tests {
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
        Event::PodStopped { pod: label(uid), took, forced, remark: None }
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
        kept.record(&asked("a", KillReason::Preemption));
        let evicted = StatusOverride::failed("Evicted", "", None);
        let mut change = to(60, false);
        change.status = Some(evicted.clone());
        kept.change(&label("a"), &change);
        kept.change(&label("a"), &to(10, false));
        let (_, found) = open(state.path(), "boot", 104);
        let a = &found[&PodUid::new("a")];
        assert_eq!((a.request.reason, a.until), (KillReason::Preemption, secs(110)));
        assert_eq!(a.request.status, Some(evicted));

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
}
