//! The controller's progress with a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use tokio::time::Instant;

/// What this controller has done about one pod. Lost when the agent restarts, and not needed then: the
/// provider and the API are asked again.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodProgress {
    /// A create is under way, or failed in a way that leaves open whether the provider has the pod.
    pub(crate) create_open: bool,
    /// The provider has taken the pod at least once.
    pub(crate) created: bool,
    /// The provider, or the preparation, rejects it as it is.
    pub(crate) refused: bool,
    /// What the provider was asked to end by, and when.
    pub(crate) stop: Option<StopAsked>,
    /// The provider said then that it does not have the pod.
    pub(crate) unknown_to_stop: bool,
    /// The last status that was submitted.
    pub(crate) said: Option<Arc<api::PodStatus>>,
    /// It was the last word.
    pub(crate) last_said: bool,
    /// The API has taken the final delete; what is left of the object are its finalizers.
    pub(crate) removed: bool,
    /// The last failure that was told, so that it is not told again.
    pub(crate) failure: Option<String>,
    /// It is unwanted and left alone; that was reported.
    pub(crate) left_alone: bool,
}

/// How the provider was asked to end a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopAsked {
    /// The end of the grace it was given.
    pub(crate) deadline: Instant,
    /// When it was asked last.
    pub(crate) at: Instant,
    /// It was asked to end it at once, because the grace was over.
    pub(crate) kill: bool,
}

impl PodProgress {
    /// What is wanted of the pod has changed: what was refused may be taken now.
    pub(crate) fn wants_changed(&mut self) {
        self.refused = false;
        self.failure = None;
    }

    /// Whether to submit this status: it is news, and the last word was not said.
    pub(crate) fn say(&mut self, status: &Arc<api::PodStatus>, last: bool) -> bool {
        let is_news = self.is_news(status, last);
        if is_news {
            self.last_said = last;
            self.said = Some(status.clone());
        }
        is_news
    }

    /// Whether this status differs from what was said.
    pub(crate) fn is_news(&self, status: &Arc<api::PodStatus>, last: bool) -> bool {
        let is_same = self.said.as_ref().is_some_and(|s| Arc::ptr_eq(s, status) || s == status);
        !self.last_said && (last || !is_same)
    }

    /// Whether a failure is to be told: it is another one than the last.
    pub(crate) fn fail(&mut self, error: &str) -> bool {
        if self.failure.as_deref() == Some(error) {
            return false;
        }
        self.failure = Some(error.to_owned());
        true
    }
}
