//! The statuses of all pods, for everything that shows or sends them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;

use super::lame_duck;
use crate::base::lock::Mutex;
use crate::{GateReason, GateReasons, Pod, PodUid, PodUidMap, Rejection, WallTime};

/// The last status of every pod. Cheap to clone; clones share the same data.
///
/// Readers wait on [`changes`](Self::changes), a counter, so that a slow reader sees many changes
/// as one. [`changed_since`](Self::changed_since) returns what changed in between, so that no
/// reader has to go through all pods because of one.
#[derive(Clone, Debug, Default)]
pub struct StatusStore(Arc<StoreShared>);

#[derive(Debug, Default)]
struct StoreShared {
    statuses: Mutex<Statuses>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Statuses {
    pods: PodUidMap<StoredStatus>,
    /// The reasons for which every pod is shown as not ready.
    lame_duck: GateReasons,
    /// The number of the last change of any status.
    change: u64,
    /// The pods by the number of their last change, one entry each.
    by_change: BTreeMap<u64, PodUid>,
    /// The pods that the node has not got yet, with why.
    waiting: PodUidMap<StatusEntry>,
}

/// A pod and its last status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StatusEntry {
    /// The pod.
    pub pod: Pod,
    /// Its status.
    pub status: Arc<api::PodStatus>,
}

#[derive(Debug)]
struct StoredStatus {
    entry: StatusEntry,
    /// The status according to the probes, if a different one is shown.
    probed: Option<Arc<api::PodStatus>>,
    /// The number of its last change, as counted by [`Statuses::change`].
    change: u64,
}

impl StatusStore {
    /// The last status of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        self.0.statuses.lock().pods.get(uid).map(|kept| kept.entry.status.clone())
    }

    /// The last status without the effect of [`lame_duck`](Self::lame_duck), as the basis of the pod's next status.
    pub(crate) fn probed(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        let statuses = self.0.statuses.lock();
        let kept = statuses.pods.get(uid)?;
        Some(kept.probed.as_ref().unwrap_or(&kept.entry.status).clone())
    }

    /// All pods, also those that [wait](Self::waits), in no particular order.
    pub fn all(&self) -> Vec<StatusEntry> {
        let Statuses { pods, waiting, .. } = &*self.0.statuses.lock();
        let waiting = waiting.values().filter(|entry| !pods.contains_key(entry.pod.uid()));
        waiting.chain(pods.values().map(|kept| &kept.entry)).cloned().collect()
    }

    /// Stores why a pod waits that the node has not got yet: only [`all`](Self::all) has it.
    pub fn waits(&self, pod: Pod, status: Arc<api::PodStatus>) {
        let entry = StatusEntry { pod, status };
        self.0.statuses.lock().waiting.insert(entry.pod.uid().clone(), entry);
    }

    /// Removes what [`waits`](Self::waits) stored.
    pub fn waits_no_more(&self, uid: &PodUid) {
        self.0.statuses.lock().waiting.remove(uid);
    }

    /// Stores a status; returns whether it, or the generation of the spec that it is about, differs from the last one.
    pub fn set(&self, pod: Pod, status: api::PodStatus) -> bool {
        let changed = self.0.statuses.lock().set(pod, status);
        if changed {
            self.0.version.send_modify(|v| *v += 1);
        }
        changed
    }

    /// Stores the rejection of a pod: nothing of an earlier status is kept.
    pub fn reject(&self, pod: Pod, rejection: &Rejection) {
        let status = api::PodStatus {
            phase: Some(super::PodPhase::Failed.as_str().to_owned()),
            reason: Some(rejection.reason.to_string()),
            message: Some(rejection.status_message()),
            qos_class: Some(pod.qos().as_str().to_owned()),
            ..api::PodStatus::default()
        };
        self.set(pod, status);
    }

    /// Shows every ready pod as not ready from now on (`true`), including those that become ready
    /// later, or withdraws that for `reason` (`false`): once the last reason is withdrawn,
    /// readiness follows the probes again. `now` is the time of the transitions.
    ///
    /// Watchers of the statuses are notified at once, and once. A pod that is not ready stays as it
    /// is. Takes time proportional to the number of pods; a repeated call changes nothing.
    pub fn lame_duck(&self, reason: GateReason, on: bool, now: WallTime) {
        if self.0.statuses.lock().lame_duck(reason, on, now) {
            self.0.version.send_modify(|v| *v += 1);
        }
    }

    /// Removes a pod, so that the same UID can start again.
    pub fn remove(&self, uid: &PodUid) {
        if self.0.statuses.lock().remove(uid) {
            self.0.version.send_modify(|v| *v += 1);
        }
    }

    /// Removes every pod for which `keep` returns false.
    pub fn retain(&self, keep: impl Fn(&PodUid) -> bool) {
        let fewer = {
            let Statuses { pods, by_change, .. } = &mut *self.0.statuses.lock();
            let gone = pods.extract_if(|uid, _| !keep(uid));
            gone.filter(|(_, kept)| by_change.remove(&kept.change).is_some()).count() > 0
        };
        if fewer {
            self.0.version.send_modify(|v| *v += 1);
        }
    }

    /// The pods whose status changed after `seen`, least recently changed first, and the value of
    /// `seen` for the next call. 0 returns all pods. Removed pods are not included.
    ///
    /// Takes time proportional to the number of changes, not of pods.
    pub fn changed_since(&self, seen: u64) -> (Vec<StatusEntry>, u64) {
        let statuses = self.0.statuses.lock();
        let newer = statuses.by_change.range(seen.saturating_add(1)..);
        let entries = newer.filter_map(|(_, uid)| Some(statuses.pods.get(uid)?.entry.clone()));
        (entries.collect(), statuses.change)
    }

    /// A counter that is incremented with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }
}

