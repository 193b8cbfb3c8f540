//! The pods of this node, by UID: what the API says of each and what has been done about it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use winddown_shared::{Pod, PodUid, PodUidMap, WallTime};

use super::deletion::Grace;
use super::equality;
use super::progress::PodProgress;

#[cfg(test)]
mod tests;

/// What is known about every pod that the API or the provider has. One memory for all parts of the
/// controller; no lock is held beyond a call.
#[derive(Debug, Default)]
pub(crate) struct KnownPods(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    pods: PodUidMap<Known>,
    /// More than one UID for a name: one pod was replaced by another.
    by_name: HashMap<(Arc<str>, Arc<str>), Vec<PodUid>>,
}

/// One pod.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The API's object, the last one it had. The provider's copy if the API was never seen to have one.
    pub(crate) pod: Pod,
    /// Whether the API has it.
    pub(crate) presence: ApiPresence,
    /// The API had it while this controller ran.
    pub(crate) was_seen: bool,
    /// When its grace is over, if it is to end.
    pub(crate) deadline: Option<Instant>,
    /// What has been done about it.
    pub(crate) progress: PodProgress,
}

/// Whether the API has a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPresence {
    /// It does.
    Present,
    /// A list did not have it. That alone proves nothing: it is to be looked up.
    Absent {
        /// How often it was looked up and not found.
        confirmed: u32,
        /// How often that has to be.
        needed: u32,
    },
    /// It does not: the watch said so, or it was looked up.
    Gone,
}

/// What an object of the API changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The pod was not known.
    New,
    /// Something about it changed that is to be acted upon.
    Matters,
    /// Nothing of that kind.
    Nothing,
}

// === impl KnownPods ===

impl KnownPods {
    /// What is known about one pod.
    pub(crate) fn get(&self, uid: &PodUid) -> Option<Known> {
        self.lock().pods.get(uid).cloned()
    }

    /// The API has this object.
    pub(crate) fn applied(&self, pod: &Pod, now: Instant, api_time: WallTime) -> Change {
        let mut inner = self.lock();
        let Some(known) = inner.pods.get_mut(pod.uid()) else {
            let mut known = Known::new(pod.clone(), ApiPresence::Present);
            known.was_seen = true;
            known.note_deletion(now, api_time);
            inner.insert(known);
            return Change::New;
        };
        known.take(pod, now, api_time)
    }

    /// A pod that a list did not have was looked up, and the API has this object. Whether that is news: the
    /// watch may have said more since, above all that the pod is gone.
    pub(crate) fn found(&self, pod: &Pod, now: Instant, api_time: WallTime) -> bool {
        let mut inner = self.lock();
        let Some(known) = inner.pods.get_mut(pod.uid()) else { return false };
        let is_news = matches!(known.presence, ApiPresence::Absent { .. });
        if is_news {
            known.take(pod, now, api_time);
        }
        is_news
    }

    /// The API's object is gone; `last` is its last state where the watch brought one.
    pub(crate) fn gone(&self, uid: &PodUid, last: Option<&Pod>, now: Instant, api_time: WallTime) {
        let mut inner = self.lock();
        let Some(known) = inner.pods.get_mut(uid) else { return };
        if let Some(last) = last {
            known.pod = last.clone();
        }
        known.presence = ApiPresence::Gone;
        let grace = Grace::after_removal(&known.pod, now, api_time);
        known.shorten(grace);
    }

    /// A whole list has been read. Returns the pods that it did not have and that are thought to be
    /// there; each is to be looked up, `confirmations` times if the list had no pod at all.
    pub(crate) fn listed(&self, listed: &PodUidMap<()>, confirmations: u32) -> Vec<PodUid> {
        let mut inner = self.lock();
        let needed = if listed.is_empty() { confirmations.max(1) } else { 1 };
        let missing = inner.pods.iter_mut().filter(|(uid, known)| {
            known.presence != ApiPresence::Gone && !listed.contains_key(*uid)
        });
        missing
            .map(|(uid, known)| {
                match &mut known.presence {
                    ApiPresence::Absent { confirmed: 0, needed: known } => {
                        *known = needed.max(*known);
                    }
                    ApiPresence::Absent { .. } | ApiPresence::Gone => {}
                    ApiPresence::Present => {
                        known.presence = ApiPresence::Absent { confirmed: 0, needed };
                    }
                }
                uid.clone()
            })
            .collect()
    }

