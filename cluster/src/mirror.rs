//! Mirror pods, which show static pods in the API.
//!
//! A static pod comes from a manifest on this node, so the API server does not know it. Its mirror
//! pod represents it there: the same spec, the manifest's hash, and the status of the static pod. A
//! mirror is created again when it is deleted or the manifest changes, and is deleted when the
//! static pod is gone. Nothing that happens to a mirror stops the static pod.
//!
//! [`plan`] decides, [`MirrorDriver`] carries it out, and [`Mirrors`] is the interface to the rest of the agent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::{Notify, watch};
use winddown_shared::{Mutex, status::PodPhase};
use winddown_shared::{Pod, PodRef, PodUid, WallClock};

use crate::pods::{MirrorSide, StatusSide};
use crate::status::Outbox;

mod driver;
mod object;
mod plan;
mod references;
#[cfg(test)]
mod tests;

pub use driver::{IsEnding, MirrorDriver};
pub use object::mirror_of;
pub use plan::{MirrorAction, ObservedMirror, plan};
pub use references::api_reference;

/// The known mirror pods in the API. Cheap to clone; clones share one state. No method blocks.
#[derive(Clone, Debug)]
pub struct Mirrors(Arc<MirrorShared>);

#[derive(Debug)]
struct MirrorShared {
    known: Mutex<KnownMirrors>,
    /// Notified when there may be something to do.
    changed: Notify,
    /// Incremented when a static pod gets a mirror, or a different one.
    names: watch::Sender<u64>,
    outbox: Outbox,
}

#[derive(Debug, Default)]
struct KnownMirrors {
    /// By namespace and name, which a mirror shares with its static pod.
    seen: HashMap<Name, ObservedMirror>,
    /// The names by the mirrors' UIDs.
    by_uid: HashMap<PodUid, Name>,
    /// `metadata.uid` of the Node, without which no mirror can be created.
    node_uid: Option<Arc<str>>,
    /// Whether all mirrors of this node are known.
    complete: bool,
    /// The static pods whose status is not terminal.
    living: HashSet<PodUid>,
    /// The last deleted mirrors, so that a late answer does not restore them.
    gone: VecDeque<PodUid>,
}

/// How many deleted mirrors are remembered.
const MOST_GONE: usize = 64;

/// Namespace and name.
type Name = (Arc<str>, Arc<str>);

fn name_of(label: &PodRef) -> Name {
    (label.namespace.clone(), label.name.clone())
}

// === impl Mirrors ===

impl Mirrors {
    /// Creates the mirrors of the node with this name, and their driver. Statuses go through `outbox`.
    pub fn new(
        node_name: impl Into<Arc<str>>,
        outbox: Outbox,
        wall: WallClock,
    ) -> (Self, MirrorDriver) {
        let shared = MirrorShared {
            known: Mutex::default(),
            changed: Notify::new(),
            names: watch::Sender::new(0),
            outbox,
        };
        let mirrors = Self(Arc::new(shared));
        (mirrors.clone(), MirrorDriver::new(mirrors, node_name.into(), wall))
    }

    /// Sets the Node's UID, which mirrors name as their owner; `None` while the node is not registered.
    pub fn set_node_uid(&self, uid: Option<Arc<str>>) {
        let changed = {
            let mut known = self.0.known.lock();
            let changed = known.node_uid != uid;
            known.node_uid = uid;
            changed
        };
        if changed {
            self.0.changed.notify_one();
        }
    }

    /// The mirror of a static pod, if the API has one.
    pub fn of(&self, static_pod: &Pod) -> Option<PodRef> {
        self.0.known.lock().of(static_pod).map(|seen| seen.pod.clone())
    }

    /// Incremented when a static pod gets a mirror, so that its status must be sent again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.names.subscribe()
    }

    /// How many mirror pods the API has.
    pub fn count(&self) -> usize {
        self.0.known.lock().seen.len()
    }

    /// Records the phase of the static pod. A terminated mirror cannot show that its pod runs
    /// again, so it is replaced.
    pub fn says(&self, static_pod: &Pod, phase: PodPhase) {
        if phase.is_terminal() {
            self.0.known.lock().living.remove(static_pod.uid());
        } else if self.0.known.lock().living.insert(static_pod.uid().clone()) {
            self.0.changed.notify_one();
        }
    }

    fn see(&self, pod: &Pod) {
        let Some(seen) = ObservedMirror::new(pod) else { return };
        let new_name = {
            let mut known = self.0.known.lock();
            let name = name_of(&seen.pod);
            let outdated = known.seen.get(&name).is_some_and(|newer| newer.is_newer_than(&seen));
            if outdated || known.gone.contains(&seen.pod.uid) {
                return;
            }
            known.by_uid.insert(seen.pod.uid.clone(), name.clone());
            let former = known.seen.insert(name, seen.clone());
            if let Some(former) = former.as_ref().filter(|former| former.pod.uid != seen.pod.uid) {
                known.by_uid.remove(&former.pod.uid);
            }
            former.is_none_or(|former| former.pod != seen.pod || former.hash != seen.hash)
        };
        if new_name {
            self.0.names.send_modify(|n| *n += 1);
        }
        self.0.changed.notify_one();
    }

    fn forget(&self, uid: &PodUid) {
        let forgotten = self.0.known.lock().forget(uid);
        if forgotten {
            self.0.outbox.gone(uid);
            self.0.changed.notify_one();
        }
    }
}

impl MirrorSide for Mirrors {
    fn api_saw(&self, pod: &Pod) {
        self.0.outbox.api_saw(pod);
        self.see(pod);
    }

    fn gone(&self, uid: &PodUid) {
        self.0.known.lock().note_gone(uid);
        self.forget(uid);
    }

    fn relisted(&self, uids: &[PodUid]) {
        let gone: Vec<PodUid> = {
            let mut known = self.0.known.lock();
            known.complete = true;
            let listed: HashSet<&PodUid> = uids.iter().collect();
            // A backup of the server's data that was restored has it again.
            known.gone.retain(|uid| !listed.contains(uid));
            known.by_uid.keys().filter(|uid| !listed.contains(uid)).cloned().collect()
        };
        // Not noted as gone: a list that was requested before a mirror was created does not have it.
        for uid in &gone {
            self.forget(uid);
        }
        self.0.changed.notify_one();
    }
}

// === impl KnownMirrors ===

impl KnownMirrors {
    fn note_gone(&mut self, uid: &PodUid) {
        if !self.gone.contains(uid) {
            self.gone.push_back(uid.clone());
            if self.gone.len() > MOST_GONE {
                self.gone.pop_front();
            }
        }
    }

    fn forget(&mut self, uid: &PodUid) -> bool {
        let Some(name) = self.by_uid.remove(uid) else { return false };
        if self.seen.get(&name).is_some_and(|seen| seen.pod.uid == *uid) {
            self.seen.remove(&name);
        }
        true
    }

    /// The mirror of a static pod. Others may give a pod any annotations, so that the name counts as well.
    fn of(&self, static_pod: &Pod) -> Option<&ObservedMirror> {
        let seen = self.seen.get(&name_of(static_pod.pod_ref()));
        seen.filter(|seen| seen.shows(static_pod))
    }
}
