//! What every request is answered from.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;
use winddown_files::Growth;
use winddown_shared::status::StatusEntry;
use winddown_shared::{NodeHandle, PodStreams};

use crate::figures::Kept;
use crate::places::Places;
use crate::tls::Tls;
use crate::who::Gatekeeper;

pub(crate) struct Context {
    pub(crate) node: NodeHandle,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) tls: Tls,
    pub(crate) places: Places,
    /// Tells of logs that grow; none where the kernel gives no watch.
    pub(crate) growth: Option<Growth>,
    /// So many logs are read at the same moment: however many follow, that takes no more threads.
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) node_name: String,
    /// What the node and its pods use.
    pub(crate) figures: Kept,
    /// Opens streams into pods; none where the runtime has none.
    pub(crate) pod_streams: Option<Arc<dyn PodStreams>>,
    /// So many streams are open at the same moment.
    pub(crate) streams: Arc<Semaphore>,
    /// Below it is a directory for each pod.
    pub(crate) log_dir: PathBuf,
}

impl Context {
    /// The pod of this name; of two the one that has not ended.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<StatusEntry> {
        let of_name = |entry: &StatusEntry| {
            **entry.pod.namespace() == *namespace && **entry.pod.name() == *name
        };
        let found = self.node.statuses().into_iter().filter(of_name);
        found.min_by_key(|entry| {
            matches!(entry.status.phase.as_deref(), Some("Succeeded" | "Failed"))
        })
    }
}
