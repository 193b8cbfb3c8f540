//! The pods that were admitted and do not run yet.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use winddown_shared::{Mutex, PodUid, PodUidMap};

/// The start of an admitted pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStartup {
    /// The pod runs, or has already completed.
    Running,
    /// The pod has not started yet.
    NotYet,
    /// The pod has failed.
    Never,
}

/// The pods that are starting, each with its admission time. Pods that ran before the agent started are not included.
#[derive(Debug, Default)]
pub(super) struct StartingPods {
    since: Mutex<PodUidMap<Instant>>,
    any: Notify,
}

impl StartingPods {
    pub(super) fn begin(&self, uid: &PodUid) {
        self.since.lock().insert(uid.clone(), Instant::now());
        self.any.notify_one();
    }

    pub(super) fn forget(&self, uid: &PodUid) {
        self.since.lock().remove(uid);
    }

    pub(super) fn forget_all(&self, mut is_over: impl FnMut(&PodUid) -> bool) {
        self.since.lock().retain(|uid, _| !is_over(uid));
    }

    /// Resolves when a pod has been admitted since the last call.
    pub(super) async fn any(&self) {
        self.any.notified().await;
    }

    /// Removes the pods that run, and passes the time that each took to `took`, and those that never will. Returns
    /// whether some are left.
    pub(super) fn settle(
        &self,
        mut look: impl FnMut(&PodUid) -> PodStartup,
        mut took: impl FnMut(Duration),
    ) -> bool {
        let now = Instant::now();
        let mut since = self.since.lock();
        since.retain(|uid, begun| match look(uid) {
            PodStartup::NotYet => true,
            PodStartup::Never => false,
            PodStartup::Running => {
                took(now.duration_since(*begun));
                false
            }
        });
        !since.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_pods_that_come_to_run_are_measured_and_none_is_kept_after_its_end() {
        let starting = StartingPods::default();
        let [slow, failed, stopped] = ["slow", "failed", "stopped"].map(PodUid::new);
        for uid in [&slow, &failed, &stopped] {
            starting.begin(uid);
        }
        starting.any().await;
        starting.forget(&stopped);
        let mut took = Vec::new();
        let look =
            |uid: &PodUid| if *uid == failed { PodStartup::Never } else { PodStartup::NotYet };
        assert!(starting.settle(look, |t| took.push(t)));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!starting.settle(|_| PodStartup::Running, |t| took.push(t)));
        assert_eq!(took, [Duration::from_secs(3)]);
        assert!(starting.since.lock().is_empty());
    }
}
