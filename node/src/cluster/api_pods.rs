//! The pods that the API server wants on this node, as state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;
use winddown_shared::status::Phase;
use winddown_shared::{DesiredPods, Pod, PodUid, PodUidMap, WallTime};

use super::kept::KeptPods;
use crate::links::PodSource;

/// The pods that were handed to this node and not yet forgotten. Cheap to clone; clones are one.
#[derive(Clone, Debug)]
pub(crate) struct ApiPods(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pods: Mutex<PodUidMap<Given>>,
    version: watch::Sender<u64>,
    /// No pod that runs here and came from the API is missing.
    complete: AtomicBool,
    kept: KeptPods,
}

/// One pod as it was handed over.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// Literal, as it runs here.
    pub(crate) pod: Pod,
    /// What was said last of it, once nothing of it runs any more.
    pub(crate) last: Option<Arc<api::PodStatus>>,
}

// === impl ApiPods ===

impl ApiPods {
    /// The pods that an earlier agent of this boot was handed. Reads a directory, blocking.
    pub(crate) fn open(kept: KeptPods) -> Self {
        let found = kept.load();
        let pods = found.pods.into_iter().map(|pod| (pod.uid().clone(), Given::of_before(pod)));
        Self(Arc::new(Shared {
            pods: Mutex::new(pods.collect()),
            version: watch::Sender::new(0),
            complete: AtomicBool::new(found.complete),
            kept,
        }))
    }

    /// Goes up with every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// All of them, and whether that is all that may run here.
    pub(crate) fn wanted(&self) -> (Vec<Pod>, bool) {
        let pods = self.lock().values().map(|given| given.pod.clone()).collect();
        (pods, self.0.complete.load(Ordering::Relaxed))
    }

    /// The API server was listed, and what it wants was handed over.
    pub(crate) async fn all_known(&self) {
        if !self.0.complete.swap(true, Ordering::Relaxed) {
            self.bump();
            self.0.kept.all_known().await;
        }
    }

    pub(crate) fn get(&self, uid: &PodUid) -> Option<Given> {
        self.lock().get(uid).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Given> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn uids(&self) -> Vec<PodUid> {
        self.lock().keys().cloned().collect()
    }

    /// Takes a pod over, or a change of one. A new one is on disk first: a pod that runs and is not
    /// known after a restart would end. A disk that refuses is no reason not to run it.
    pub(crate) async fn take(&self, pod: Pod) {
        let uid = pod.uid().clone();
        let is_new = self.get(&uid).is_none();
        if is_new {
            let first = pod.clone();
            self.0.kept.keep(move || Some(first)).await;
        }
        {
            let mut pods = self.lock();
            match pods.get_mut(&uid) {
                Some(given) if given.last.is_some() => return,
                // What is ending ends by what was said of its end.
                Some(given) if is_ending(&given.pod) && !is_ending(&pod) => return,
                Some(given) => given.pod = pod,
                None => {
                    pods.insert(uid.clone(), Given { pod, last: None });
                }
            }
        }
        self.bump();
        if !is_new {
            self.put_down(uid).await;
        }
    }

    /// Puts on disk how the pod stands when it is its turn: neither its end nor what came after it is
    /// overwritten by what was said before.
    async fn put_down(&self, uid: PodUid) {
        let all = self.clone();
        self.0.kept.keep(move || Some(all.get(&uid)?.for_the_next())).await;
    }

    /// Has a pod ended within `grace`, or in less time than it was told before. False: it is not known.
    pub(crate) async fn end(&self, uid: &PodUid, grace: Duration, now: WallTime) -> bool {
        {
            let mut pods = self.lock();
            let Some(given) = pods.get_mut(uid) else { return false };
            if given.last.is_some() || !shortens(&given.pod, grace) {
                return true;
            }
            let mut object = given.pod.object().clone();
            object.metadata.deletion_timestamp.get_or_insert(Time(now));
            object.metadata.deletion_grace_period_seconds = Some(seconds(grace));
            // It had a name and a UID before.
            let Ok(ending) = Pod::new(object) else { return false };
            given.pod = ending;
        }
        self.bump();
        self.put_down(uid.clone()).await;
        true
    }

    /// Nothing of the pod runs any more, and `status` is what is left to say. It is not started again,
    /// by this agent or the next.
    pub(crate) async fn ended(&self, uid: &PodUid, status: Arc<api::PodStatus>) {
        {
            let mut pods = self.lock();
            let Some(given) = pods.get_mut(uid).filter(|given| given.last.is_none()) else {
                return;
            };
            given.last = Some(status);
        }
        self.put_down(uid.clone()).await;
    }

    pub(crate) async fn forget(&self, uid: &PodUid) {
        let known = self.lock().remove(uid).is_some();
        if known {
            self.bump();
        }
        self.0.kept.remove(uid).await;
    }

    fn bump(&self) {
        self.0.version.send_modify(|n| *n += 1);
    }

    fn lock(&self) -> MutexGuard<'_, PodUidMap<Given>> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodSource for ApiPods {
    fn wanted(&self) -> DesiredPods {
        let (pods, complete) = Self::wanted(self);
        DesiredPods { pods, complete }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Self::changes(self)
    }

    fn has(&self, uid: &PodUid) -> bool {
        self.get(uid).is_some()
    }
}

// === impl Given ===

impl Given {
    /// One that an earlier agent was handed. With a status it has ended.
    fn of_before(pod: Pod) -> Self {
        let last = pod.status.as_ref().filter(|status| is_terminal(status)).cloned().map(Arc::new);
        Self { pod, last }
    }

    /// The pod as [`of_before`](Self::of_before) reads it: with a status if it has ended.
    fn for_the_next(&self) -> Pod {
        let Some(last) = &self.last else { return self.pod.clone() };
        let mut object = self.pod.object().clone();
        object.status = Some(api::PodStatus::clone(last));
        // It had a name and a UID before.
        Pod::new(object).unwrap_or_else(|_| self.pod.clone())
    }
}

/// Whether a status is one that a pod does not come back from.
pub(crate) fn is_terminal(status: &api::PodStatus) -> bool {
    status.phase.as_deref().and_then(Phase::parse).is_some_and(Phase::is_terminal)
}

/// Whether the pod's deletion is requested.
pub(crate) fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The pod without what only the API server needs: it is kept in memory for as long as it runs.
pub(crate) fn lean(pod: &Pod) -> Pod {
    let mut object = pod.object().clone();
    object.metadata.managed_fields = None;
    // In any case the pod comes from the API: nothing else may be read into it.
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove(winddown_shared::CONFIG_SOURCE_ANNOTATION);
    }
    object.status = None;
    Pod::new(object).unwrap_or_else(|_| pod.clone())
}

fn shortens(pod: &Pod, grace: Duration) -> bool {
    let given = pod.metadata.deletion_grace_period_seconds.filter(|_| is_ending(pod));
    given.is_none_or(|given| seconds(grace) < given)
}

/// Whole seconds, rounded up: no pod gets less than requested.
fn seconds(grace: Duration) -> i64 {
    let whole = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
