//! The seams of the pod controller.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::mpsc;
use winddown_shared::{Pod, PodLabel, PodUid};

use crate::status::StatusUpdate;

/// Takes statuses and sees to it that the API server learns them.
pub trait StatusSide: Send + Sync + 'static {
    /// Takes a status. Never blocks; a newer one for the same pod replaces it.
    ///
    /// After a last word nothing else comes for that pod but the same words again.
    fn submit(&self, update: StatusUpdate);

    /// The API server has this object. Called with every object that the watch or a list brings, so
    /// that a foreign change of what this node owns is mended.
    fn api_saw(&self, pod: &Pod);

    /// The object is gone from the API for sure: nothing more is to be told.
    fn gone(&self, uid: &PodUid);

    /// Resolves when the API server has acknowledged what was last submitted for the pod, when there is
    /// nothing to tell, and when its object is gone. Dropping the future changes nothing.
    fn told(&self, uid: &PodUid) -> impl Future<Output = ()> + Send;

    /// Resolves when what an earlier agent has said last is known: before that, [`last_word`] may not know
    /// it. Nothing is created before it resolves, or half a minute has passed.
    ///
    /// [`last_word`]: Self::last_word
    fn recalled(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The last word about a pod that has ended, if it was said, also before a restart of the agent.
    fn last_word(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>>;
}

/// Makes a pod literal before it goes to the provider: environment, ConfigMaps, Secrets, volumes.
pub trait Prepare: Send + Sync + 'static {
    /// The pod as the provider gets it. A second call for one UID reuses what was resolved first.
    ///
    /// # Errors
    /// See [`PrepareError`]; the pod waits, and is tried again.
    fn prepare(&self, pod: &Pod) -> impl Future<Output = Result<Pod, PrepareError>> + Send;

    /// The provider has this pod already, since before the agent started; or it has taken over changed
    /// labels and annotations. Returns at once.
    fn adopt(&self, pod: &Pod) {
        let _ = pod;
    }

    /// The provider has forgotten the pod: what was made for it goes. May be repeated.
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

/// Prepares nothing: pods go to the provider as they are in the API.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsItIs;

/// Hears what the API has of mirror pods: they are pictures of static pods, and never given to a provider.
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

/// Takes what happened to a pod on its way to the provider. Must not block.
pub trait PodEvents: Send + Sync + 'static {
    /// Takes one event.
    fn pod_event(&self, pod: &PodLabel, event: PodEvent);
}

/// What happened to a pod on its way to the provider. Reasons and messages are virtual-kubelet's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodEvent {
    /// The provider has taken the pod.
    ProviderCreateSuccess,
    /// It has not.
    ProviderCreateFailed {
        /// What it said.
        error: String,
    },
    /// The provider has taken a change.
    ProviderUpdateSuccess,
    /// It has not.
    ProviderUpdateFailed {
        /// What it said.
        error: String,
    },
    /// The provider begins to end the pod, or no longer has it.
    ProviderDeleteSuccess,
    /// It does not.
    ProviderDeleteFailed {
        /// What it said.
        error: String,
    },
}

/// Sends no events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

// === impl AsItIs ===

impl Prepare for AsItIs {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        Ok(pod.clone())
    }
}

// === impl PodEvent ===

impl PodEvent {
    /// The event's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ProviderCreateSuccess => "ProviderCreateSuccess",
            Self::ProviderCreateFailed { .. } => "ProviderCreateFailed",
            Self::ProviderUpdateSuccess => "ProviderUpdateSuccess",
            Self::ProviderUpdateFailed { .. } => "ProviderUpdateFailed",
            Self::ProviderDeleteSuccess => "ProviderDeleteSuccess",
            Self::ProviderDeleteFailed { .. } => "ProviderDeleteFailed",
        }
    }

    /// The event's message.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Self::ProviderCreateSuccess => "Create pod in provider successfully".into(),
            Self::ProviderUpdateSuccess => "Update pod in provider successfully".into(),
            Self::ProviderDeleteSuccess => "Delete pod in provider successfully".into(),
            Self::ProviderCreateFailed { error }
            | Self::ProviderUpdateFailed { error }
            | Self::ProviderDeleteFailed { error } => error.as_str().into(),
        }
    }

    /// Whether it is a warning; everything else is normal.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::ProviderCreateFailed { .. }
            | Self::ProviderUpdateFailed { .. }
            | Self::ProviderDeleteFailed { .. } => true,
            Self::ProviderCreateSuccess
            | Self::ProviderUpdateSuccess
            | Self::ProviderDeleteSuccess => false,
        }
    }
}

// === impl NoEvents ===

impl PodEvents for NoEvents {
    fn pod_event(&self, _: &PodLabel, _: PodEvent) {}
}
