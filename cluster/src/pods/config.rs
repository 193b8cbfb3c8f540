//! The settings of the controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, IdentityError, Pod, WallClock,
};

use super::judgement::NodeAdmission;
use super::next_step::OrphanPolicy;

/// Selects the pods of its node that the controller takes.
pub type PodFilter = Arc<dyn Fn(&api::Pod) -> bool + Send + Sync>;

/// The settings of a [`PodController`](super::PodController).
#[derive(Clone)]
pub struct PodControllerConfig {
    /// The name of this node's Node object.
    pub node_name: String,
    /// How many pods are prepared for their start at a time, and how many are removed. Default: 16.
    pub workers: usize,
    /// The timeout of one request to the API server. Default: ten seconds.
    pub request_deadline: Duration,
    /// What happens to pods that run here and that the API does not have. Default: they are stopped.
    pub orphans: OrphanPolicy,
    /// How many lookups must fail to find a pod before it is stopped, if a list was empty although
    /// some run. Default: 3.
    pub confirmations: u32,
    /// The interval between lookups. Default: five seconds.
    pub confirm_every: Duration,
    /// How the node admits pods before it has them. Default: nothing is against any pod.
    pub admission: Option<NodeAdmission>,
    /// Takes only pods for which this is true. If it becomes false, the pod counts as deleted.
    pub filter: Option<PodFilter>,
    /// The API server's clock, as far as it is known: the ends of grace periods refer to it.
    pub api_clock: WallClock,
}

// === impl PodControllerConfig ===

impl PodControllerConfig {
    /// The default settings.
    pub fn new(node_name: impl Into<String>, api_clock: WallClock) -> Self {
        Self {
            node_name: node_name.into(),
            workers: 16,
            request_deadline: Duration::from_secs(10),
            orphans: OrphanPolicy::default(),
            confirmations: 3,
            confirm_every: Duration::from_secs(5),
            admission: None,
            filter: None,
            api_clock,
        }
    }

    /// Takes an object of the API server, without what it may not say of itself: where a pod comes from. Of a mirror pod that
    /// stays.
    pub(crate) fn received(&self, mut object: api::Pod) -> Result<(Whose, Pod), IdentityError> {
        // Not used here, and often the larger half of an object.
        object.metadata.managed_fields = None;
        let whose = self.whose(&object);
        if whose != Whose::Mirror
            && let Some(annotations) = &mut object.metadata.annotations
        {
            annotations.remove(CONFIG_SOURCE_ANNOTATION);
        }
        Ok((whose, Pod::new(object)?))
    }

    /// Who is responsible for this pod.
    fn whose(&self, pod: &api::Pod) -> Whose {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let annotations = pod.metadata.annotations.as_ref();
        if node != Some(&self.node_name) {
            Whose::Others
        } else if annotations.is_some_and(|all| all.contains_key(CONFIG_MIRROR_ANNOTATION)) {
            Whose::Mirror
        } else if self.filter.as_ref().is_none_or(|filter| filter(pod)) {
            Whose::Ours
        } else {
            Whose::Others
        }
    }
}

/// Who is responsible for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    /// The mirror side, because it is the mirror of a static pod.
    Mirror,
    /// Another node, or it is filtered out.
    Others,
}

impl fmt::Debug for PodControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodControllerConfig")
            .field("node_name", &self.node_name)
            .field("workers", &self.workers)
            .field("orphans", &self.orphans)
            .finish_non_exhaustive()
    }
}