    /// The provider has these pods. Returns those that were unknown.
    pub(crate) fn provided<'a>(
        &self,
        pods: impl Iterator<Item = &'a Pod>,
        needed: u32,
    ) -> Vec<PodUid> {
        let mut inner = self.lock();
        let mut unknown = Vec::new();
        for pod in pods {
            if !inner.pods.contains_key(pod.uid()) {
                unknown.push(pod.uid().clone());
                inner.insert(Known::new(pod.clone(), ApiPresence::Absent { confirmed: 0, needed }));
            }
        }
        unknown
    }

    /// A pod was looked up and was not there. Whether that is certain now.
    pub(crate) fn not_found(&self, uid: &PodUid, now: Instant, api_time: WallTime) -> bool {
        let mut inner = self.lock();
        let Some(known) = inner.pods.get_mut(uid) else { return true };
        let ApiPresence::Absent { confirmed, needed } = &mut known.presence else {
            return known.presence == ApiPresence::Gone;
        };
        *confirmed += 1;
        if confirmed < needed {
            return false;
        }
        known.presence = ApiPresence::Gone;
        let grace = Grace::after_removal(&known.pod, now, api_time);
        known.shorten(grace);
        true
    }

    /// Notes what has been done about a pod.
    pub(crate) fn mark<T>(
        &self,
        uid: &PodUid,
        mark: impl FnOnce(&mut PodProgress) -> T,
    ) -> Option<T> {
        self.lock().pods.get_mut(uid).map(|known| mark(&mut known.progress))
    }

    /// Forgets a pod that is gone. Returns those of its name that came after it; `None`: it is not gone.
    pub(crate) fn forget(&self, uid: &PodUid) -> Option<Vec<PodUid>> {
        let mut inner = self.lock();
        if inner.pods.get(uid).is_some_and(|known| known.presence != ApiPresence::Gone) {
            return None;
        }
        let Some(known) = inner.pods.remove(uid) else { return Some(Vec::new()) };
        let name = (known.pod.namespace().clone(), known.pod.name().clone());
        let Some(uids) = inner.by_name.get_mut(&name) else { return Some(Vec::new()) };
        uids.retain(|other| other != uid);
        if uids.is_empty() {
            inner.by_name.remove(&name);
            return Some(Vec::new());
        }
        Some(uids.clone())
    }

    /// Whether another pod of this name came before and may still be with the provider.
    pub(crate) fn has_predecessor(&self, pod: &Pod) -> bool {
        let inner = self.lock();
        let name = (pod.namespace().clone(), pod.name().clone());
        let uids = inner.by_name.get(&name).map(Vec::as_slice).unwrap_or_default();
        uids.iter().take_while(|uid| *uid != pod.uid()).next().is_some()
    }

    /// Whether another pod of this name came after it.
    pub(crate) fn has_successor(&self, pod: &Pod) -> bool {
        let inner = self.lock();
        let name = (pod.namespace().clone(), pod.name().clone());
        inner.by_name.get(&name).and_then(|uids| uids.last()).is_some_and(|last| last != pod.uid())
    }

    /// The pods that a list did not have.
    pub(crate) fn absent(&self) -> PodUidMap<()> {
        let inner = self.lock();
        let absent = inner
            .pods
            .iter()
            .filter(|(_, known)| matches!(known.presence, ApiPresence::Absent { .. }));
        absent.map(|(uid, _)| (uid.clone(), ())).collect()
    }

    /// Every pod.
    pub(crate) fn uids(&self) -> Vec<PodUid> {
        self.lock().pods.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    fn insert(&mut self, known: Known) {
        let name = (known.pod.namespace().clone(), known.pod.name().clone());
        let uid = known.pod.uid().clone();
        let uids = self.by_name.entry(name).or_default();
        // What the API does not have was there before what it has.
        let at = if known.presence == ApiPresence::Present { uids.len() } else { 0 };
        uids.insert(at, uid.clone());
        self.pods.insert(uid, known);
    }
}

// === impl Known ===

impl Known {
    fn new(pod: Pod, presence: ApiPresence) -> Self {
        Self { pod, presence, was_seen: false, deadline: None, progress: PodProgress::default() }
    }

    fn take(&mut self, pod: &Pod, now: Instant, api_time: WallTime) -> Change {
        let matters = !self.was_seen
            || self.presence != ApiPresence::Present
            || equality::matters(&self.pod, pod);
        self.pod = pod.clone();
        self.presence = ApiPresence::Present;
        self.was_seen = true;
        self.note_deletion(now, api_time);
        if matters {
            self.progress.wants_changed();
            Change::Matters
        } else {
            Change::Nothing
        }
    }

    /// The API wants it to end.
    pub(crate) fn is_deleting(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    fn note_deletion(&mut self, now: Instant, api_time: WallTime) {
        if let Some(grace) = Grace::of_deletion(&self.pod, api_time) {
            self.shorten(now + grace);
        }
    }

    fn shorten(&mut self, deadline: Instant) {
        self.deadline = Some(self.deadline.map_or(deadline, |known| known.min(deadline)));
    }
}
