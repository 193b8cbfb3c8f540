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
        let freed = async {
            let word = if self.inner.root.is_cancelled() { None } else { waiter.wait().await.ok() };
            // Once the workers are gone nothing is freed, so mounts stay.
            if word.is_none() {
                std::future::pending::<()>().await;
            }
        };
        let left = async {
            let ask_at = deadline.checked_sub(ASK_AHEAD).unwrap_or(deadline);
            tokio::select! {
                () = tokio::time::sleep_until(ask_at) => {}
                () = self.inner.root.cancelled() => {}
            }
            match self.inner.syncer.mounts(uid).await {
                Ok(mounts) => mounts,
                Err(error) => vec![format!("unknown: {}", error_chain(&error))],
            }
        };
        let (mut answer, mut left) = (None, std::pin::pin!(left));
        let mut freed = std::pin::pin!(freed);
        loop {
            tokio::select! {
                biased;
                () = &mut freed => return Vec::new(),
                mounts = &mut left, if answer.is_none() => {
                    // Once the workers are gone, nothing more is freed.
                    if mounts.is_empty() || self.inner.root.is_cancelled() {
                        return mounts;
                    }
                    answer = Some(mounts);
                }
                () = tokio::time::sleep_until(deadline) => {
                    return answer.unwrap_or_else(|| {
                        vec!["unknown: the runtime did not list its mounts in time".to_owned()]
                    });
                }
            }
        }
    }
}
