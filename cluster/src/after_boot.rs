//! Pods that this node terminated before it went down.
//!
//! A pod that a shutdown, an eviction or a preemption has terminated stays in the API as `Failed`,
//! often for weeks: the cluster removes such pods only when there are thousands. [`TerminatedPods`]
//! records them on disk, and [`AfterBoot`] removes them according to the policy. Pods that others
//! terminated are never touched, nor are those that succeeded.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use winddown_shared::{
    Backoff, Event, KillReason, Mutex, PodRef, PodUid, Recorder, WallClock, WallTime,
};

use crate::status::{Spool, SpoolError};

mod decide;
mod driver;
#[cfg(test)]
mod tests;

pub use decide::{AfterBootPolicy, AfterBootVerdict, decide};
pub use driver::AfterBoot;

/// The maximum length of the list: more pods than a node terminates in a month.
const MAX_LISTED_PODS: usize = 8192;
/// How long a disk that did not take the list is left alone.
const WRITE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));
/// The key of the list, which is one record.
const LIST: &str = "ended";

/// The pods that this node has terminated, on disk. Cheap to clone; clones share one list.
///
/// Adding a pod neither blocks nor fails; additions while the disk is busy are part of the next
/// write. As a [`Recorder`] it receives every termination that a controller requests.
#[derive(Clone, Debug)]
pub struct TerminatedPods(Arc<AfterBootShared>);

/// A pod that this node has terminated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminatedPod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: PodUid,
    /// The requester: `shutdown`, `eviction`, …
    pub by: Arc<str>,
    /// When the termination was requested.
    pub at: WallTime,
    /// The boot in which it was requested, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Arc<str>>,
}

#[derive(Debug)]
struct AfterBootShared {
    spool: Spool<Vec<TerminatedPod>>,
    wall: WallClock,
    boot: Option<Arc<str>>,
    list: Mutex<List>,
    /// The version of the list that is on disk.
    written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct List {
    /// The oldest first.
    pods: VecDeque<TerminatedPod>,
    /// Their UIDs.
    known: HashSet<PodUid>,
    version: u64,
    /// Whether a writer is active, which will write the latest version.
    writing: bool,
    loaded: bool,
}

// === impl TerminatedPods ===

impl TerminatedPods {
    /// The list in `directory`. `boot` identifies this boot of the machine.
    pub fn new(
        directory: impl Into<std::path::PathBuf>,
        boot: Option<Arc<str>>,
        wall: WallClock,
    ) -> Self {
        // The list is one record.
        Self::with_spool(Spool::new(directory, 1, wall.clone()), boot, wall)
    }

    fn with_spool(
        spool: Spool<Vec<TerminatedPod>>,
        boot: Option<Arc<str>>,
        wall: WallClock,
    ) -> Self {
        let (list, written) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(AfterBootShared { spool, wall, boot, list, written }))
    }

    /// Records that the node terminates a pod. Does not wait for the disk.
    pub fn note(&self, pod: &PodRef, by: &str) {
        let ended = TerminatedPod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            by: by.into(),
            at: self.0.wall.now(),
            boot: self.0.boot.clone(),
        };
        {
            let mut list = self.0.list.lock();
            if !list.known.insert(ended.uid.clone()) {
                return;
            }
            list.pods.push_back(ended);
            if list.pods.len() > MAX_LISTED_PODS
                && let Some(oldest) = list.pods.pop_front()
            {
                list.known.remove(&oldest.uid);
            }
        }
        self.changed();
    }

    /// Removes pods from the list. Costs as much for many as for one.
    pub fn forget(&self, uids: &HashSet<PodUid>) {
        let any = {
            let mut list = self.0.list.lock();
            let before = list.pods.len();
            list.pods.retain(|ended| !uids.contains(&ended.uid));
            list.known.retain(|uid| !uids.contains(uid));
            list.pods.len() < before
        };
        if any {
            self.changed();
        }
    }

    /// The pods on the list, the oldest first; those of earlier agents once [`load`](Self::load) has read them.
    pub fn all(&self) -> Vec<TerminatedPod> {
        self.0.list.lock().pods.iter().cloned().collect()
    }

    /// Reads the list of earlier agents. Only the first successful call does anything.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn load(&self) -> Result<(), SpoolError> {
        if self.0.list.lock().loaded {
            return Ok(());
        }
        let found = self.0.spool.load().await?;
        let mut list = self.0.list.lock();
        list.loaded = true;
        for ended in found.into_iter().flat_map(|kept| kept.record).rev() {
            if list.known.insert(ended.uid.clone()) {
                list.pods.push_front(ended);
            }
        }
        Ok(())
    }

    /// Waits until everything recorded so far is on disk, at most until `deadline`. Returns whether it is.
    pub async fn flush(&self, deadline: Instant) -> bool {
        let version = self.0.list.lock().version;
        let mut written = self.0.written.subscribe();
        timeout_at(deadline, written.wait_for(|on_disk| *on_disk >= version)).await.is_ok()
    }

    /// Starts a writer for the list, unless one is active. Without an async runtime the list stays in memory.
    fn changed(&self) {
        let start = {
            let mut list = self.0.list.lock();
            list.version += 1;
            !std::mem::replace(&mut list.writing, true)
        };
        if !start {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(self.clone().write())),
            Err(_) => self.0.list.lock().writing = false,
        }
    }

    /// Writes until the latest list is on disk. A disk that is full or busy is tried again; the spool logs it.
    async fn write(self) {
        let mut backoff = WRITE_BACKOFF;
        loop {
            match self.write_once().await {
                Ok(true) => return,
                Ok(false) => backoff.reset(),
                Err(_) => tokio::time::sleep(backoff.next_delay()).await,
            }
        }
    }

    /// Writes the list as it is now; returns whether that is the latest, so that this writer is done.
    async fn write_once(&self) -> Result<bool, SpoolError> {
        // New entries must not overwrite those of earlier agents.
        self.load().await?;
        let (version, pods) = {
            let list = self.0.list.lock();
            (list.version, list.pods.iter().cloned().collect())
        };
        self.0.spool.keep(&PodUid::new(LIST), pods).await?;
        self.0.written.send_replace(version);
        let mut list = self.0.list.lock();
        list.writing = list.version != version;
        Ok(!list.writing)
    }
}

impl Recorder for TerminatedPods {
    /// Records the pods that the node itself decides to terminate, except those that start again on
    /// this node, but none that an operator or a source removes.
    fn record(&self, event: &Event) {
        if let Event::KillRequested { pod, by, status, .. } = event
            && !status.as_ref().is_some_and(|status| status.restarts_on_node)
            && !matches!(by, KillReason::Operator | KillReason::Removed)
        {
            self.note(pod, by.as_str());
        }
    }
}
