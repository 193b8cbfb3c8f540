//! The interfaces between the pod controller and its surroundings.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1 as api;
use tokio::sync::{mpsc, watch};
use winddown_shared::status::{StatusStore, is_terminal};
use winddown_shared::{
    Lifecycle, Pod, PodRuntimeStatus, PodSyncer, PodUid, PodWorkers, Runtime, RuntimeError,
};

use crate::status::StatusUpdate;

/// Accepts statuses and makes sure that the API server gets them.
// Over the limit because it is one channel: four calls bring in what is to be said, and three ask what became of it.
pub trait StatusSide: Send + Sync + 'static {
    /// Submits a status. Never blocks; a newer one for the same pod replaces it.
    ///
    /// After a final status only the same status may be submitted for that pod.
    fn submit(&self, update: StatusUpdate);

    /// Called with every object that the watch or a list brings, so that a foreign change to what
    /// this node owns is reverted.
    fn api_saw(&self, pod: &Pod);

    /// Called when a list of all pods begins. What it has counts even where versions are lower than
    /// before, because the API server's data was restored from a backup.
    fn listing(&self);

    /// Called when the object is certainly gone from the API, so that nothing more is sent.
    fn gone(&self, uid: &PodUid);

    /// Waits until the API server has acknowledged the last status submitted for the pod, nothing
    /// is left to send, or its object is gone. Dropping the future changes nothing.
    fn delivered(&self, uid: &PodUid) -> impl Future<Output = ()> + Send;

    /// Waits until the final statuses that an earlier agent reported are known: before that [`final_status`]
    /// may lack them. Nothing is created before this completes, or half a minute has passed.
    ///
    /// [`final_status`]: Self::final_status
    fn recalled(&self) -> impl Future<Output = ()> + Send;

    /// The final status of a terminated pod, if one was submitted, also before a restart of the agent.
    fn final_status(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>>;
}

/// Resolves what a pod refers to before the node has it: environment, ConfigMaps, Secrets, volumes.
pub trait Prepare: Send + Sync + 'static {
    /// Returns the pod as the node gets it. A second call for one UID reuses what was resolved first.
    ///
    /// # Errors
    /// See [`PrepareError`]; the pod waits, and is retried.
    fn prepare(&self, pod: &Pod) -> impl Future<Output = Result<Pod, PrepareError>> + Send;

    /// Called when the node has had this pod since before the agent started; `given` is what
    /// [`prepare`](Self::prepare) returned then. Returns immediately.
    fn adopt(&self, given: &Pod) {
        let _ = given;
    }

    /// Called when the API's object of a pod that the node has changed: volumes may show its labels and
    /// annotations. Returns immediately.
    fn refresh(&self, pod: &Pod) {
        let _ = pod;
    }

    /// Removes what was made for a pod that has terminated, or that the node does not have any more. May be called
    /// repeatedly.
    fn forget(&self, uid: &PodUid) -> impl Future<Output = ()> + Send {
        let _ = uid;
        async {}
    }

    /// The pods that got [`PrepareError::Missing`] and for which the missing object has appeared. Called once.
    fn arrivals(&self) -> Option<mpsc::Receiver<PodUid>> {
        None
    }
}

/// Why a pod cannot be resolved yet.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// A required object, or a key of one, does not exist.
    #[error("{message}")]
    Missing {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Its name, in the pod's namespace.
        name: String,
        /// Whether a volume needs it; otherwise a variable does.
        is_for_volume: bool,
        /// A message for people.
        message: String,
    },
    /// The pod asks for something impossible, and is not retried before its spec changes.
    #[error("{field}: {why}")]
    Invalid {
        /// The path of the field.
        field: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// The API server could not be read, or what it has does not suit the pod now.
    #[error("{what}")]
    Unavailable {
        /// What was attempted, or what does not suit.
        what: String,
        /// When to retry; `None` leaves it to the backoff.
        after: Option<Duration>,
    },
}

/// Resolves nothing: the node gets pods as they are in the API.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsItIs;

/// Receives the API's mirror pods, which represent static pods and never run. No method may block.
/// `()` ignores them.
pub trait MirrorSide: Send + Sync + 'static {
    /// Called when the API has this mirror pod.
    fn api_saw(&self, pod: &Pod) {
        let _ = pod;
    }

    /// Called when a mirror pod is gone from the API.
    fn gone(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// Called after a complete list, with all mirror pods in it.
    fn relisted(&self, uids: &[PodUid]) {
        let _ = uids;
    }
}

impl MirrorSide for () {}

