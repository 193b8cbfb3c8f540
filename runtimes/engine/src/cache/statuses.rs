//! The last status of each pod, and its age.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use winddown_shared::{Mutex, PodRuntimeStatus, PodUid, PodUidMap, RuntimeError};

#[cfg(test)]
mod tests;

/// The last inspection of a pod: the result, or the error.
pub type Inspected<T> = Result<Arc<T>, RuntimeError>;

/// The last status of each pod, with timestamps that tell how fresh it is.
///
/// A reader that needs a status newer than one of its own actions waits with
/// [`get_newer_than`](Self::get_newer_than). Clones share one cache.
pub struct PodStatusCache<T = PodRuntimeStatus>(Arc<Mutex<StatusesState<T>>>);

/// The current state of the cache for one pod.
#[derive(Clone, Debug)]
pub enum Cached<T> {
    /// The runtime has not been listed yet: the pod may or may not run.
    NotYetListed,
    /// The runtime was listed and has nothing of this pod.
    Unknown,
    /// The last inspection of the pod.
    Known(Inspected<T>),
}

struct StatusesState<T> {
    pods: PodUidMap<CachedStatus<T>>,
    /// Everything in the cache is at least as new as this; `None` before the first full list.
    listed: Option<Instant>,
    waiters: PodUidMap<Vec<Waiter<T>>>,
    next_waiter: u64,
}

struct CachedStatus<T> {
    inspected: Inspected<T>,
    observed: Instant,
}

struct Waiter<T> {
    number: u64,
    than: Instant,
    answer: oneshot::Sender<Option<Inspected<T>>>,
}

/// Removes the waiter when its caller is dropped.
struct WaiterGuard<'a, T> {
    cache: &'a PodStatusCache<T>,
    uid: &'a PodUid,
    number: u64,
}

/// Answers to send once the lock is released.
type Answers<T> = Vec<(oneshot::Sender<Option<Inspected<T>>>, Option<Inspected<T>>)>;

// === impl PodStatusCache ===

impl<T> PodStatusCache<T> {
    /// Creates an empty cache; nothing is listed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the cached state of the pod.
    ///
    /// Before the first full list, "nothing known" does not mean "nothing there": the two are
    /// distinguished so that no pod counts as stopped before the first listing.
    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Cached<T> {
        let state = self.0.lock();
        match (state.pods.get(uid), state.listed) {
            (Some(entry), _) => Cached::Known(entry.inspected.clone()),
            (None, Some(_)) => Cached::Unknown,
            (None, None) => Cached::NotYetListed,
        }
    }

    /// Waits for an inspection of the pod that is newer than `than`, and returns it. `None` if the
    /// runtime has nothing of the pod.
    ///
    /// Cancel-safe: dropping the future only gives up the place in the queue. It may wait until the
    /// next listing, so put a deadline around it.
    pub async fn get_newer_than(&self, uid: &PodUid, than: Instant) -> Option<Inspected<T>> {
        let (place, answer) = {
            let mut state = self.0.lock();
            if let Some(found) = state.newer_than(uid, than) {
                return found;
            }
            let (sender, answer) = oneshot::channel();
            let number = state.next_waiter;
            state.next_waiter += 1;
            let waiter = Waiter { number, than, answer: sender };
            state.waiters.entry(uid.clone()).or_default().push(waiter);
            (WaiterGuard { cache: self, uid, number }, answer)
        };
        let answered = answer.await;
        drop(place);
        // The sender is dropped unused only with the cache itself, which this borrow keeps alive.
        answered.unwrap_or_default()
    }

    /// Stores an inspection of a pod that began at `at`, and answers the callers that wait for one
    /// at `at` or earlier.
    ///
    /// Returns whether it was stored. An inspection older than the stored one, or than a look that found it unchanged,
    /// is ignored: a slow list must not undo what an event reported meanwhile.
    pub fn set(&self, uid: &PodUid, inspected: Inspected<T>, at: Instant) -> bool {
        let answers = {
            let mut state = self.0.lock();
            if state.pods.get(uid).is_some_and(|entry| at < entry.observed) {
                return false;
            }
            state.pods.insert(uid.clone(), CachedStatus { inspected, observed: at });
            state.due(uid, at)
        };
        send(answers);
        true
    }

    /// Records that the pod was inspected at `at` and has not changed.
    pub fn set_observed_time(&self, uid: &PodUid, at: Instant) {
        let answers = {
            let mut state = self.0.lock();
            if let Some(entry) = state.pods.get_mut(uid) {
                entry.observed = entry.observed.max(at);
            }
            state.due(uid, at)
        };
        send(answers);
    }

    /// Records that all pods were listed at `at`: a pod that is not in the cache does not exist. Never moves back.
    pub fn update_time(&self, at: Instant) {
        let answers = {
            let mut state = self.0.lock();
            state.listed = state.listed.max(Some(at));
            let waited_for: Vec<PodUid> = state.waiters.keys().cloned().collect();
            waited_for.iter().flat_map(|uid| state.due(uid, at)).collect()
        };
        send(answers);
    }

    /// Removes the pod. This answers no waiter: a later list shows that the pod is gone.
    pub fn delete(&self, uid: &PodUid) {
        self.0.lock().pods.remove(uid);
    }
}

impl<T> Default for PodStatusCache<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(StatusesState {
            pods: PodUidMap::default(),
            listed: None,
            waiters: PodUidMap::default(),
            next_waiter: 0,
        })))
    }
}

impl<T> Clone for PodStatusCache<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for PodStatusCache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        f.debug_struct("PodStatusCache")
            .field("pods", &state.pods.len())
            .field("listed", &state.listed)
            .finish_non_exhaustive()
    }
}

// === impl StatusesState ===

impl<T> StatusesState<T> {
    /// The cached answer, if it is newer than `than`.
    fn newer_than(&self, uid: &PodUid, than: Instant) -> Option<Option<Inspected<T>>> {
        let listed_later = self.listed.is_some_and(|at| at > than);
        match self.pods.get(uid) {
            Some(entry) if listed_later || entry.observed > than => {
                Some(Some(entry.inspected.clone()))
            }
            None if listed_later => Some(None),
            _ => None,
        }
    }

    /// Removes the waiters that an inspection at `at` satisfies. One at exactly the requested time
    /// does: it was made for them.
    fn due(&mut self, uid: &PodUid, at: Instant) -> Answers<T> {
        let Some(waiters) = self.waiters.get_mut(uid) else { return Vec::new() };
        let due: Vec<Waiter<T>> = waiters.extract_if(.., |waiter| waiter.than <= at).collect();
        if waiters.is_empty() {
            self.waiters.remove(uid);
        }
        let found = self.pods.get(uid).map(|entry| &entry.inspected);
        due.into_iter().map(|waiter| (waiter.answer, found.cloned())).collect()
    }
}

fn send<T>(answers: Answers<T>) {
    for (waiter, answer) in answers {
        // The receiver may have been dropped after the lock was released.
        let _ = waiter.send(answer);
    }
}

// === impl WaiterGuard ===

impl<T> Drop for WaiterGuard<'_, T> {
    fn drop(&mut self) {
        let mut state = self.cache.0.lock();
        let Some(waiters) = state.waiters.get_mut(self.uid) else { return };
        waiters.retain(|waiter| waiter.number != self.number);
        if waiters.is_empty() {
            state.waiters.remove(self.uid);
        }
    }
}
