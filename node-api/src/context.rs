//! What every request is answered from.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;
use winddown_files::Growth;
use winddown_shared::NodeHandle;

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
    /// Below it is a directory for each pod.
    pub(crate) log_dir: PathBuf,
}