/// Records which pods the node was given, for the next agent of this boot. `()` records nothing.
pub trait KeepPods: Send + Sync + 'static {
    /// Records a pod that the node is given, or its new state: a pod with a terminal phase has terminated.
    ///
    /// # Errors
    /// There is no room for what it has, so that a new pod waits. One that is not recorded for another reason runs.
    fn keep(&self, pod: Pod) -> BoxFuture<'_, Result<(), PrepareError>> {
        let _ = pod;
        ready(Ok(())).boxed()
    }

    /// Removes the record of a pod that the node does not have any more.
    fn remove<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, ()> {
        let _ = uid;
        ready(()).boxed()
    }

    /// Called once the API was listed: no pod is missing any more because its record was unreadable.
    fn all_known(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

impl KeepPods for () {}

/// The controller's interface to whatever runs the pods.
#[derive(Clone)]
pub struct NodeSide {
    pub(crate) statuses: StatusStore,
    pub(crate) ends: watch::Receiver<u64>,
    has_ended: OfPod<bool>,
    is_freed: OfPod<bool>,
    /// `None` while that is unknown.
    runs: OfPod<Option<bool>>,
    remains: Remains,
}

type OfPod<T> = Arc<dyn Fn(&PodUid) -> T + Send + Sync>;

/// What the runtime still has of a pod that does not run; no containers if that is nothing.
type Remains =
    Arc<dyn Fn(PodUid) -> BoxFuture<'static, Result<PodRuntimeStatus, RuntimeError>> + Send + Sync>;

// === impl NodeSide ===

impl NodeSide {
    /// Uses the pod workers.
    pub fn of_workers<S: PodSyncer>(workers: PodWorkers<S>, statuses: StatusStore) -> Self {
        let said = statuses.clone();
        let ends = workers.ends();
        let (running, freeing) = (workers.clone(), workers.clone());
        // The workers know of each pod that has something left before they know what runs.
        let is_freed = move |uid: &PodUid| match freeing.lifecycle(uid) {
            Some(lifecycle) => lifecycle == Lifecycle::Finished,
            None => freeing.runs(uid) == Some(false),
        };
        let has_ended = move |uid: &PodUid| match workers.lifecycle(uid) {
            Some(_) => workers.is_known_terminated(uid) && !workers.restarts_on_node(uid),
            // Without a worker it was rejected, or has not reached the intake yet.
            None => said.get(uid).is_some_and(|status| is_terminal(&status)),
        };
        Self::new(statuses, ends, has_ended, move |uid| running.runs(uid)).with_freed(is_freed)
    }

    /// Uses anything that runs the pods of [`wanted`](super::PodController::wanted) without a terminal phase and writes
    /// their statuses into `statuses`.
    ///
    /// `has_ended` is whether nothing of a pod runs or will run, so that its object may go, unless
    /// [`with_freed`](Self::with_freed) says what it holds besides; `ends` counts the changes of both. `runs` is whether a
    /// pod runs that the node was not given since the agent started, and `None` while that is unknown: one that is known
    /// not to run, and may not run again, fails.
    pub fn new(
        statuses: StatusStore,
        ends: watch::Receiver<u64>,
        has_ended: impl Fn(&PodUid) -> bool + Send + Sync + 'static,
        runs: impl Fn(&PodUid) -> Option<bool> + Send + Sync + 'static,
    ) -> Self {
        let remains = Arc::new(|_| ready(Ok(PodRuntimeStatus::default())).boxed());
        let (has_ended, runs): (OfPod<_>, _) = (Arc::new(has_ended), Arc::new(runs));
        Self { statuses, ends, is_freed: has_ended.clone(), has_ended, runs, remains }
    }

    /// Keeps the object of a pod that has ended until `is_freed`: whether the node holds nothing of the pod any more, no
    /// sandbox, no control group and no mount. By default, a pod that has ended holds nothing.
    #[must_use]
    pub fn with_freed(
        mut self,
        is_freed: impl Fn(&PodUid) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_freed = Arc::new(is_freed);
        self
    }

    /// Asks this runtime how a pod ended that the node was not given and that may not be started again. By default, nothing
    /// is known of it.
    #[must_use]
    pub fn with_remains<R: Runtime>(mut self, runtime: Arc<R>) -> Self {
        self.remains = Arc::new(move |uid| {
            let runtime = Arc::clone(&runtime);
            async move { runtime.pod_status(&uid).await }.boxed()
        });
        self
    }

    /// Whether nothing of the pod runs or will run.
    pub(crate) fn has_ended(&self, uid: &PodUid) -> bool {
        (self.has_ended)(uid)
    }

    /// Waits until the node holds nothing of a terminated pod any more.
    pub(crate) async fn freed(&self, uid: &PodUid) {
        let mut ends = self.ends.clone();
        // That nothing runs counts as an end when it becomes known.
        while !(self.is_freed)(uid) {
            if ends.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// What the runtime still has of a pod that does not run.
    pub(crate) async fn remains(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        (self.remains)(uid.clone()).await
    }

    /// Whether the pod runs; `None` while that is unknown.
    pub(crate) fn runs(&self, uid: &PodUid) -> Option<bool> {
        (self.runs)(uid)
    }
}

// === impl AsItIs ===

impl Prepare for AsItIs {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        Ok(pod.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_what_a_pod_held_follows_the_ends_and_needs_no_clock() {
        let (told, ends) = watch::channel(0);
        let (free, freed) = watch::channel(false);
        let side = NodeSide::new(StatusStore::default(), ends, |_| true, |_| Some(false))
            .with_freed(move |_| *freed.borrow());
        let begun = Instant::now();
        let end = async {
            sleep(Duration::from_secs(7)).await;
            free.send_replace(true);
            told.send_modify(|n| *n += 1);
        };
        let uid = PodUid::new("u1");
        tokio::join!(side.freed(&uid), end);
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
    }
}