// === impl Statuses ===

impl Statuses {
    fn set(&mut self, pod: Pod, mut status: api::PodStatus) -> bool {
        let before = self.pods.get_mut(pod.uid());
        let mut probed = None;
        if !self.lame_duck.is_empty() {
            if lame_duck::is_ready(&status) {
                probed = Some(Arc::new(status.clone()));
            }
            let shown = before.as_ref().map(|kept| &*kept.entry.status);
            lame_duck::unready(&mut status, shown, None);
        }
        match before {
            Some(kept) => {
                kept.probed = probed;
                let of_other_spec = kept.entry.pod.metadata.generation != pod.metadata.generation;
                kept.entry.pod = pod;
                if *kept.entry.status == status && !of_other_spec {
                    return false;
                }
                kept.entry.status = Arc::new(status);
                kept.moved(&mut self.change, &mut self.by_change);
            }
            None => {
                let uid = pod.uid().clone();
                let entry = StatusEntry { pod, status: Arc::new(status) };
                let mut kept = StoredStatus { entry, probed, change: 0 };
                kept.moved(&mut self.change, &mut self.by_change);
                self.pods.insert(uid, kept);
            }
        }
        true
    }

    fn remove(&mut self, uid: &PodUid) -> bool {
        let removed = self.pods.remove(uid);
        if let Some(kept) = &removed {
            self.by_change.remove(&kept.change);
        }
        removed.is_some()
    }

    fn lame_duck(&mut self, reason: GateReason, on: bool, now: WallTime) -> bool {
        let before = self.lame_duck.is_empty();
        self.lame_duck.set(reason, on);
        if self.lame_duck.is_empty() == before {
            return false;
        }
        let mut changed = false;
        for kept in self.pods.values_mut() {
            let StoredStatus { entry, probed, .. } = kept;
            if on && lame_duck::is_ready(&entry.status) {
                *probed = Some(entry.status.clone());
                let shown = Arc::make_mut(&mut entry.status);
                lame_duck::unready(shown, None, Some(now));
            } else if let (false, Some(mut said)) = (on, probed.take()) {
                lame_duck::restore(Arc::make_mut(&mut said), &entry.status, now);
                entry.status = said;
            } else {
                continue;
            }
            kept.moved(&mut self.change, &mut self.by_change);
            changed = true;
        }
        changed
    }
}

// === impl StoredStatus ===

impl StoredStatus {
    /// Records that the shown status has just changed.
    fn moved(&mut self, last: &mut u64, by_change: &mut BTreeMap<u64, PodUid>) {
        by_change.remove(&self.change);
        *last += 1;
        self.change = *last;
        by_change.insert(self.change, self.entry.pod.uid().clone());
    }
}
