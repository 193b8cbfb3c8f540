//! Waits until a stopped pod holds nothing on the host any more.

use std::time::Duration;

use tokio::time::Instant;

use super::PodWorkers;
use crate::workers::syncer::PodSyncer;
use crate::{PodUid, error_chain};

/// How long before the deadline the mounts are read, so that the answer is ready at the deadline.
/// Reading the mount table takes far less.
const ASK_AHEAD: Duration = Duration::from_millis(250);

impl<S: PodSyncer> PodWorkers<S> {
    /// Waits until the pod's last step has freed what it held; at the deadline, returns what is
    /// still mounted. Never returns after the deadline, whatever the runtime does.
    pub(super) async fn until_volumes_released(
        &self,
        uid: &PodUid,
        deadline: Instant,
    ) -> Vec<String> {
        let waiter = {
            let mut state = self.inner.state.lock();
            state.records.get_mut(uid).and_then(|record| record.until_freed())
        };
        let Some(waiter) = waiter else { return Vec::new() };
        let left = async {
            tokio::time::sleep_until(deadline.checked_sub(ASK_AHEAD).unwrap_or(deadline)).await;
            let left = match self.inner.syncer.mounts(uid).await {
                Ok(mounts) => mounts,
                Err(error) => vec![format!("unknown: {}", error_chain(&error))],
            };
            // They may be gone by then.
            if !left.is_empty() {
                tokio::time::sleep_until(deadline).await;
            }
            left
        };
        tokio::select! {
            biased;
            // Not so once the workers are gone: what is mounted stays so until the next agent's free it.
            Ok(()) = waiter.wait() => Vec::new(),
            left = left => left,
            () = tokio::time::sleep_until(deadline) => {
                vec!["unknown: the runtime did not list its mounts in time".to_owned()]
            }
        }
    }
}
