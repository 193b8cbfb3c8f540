//! Delivers statuses to the API server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use winddown_shared::{Mutex, Pod, PodRef, PodUid, WallClock};

use super::StatusUpdate;
use super::spool::{Spool, SpoolStats};
use crate::pods::StatusSide;

mod attempt;
mod driver;
mod entry;
mod state;
#[cfg(test)]
mod tests;

pub use driver::OutboxDriver;
use state::OutboxState;

/// The most statuses that are kept on disk: more than a node has pods.
const MAX_RECORDS: usize = 4096;
/// The longest time at the end of a [`flush`](Outbox::flush) for writing unsent statuses to disk.
const SPOOL_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts pod statuses and sends them to the API server until the server has them. Cheap to clone;
/// clones share one state.
///
/// Submitting never blocks and is never refused: a pod has one entry, in which the latest status
/// replaces an older one. Final statuses are written to disk before they are sent, and stay there
/// until the API has them. A foreign change to a field that the node owns is reverted.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<OutboxShared>);

/// The configuration of an [`Outbox`].
#[derive(Clone, Debug)]
pub struct OutboxConfig {
    /// Where to keep statuses that the API does not have yet. Without a directory they are lost
    /// with the machine.
    pub directory: Option<PathBuf>,
    /// The number of concurrent requests; at least one.
    pub concurrency: usize,
    /// The timeout of one request.
    pub request_deadline: Duration,
    /// The wall clock, used only to label records.
    pub wall: WallClock,
}

/// The state of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxStats {
    /// Pods whose latest status the API does not have yet.
    pub unacknowledged: usize,
    /// Pods with something to do that wait for their turn or for the disk.
    pub waiting: usize,
    /// Pods that wait for a retry.
    pub backing_off: usize,
    /// Requests in progress.
    pub in_flight: usize,
    /// Patches that the API has accepted since the start.
    pub sent: u64,
    /// Of these, patches that reverted a foreign change.
    pub reasserted: u64,
    /// Attempts that failed since the start.
    pub failures: u64,
    /// Since when it has not answered, if so.
    pub silent_since: Option<Instant>,
    /// Statuses on disk.
    pub spool: SpoolStats,
}

#[derive(Debug)]
struct OutboxShared {
    state: Mutex<OutboxState>,
    /// Notified when there may be something to do.
    changed: Notify,
    spool: Option<Spool<SpooledStatus>>,
    /// Whether the statuses of an earlier agent were read, or cannot be.
    recalled: watch::Sender<bool>,
}

/// A status as it is stored on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpooledStatus {
    namespace: Arc<str>,
    name: Arc<str>,
    last: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    status: Arc<api::PodStatus>,
}

impl Default for OutboxConfig {
    /// No directory; 8 concurrent requests of at most 10 s; a clock that stands still.
    fn default() -> Self {
        Self {
            directory: None,
            concurrency: 8,
            request_deadline: Duration::from_secs(10),
            wall: WallClock::fixed(winddown_shared::WallTime::UNIX_EPOCH),
        }
    }
}

// === impl Outbox ===

impl Outbox {
    /// Creates an outbox, and the driver that sends its statuses.
    pub fn new(config: &OutboxConfig) -> (Self, OutboxDriver) {
        let spool = config
            .directory
            .as_ref()
            .map(|directory| Spool::new(directory, MAX_RECORDS, config.wall.clone()));
        Self::with_spool(config, spool)
    }

    fn with_spool(
        config: &OutboxConfig,
        spool: Option<Spool<SpooledStatus>>,
    ) -> (Self, OutboxDriver) {
        let state = Mutex::new(OutboxState::new(spool.is_some()));
        let recalled = watch::Sender::new(spool.is_none());
        let outbox =
            Self(Arc::new(OutboxShared { state, changed: Notify::new(), spool, recalled }));
        (outbox.clone(), OutboxDriver::new(outbox, config))
    }

    /// Records that the API server answers again, as another part has found out. Statuses that wait
    /// for that are retried immediately.
    pub fn api_answers(&self) {
        self.0.state.lock().try_silent(Instant::now());
        self.0.changed.notify_one();
    }

