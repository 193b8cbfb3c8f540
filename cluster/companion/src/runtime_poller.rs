//! Polls the container runtime for all pods at once while any pod is waited for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use winddown_shared::{PodUid, PodUidMap};

use super::local_node::{KubeletHost, NodeError, RuntimePodState};

/// The shortest and the longest wait between two polls; in between, twice as long as a poll takes, so that polls do not
/// delay the pods. Container runtimes from before 2023 provide no events, and a poll costs two requests for any number
/// of pods. A slow poll waits for CPU time and does not use it: it is no reason to notice exits later.
const POLL_INTERVAL_BOUNDS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];
/// What is added while the node stays up, where a pod may terminate for hours, unless another begins to wait.
const RELAXED_INTERVAL: Duration = Duration::from_secs(1);

/// The newest poll, shared by all that wait.
#[derive(Debug, Default)]
pub(super) struct RuntimePoller {
    newest: watch::Sender<Option<RuntimeSnapshot>>,
    wanted: Notify,
}

/// The container runtime's answer at one time.
#[derive(Clone, Debug)]
pub(super) struct RuntimeSnapshot {
    /// When the poll began: the answer is not older.
    pub(super) begun: Instant,
    found: Result<Arc<PodUidMap<RuntimePodState>>, NodeError>,
}

// === impl RuntimePoller ===

impl RuntimePoller {
    /// Whether the newest poll was not answered.
    pub(super) fn is_unanswered(&self) -> bool {
        self.newest.borrow().as_ref().is_some_and(|newest| newest.found.is_err())
    }

    /// Starts polling, until the receiver is dropped.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<RuntimeSnapshot>> {
        let snapshots = self.newest.subscribe();
        self.wanted.notify_one();
        snapshots
    }

    /// Polls while there are receivers, and once when containers have `started`, so that their exits are known at once.
    /// Never returns.
    pub(super) async fn keep_polling<N: KubeletHost>(
        &self,
        node: &N,
        started: &Notify,
        going_down: &watch::Receiver<bool>,
    ) -> Infallible {
        let mut going_down = going_down.clone();
        loop {
            let is_wanted = self.newest.receiver_count() > 0;
            if !is_wanted {
                self.newest.send_replace(None);
            }
            let is_down = *going_down.borrow_and_update();
            tokio::select! {
                () = sleep(if is_down { Duration::ZERO } else { RELAXED_INTERVAL }), if is_wanted => {}
                Ok(()) = going_down.changed(), if is_wanted => {}
                () = self.wanted.notified() => {}
                () = started.notified() => {}
            }
            let begun = Instant::now();
            let found = node.look().await.map(Arc::new);
            // Fails if there are no receivers: the answer is not kept for later ones.
            let _ = self.newest.send(Some(RuntimeSnapshot { begun, found }));
            sleep((2 * begun.elapsed()).clamp(POLL_INTERVAL_BOUNDS[0], POLL_INTERVAL_BOUNDS[1]))
                .await;
        }
    }
}

// === impl RuntimeSnapshot ===

impl RuntimeSnapshot {
    /// The pod's state; empty if the runtime does not know the pod.
    pub(super) fn of(&self, uid: &PodUid) -> Result<RuntimePodState, &NodeError> {
        let found = self.found.as_ref()?;
        Ok(found.get(uid).cloned().unwrap_or_default())
    }
}
