//! What the container runtime has, looked at for all pods at once while any is waited for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use winddown_shared::{PodUid, PodUidMap};

use super::local_node::{Inside, LocalNode, Unasked};

/// Between two looks at least, and at most; else twice as long as a look takes: looks are not to be what pods wait
/// for. Container runtimes of before 2023 tell no events, and a look costs two requests however many pods there are.
/// One that takes long waits for a processor and does not use it: it is no reason to see pods end later.
const BETWEEN: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

/// The newest look, for all that wait.
#[derive(Debug, Default)]
pub(super) struct Looks {
    newest: watch::Sender<Option<Look>>,
    wanted: Notify,
}

/// What the container runtime had at one time.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// When it was asked: what it says is not older.
    pub(super) begun: Instant,
    found: Result<Arc<PodUidMap<Inside>>, Unasked>,
}

// === impl Looks ===

impl Looks {
    /// Looks from now on, until the receiver is dropped.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Look>> {
        let looks = self.newest.subscribe();
        self.wanted.notify_one();
        looks
    }

    /// Looks while there are receivers, and once when containers have `started`, so that their ends are known at once;
    /// for ever.
    pub(super) async fn keep_looking<N: LocalNode>(
        &self,
        node: &N,
        started: &Notify,
    ) -> Infallible {
        loop {
            if self.newest.receiver_count() == 0 {
                self.newest.send_replace(None);
                tokio::select! {
                    () = self.wanted.notified() => {}
                    () = started.notified() => {}
                }
            }
            let begun = Instant::now();
            let found = node.look().await.map(Arc::new);
            // Fails where nothing waits: it is not kept for who comes later.
            let _ = self.newest.send(Some(Look { begun, found }));
            sleep((2 * begun.elapsed()).clamp(BETWEEN[0], BETWEEN[1])).await;
        }
    }
}

// === impl Look ===

impl Look {
    /// What there was of the pod; a pod that the runtime does not have is empty.
    pub(super) fn of(&self, uid: &PodUid) -> Result<Inside, &Unasked> {
        let found = self.found.as_ref()?;
        Ok(found.get(uid).cloned().unwrap_or_default())
    }
}
