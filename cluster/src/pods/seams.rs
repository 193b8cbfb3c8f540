//! The seams of the pod controller.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1 as api;
use tokio::sync::{mpsc, watch};
use winddown_shared::status::StatusStore;
use winddown_shared::{Pod, PodSyncer, PodUid, PodWorkers};

use super::equality::is_terminal_status;
use crate::status::StatusUpdate;

/// Takes statuses and sees to it that the API server learns them.
pub trait StatusSide: Send + Sync + 'static {
    /// Takes a status. Never blocks; a newer one for the same pod replaces it.
    ///
    /// After a last word nothing else comes for that pod but the same words again.
    fn submit(&self, update: StatusUpdate);

    /// The API server has this object. Called with every object that the watch or a list brings, so
    /// that a foreign change of what this node owns is undone.
    fn api_saw(&self, pod: &Pod);

    /// The object is certainly gone from the API: there is nothing more to send.
    fn gone(&self, uid: &PodUid);

    /// Resolves when the API server has acknowledged what was last submitted for the pod, when there is
    /// nothing to tell, and when its object is gone. Dropping the future changes nothing.
    fn delivered(&self, uid: &PodUid) -> impl Future<Output = ()> + Send;

    /// Resolves when what an earlier agent has said last is known: before that, [`final_status`] may not know
    /// it. Nothing is created before it resolves, or half a minute has passed.
    ///
    /// [`final_status`]: Self::final_status
    fn recalled(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The last word about a pod that has ended, if it was said, also before a restart of the agent.
    fn final_status(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>>;
}

/// Makes a pod literal before the node has it: environment, ConfigMaps, Secrets, volumes.
pub trait Prepare: Send + Sync + 'static {
    /// The pod as the node gets it. A second call for one UID reuses what was resolved first.
    ///
    /// # Errors
    /// See [`PrepareError`]; the pod waits, and is tried again.
    fn prepare(&self, pod: &Pod) -> impl Future<Output = Result<Pod, PrepareError>> + Send;

    /// The node has this pod since before the agent started, as [`prepare`](Self::prepare) returned it then.
    /// Returns at once.
    fn adopt(&self, given: &Pod) {
        let _ = given;
    }

    /// The API's object of a pod that the node has differs now, in labels or annotations for example, which
    /// volumes may show. Returns at once.
    fn refresh(&self, pod: &Pod) {
        let _ = pod;
    }

    /// The node does not have the pod any more: what was made for it goes. May be repeated.
    fn forget(&self, uid: &PodUid) -> impl Future<Output = ()> + Send {
        let _ = uid;
        async {}
    }

    /// Pods for which [`PrepareError::Missing`] was said and for which what was missing has appeared.
    /// Asked for once.
    fn arrivals(&self) -> Option<mpsc::Receiver<PodUid>> {
        None
    }
}

/// Why a pod cannot be made literal yet.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// An object, or a key of one, that the pod must have is not there.
    #[error("{message}")]
    Missing {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Its name, in the pod's namespace.
        name: String,
        /// Whether a volume needs it; otherwise a variable does.
        is_for_volume: bool,
        /// For people.
        message: String,
    },
    /// The pod asks for something impossible: not before its spec changes.
    #[error("{field}: {why}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// The API server could not be read.
    #[error("{what}")]
    Unavailable {
        /// What was attempted.
        what: String,
        /// When to try again; `None` leaves it to the back-off.
        after: Option<Duration>,
    },
}

/// Prepares nothing: the node gets pods as they are in the API.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsItIs;

/// Hears what the API has of mirror pods: they are pictures of static pods, and never run.
/// Nothing here may block. `()` does not care.
pub trait MirrorSide: Send + Sync + 'static {
    /// The API has this mirror pod.
    fn api_saw(&self, pod: &Pod) {
        let _ = pod;
    }

    /// A mirror pod is gone from the API.
    fn gone(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// A list was read whole, and these are all mirror pods in it.
    fn relisted(&self, uids: &[PodUid]) {
        let _ = uids;
    }
}

impl MirrorSide for () {}

/// Keeps which pods the node was given, for the next agent of this boot. `()` keeps nothing.
pub trait Keep: Send + Sync + 'static {
    /// The node is given this pod, or it stands so now: one with a status has ended.
    fn keep(&self, pod: Pod) -> BoxFuture<'_, ()> {
        let _ = pod;
        ready(()).boxed()
    }

    /// The node does not have the pod any more.
    fn remove<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, ()> {
        let _ = uid;
        ready(()).boxed()
    }

    /// The API server has said what runs here: nothing is missed that could not be read.
    fn all_known(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

impl Keep for () {}

/// What the controller asks of whatever runs the pods.
#[derive(Clone)]
pub struct NodeSide {
    pub(crate) statuses: StatusStore,
    pub(crate) ends: watch::Receiver<u64>,
    has_ended: Arc<dyn Fn(&PodUid) -> bool + Send + Sync>,
}

// === impl NodeSide ===

impl NodeSide {
    /// The pod workers.
    pub fn of_workers<S: PodSyncer>(workers: PodWorkers<S>, statuses: StatusStore) -> Self {
        let said = statuses.clone();
        let ends = workers.ends();
        Self::new(statuses, ends, move |uid| match workers.lifecycle(uid) {
            Some(_) => workers.is_known_terminated(uid) && !workers.stays(uid),
            // Without a worker it was refused, or it has not come to the intake yet.
            None => said.get(uid).is_some_and(|status| is_terminal_status(&status)),
        })
    }

    /// Anything that writes the pods' statuses into `statuses`. `has_ended` says whether nothing of a pod runs, and
    /// nothing will, of which `ends` counts the changes.
    pub fn new(
        statuses: StatusStore,
        ends: watch::Receiver<u64>,
        has_ended: impl Fn(&PodUid) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { statuses, ends, has_ended: Arc::new(has_ended) }
    }

    /// Whether nothing of the pod runs, and nothing will.
    pub(crate) fn has_ended(&self, uid: &PodUid) -> bool {
        (self.has_ended)(uid)
    }
}

// === impl AsItIs ===

impl Prepare for AsItIs {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        Ok(pod.clone())
    }
}
