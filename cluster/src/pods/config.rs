//! What can be chosen about the controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{CONFIG_MIRROR_ANNOTATION, WallClock};

use super::plan::OrphanPolicy;

/// Which pods of its node the controller takes.
pub type PodFilter = Arc<dyn Fn(&api::Pod) -> bool + Send + Sync>;

/// Says why no pod can be let in or refused yet.
pub type HoldBack = Arc<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// The settings of a [`PodController`](super::PodController).
#[derive(Clone)]
pub struct PodControllerConfig {
    /// The name of this node's Node object.
    pub node_name: String,
    /// How many pods are handled concurrently. Default: 16.
    pub workers: usize,
    /// How long one request to the API server may take. Default: ten seconds.
    pub request_deadline: Duration,
    /// What becomes of pods that run here and that the API does not have. Default: they end.
    pub orphans: OrphanPolicy,
    /// How often a pod must be looked up in vain before it is ended, if a list was empty although
    /// some run. Default: 3.
    pub confirmations: u32,
    /// The interval between lookups. Default: five seconds.
    pub confirm_every: Duration,
    /// Why no pod can be given to the node yet; `None` while that is possible. Default: it always is.
    pub hold_back: Option<HoldBack>,
    /// Takes only pods for which this is true. One for which it becomes false counts as deleted.
    pub filter: Option<PodFilter>,
    /// The API server's clock, as well as it is known: the ends of graces are stated by it.
    pub api_clock: WallClock,
}

// === impl PodControllerConfig ===

impl PodControllerConfig {
    /// The defaults for a node.
    pub fn new(node_name: impl Into<String>, api_clock: WallClock) -> Self {
        Self {
            node_name: node_name.into(),
            workers: 16,
            request_deadline: Duration::from_secs(10),
            orphans: OrphanPolicy::default(),
            confirmations: 3,
            confirm_every: Duration::from_secs(5),
            hold_back: None,
            filter: None,
            api_clock,
        }
    }

    /// Whose concern this pod is.
    pub(crate) fn whose(&self, pod: &api::Pod) -> Whose {
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

/// Whose concern a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This controller's.
    Ours,
    /// It is the picture of a static pod.
    Mirror,
    /// Not this node's, or filtered out.
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
