//! Records which pods were requested to stop, for the next agent of this boot.
//!
//! Without these records, an agent that takes over could not tell that a pod was terminating: a pod that was preempted for
//! a critical one would be started again, and another one preempted in its place. A shutdown has a record of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_host::machine::is_in_memory;
use winddown_shared::{
    BootClock, EarlierKill, Event, KillReason, KillRequest, Mutex, PodRef, PodUid, PodUidMap,
    Recorder, RestartCondition, StatusOverride, StopChange, error_chain, millis,
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
    /// Whether a later request evicts it; absent in files of older versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    evict: bool,
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
            let problem = "cannot read the record of a terminating pod, which may start again";
            let kept = kept_file::read_if_there::<KeptKill>(&path, problem);
            let Some(mut kept) = kept else { continue };
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
            evict: false,
            has_terminated: false,
        };
        {
            let mut ending = self.ending.lock();
            // Requested again after a restart: the end does not move.
            if let Some(before) = ending.get_mut(&pod.uid) {
                before.go_on(&self.clock);
                kept.until_boot_ms = before.until_boot_ms;
                kept.node_waits |= before.node_waits;
                kept.evict |= before.evict;
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
        let is_new = (node_waits && !kept.node_waits) || (change.evict && !kept.evict);
        if until >= kept.until_boot_ms && !is_new && change.status.is_none() {
            return;
        }
        kept.status = change.status.clone().or(kept.status.take());
        kept.until_boot_ms = until.min(kept.until_boot_ms);
        kept.node_waits |= node_waits;
        kept.evict |= change.evict;
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
        let needed = matches!(
            by.restart_condition(),
            RestartCondition::RoomIsFree | RestartCondition::PressureEnds
        );
        let (evict, status) = (needed || self.evict, self.status.clone());
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
mod tests;
