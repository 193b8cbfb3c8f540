//! The statuses of all pods, for everyone who shows or sends them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;

use crate::{Pod, PodUid, PodUidMap, Rejection};

/// The last status of every pod. Cheap to clone; clones share one memory.
///
/// Readers wait on [`changes`](Self::changes): a counter, so that a slow reader sees one change
/// where there were many.
#[derive(Clone, Debug)]
pub struct StatusStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entries: Mutex<PodUidMap<StatusEntry>>,
    version: watch::Sender<u64>,
}

/// One pod and what was last said about it.
#[derive(Clone, Debug)]
pub struct StatusEntry {
    /// The pod.
    pub pod: Pod,
    /// Its status.
    pub status: Arc<api::PodStatus>,
}

impl Default for StatusStore {
    fn default() -> Self {
        Self(Arc::new(Inner { entries: Mutex::default(), version: watch::Sender::new(0) }))
    }
}

impl StatusStore {
    /// What was last said about a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        self.entries().get(uid).map(|e| e.status.clone())
    }

    /// All pods, in no order.
    pub fn all(&self) -> Vec<StatusEntry> {
        self.entries().values().cloned().collect()
    }

    /// Remembers a status; says whether it differs from the last one.
    pub fn set(&self, pod: Pod, status: api::PodStatus) -> bool {
        let changed = {
            let mut entries = self.entries();
            match entries.get(pod.uid()) {
                Some(entry) if *entry.status == status => false,
                _ => {
                    let uid = pod.uid().clone();
                    entries.insert(uid, StatusEntry { pod, status: Arc::new(status) });
                    true
                }
            }
        };
        if changed {
            self.0.version.send_modify(|v| *v += 1);
        }
        changed
    }

    /// Remembers that a pod was refused: nothing of an earlier status is kept.
    pub fn reject(&self, pod: Pod, rejection: &Rejection) {
        let status = api::PodStatus {
            phase: Some(super::Phase::Failed.as_str().to_owned()),
            reason: Some(rejection.reason.to_string()),
            message: Some(rejection.status_message()),
            qos_class: Some(pod.qos().as_str().to_owned()),
            ..api::PodStatus::default()
        };
        self.set(pod, status);
    }

    /// Forgets a pod, so that the same UID can start anew.
    pub fn remove(&self, uid: &PodUid) {
        if self.entries().remove(uid).is_some() {
            self.0.version.send_modify(|v| *v += 1);
        }
    }

    /// Forgets every pod that `keep` does not name.
    pub fn retain(&self, keep: impl Fn(&PodUid) -> bool) {
        let fewer = {
            let mut entries = self.entries();
            let before = entries.len();
            entries.retain(|uid, _| keep(uid));
            entries.len() < before
        };
        if fewer {
            self.0.version.send_modify(|v| *v += 1);
        }
    }

    /// Goes up with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn entries(&self) -> MutexGuard<'_, PodUidMap<StatusEntry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
