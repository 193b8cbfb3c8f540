//! The state that all requests share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use winddown_host::PodStreams;
use winddown_host::pod_logs::PodLogs;
use winddown_shared::NodeHandle;
use winddown_shared::status::{StatusEntry, is_terminal};

use crate::figures::SharedMeasurement;
use crate::places::ClientPlaces;
use crate::tls::Tls;
use crate::who::Gatekeeper;

pub(crate) struct RequestContext {
    pub(crate) node: NodeHandle,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) tls: Tls,
    pub(crate) places: ClientPlaces,
    pub(crate) node_name: String,
    /// Measurements of what the node and its pods use.
    pub(crate) figures: SharedMeasurement,
    /// Opens streams into pods; `None` if the runtime does not support them.
    pub(crate) pod_streams: Option<Arc<dyn PodStreams>>,
    /// Bounds how many streams are open at the same moment.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) logs: PodLogs,
}

impl RequestContext {
    /// The pod of this name; if there are two, the one that has not ended.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<StatusEntry> {
        let of_name = |entry: &StatusEntry| {
            **entry.pod.namespace() == *namespace && **entry.pod.name() == *name
        };
        let found = self.node.statuses().into_iter().filter(of_name);
        found.min_by_key(|entry| is_terminal(&entry.status))
    }
}
