//! What the pod controller says of pods, on its way to the API server.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use winddown_cluster::pods::StatusSide;
use winddown_cluster::status::{Outbox, StatusUpdate};
use winddown_shared::{Pod, PodUid};

use super::provider::says_nothing;

/// The outbox, without what says nothing: of a pod that has just come the workers have no status yet.
#[derive(Clone, Debug)]
pub(crate) struct StatusSink(pub(crate) Outbox);

impl StatusSide for StatusSink {
    fn submit(&self, update: StatusUpdate) {
        if !says_nothing(&update.status) {
            self.0.submit(update);
        }
    }

    fn api_saw(&self, pod: &Pod) {
        self.0.api_saw(pod);
    }

    fn gone(&self, uid: &PodUid) {
        self.0.gone(uid);
    }

    fn told(&self, uid: &PodUid) -> impl Future<Output = ()> + Send {
        self.0.told(uid)
    }

    fn recalled(&self) -> impl Future<Output = ()> + Send {
        self.0.recalled()
    }

    fn last_word(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        self.0.last_word(uid)
    }
}