    /// Sets the node's addresses, the primary one first, for statuses that do not name them.
    pub fn set_host_ips(&self, ips: Vec<String>) {
        self.0.state.lock().host_ips = ips.into();
    }

    /// Waits until the API has everything that was submitted so far, but not beyond `deadline`.
    ///
    /// Returns the pods whose latest status it does not have by then. Shortly before the deadline
    /// these are written to disk, and the next agent sends them first. Cancel-safe.
    pub async fn flush(&self, deadline: Instant) -> Vec<PodRef> {
        let waiting = self.0.state.lock().unacknowledged(Instant::now());
        self.0.changed.notify_one();
        let whole = deadline.saturating_duration_since(Instant::now());
        let spool_at = deadline - SPOOL_TIMEOUT.min(whole / 2);
        let mut left = wait_until(waiting, spool_at).await;
        if left.is_empty() {
            return Vec::new();
        }
        let unsent: Vec<PodUid> = left.iter().map(|(pod, _)| pod.uid.clone()).collect();
        let on_disk = timeout_at(deadline, self.put_on_disk(&unsent)).await;
        left = wait_until(left, deadline).await;
        if !left.is_empty() {
            tracing::warn!(
                log_kind = "statusesNotSent",
                pods = left.len(),
                on_disk = on_disk.unwrap_or(0),
                "the API server does not have the last statuses of all pods; the next agent sends \
                 what is on disk"
            );
        }
        left.into_iter().map(|(pod, _)| pod).collect()
    }

    /// The state of the outbox.
    pub fn stats(&self) -> OutboxStats {
        let spool = self.0.spool.as_ref().map(Spool::stats).unwrap_or_default();
        OutboxStats { spool, ..self.0.state.lock().stats() }
    }

    /// Writes the latest statuses of the pods to disk. Returns how many of them are there.
    async fn put_on_disk(&self, pods: &[PodUid]) -> usize {
        let Some(spool) = &self.0.spool else { return 0 };
        let records: Vec<_> = {
            let state = self.0.state.lock();
            pods.iter().filter_map(|uid| Some((uid, state.to_keep(uid)?))).collect()
        };
        let already = pods.len() - records.len();
        let mut writes: FuturesUnordered<_> = records
            .into_iter()
            .map(|(uid, (turn, record))| async move {
                spool.keep(uid, record).await.is_ok().then(|| self.0.state.lock().kept(uid, turn))
            })
            .collect();
        let mut written = 0;
        while let Some(kept) = writes.next().await {
            written += usize::from(kept.is_some());
        }
        already + written
    }
}

type Waiting = Vec<(PodRef, oneshot::Receiver<()>)>;

/// Returns those that are not delivered by `deadline`.
async fn wait_until(waiting: Waiting, deadline: Instant) -> Waiting {
    let mut left = Vec::new();
    for (pod, mut told) in waiting {
        if timeout_at(deadline, &mut told).await.is_err() {
            left.push((pod, told));
        }
    }
    left
}

// === impl StatusSide ===

impl StatusSide for Outbox {
    fn submit(&self, update: StatusUpdate) {
        let changed = self.0.state.lock().submit(update, Instant::now());
        if changed {
            self.0.changed.notify_one();
        }
    }

    fn api_saw(&self, pod: &Pod) {
        let check = self.0.state.lock().api_saw(pod, Instant::now());
        if check {
            self.0.changed.notify_one();
        }
    }

    fn listing(&self) {
        self.0.state.lock().listing();
    }

    fn gone(&self, uid: &PodUid) {
        // Waiters are released when the entry is dropped.
        let entry = self.0.state.lock().remove(uid);
        drop(entry);
        if let Some(spool) = &self.0.spool {
            spool.remove(uid);
        }
    }

    async fn delivered(&self, uid: &PodUid) {
        let waiter = self.0.state.lock().wait_for(uid);
        if let Some(waiter) = waiter {
            // An error means that the pod is gone.
            let _ = waiter.await;
        }
    }

    fn final_status(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        self.0.state.lock().final_status(uid)
    }

    async fn recalled(&self) {
        // The sender lives as long as this.
        let _ = self.0.recalled.subscribe().wait_for(|recalled| *recalled).await;
    }
}
