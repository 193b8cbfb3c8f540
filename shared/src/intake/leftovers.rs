//! What the runtime holds beside the pods that the workers know: strays, containers of pods that
//! have finished, remains of pods that are gone.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Intake;
use crate::{Event, Lifecycle, PodLabel, PodUid, Runtime, RuntimePod};

/// How often the runtime is listed although nothing says that it should be: the safety net for an
/// event that was lost.
const LIST_AGAIN: Duration = Duration::from_secs(300);

/// How soon a listing that failed is tried again.
const LIST_RETRY: Duration = Duration::from_secs(10);

/// Finished pods come in groups: one pass for those that finish within this time.
const GATHER: Duration = Duration::from_millis(100);

/// Remains that could not be removed are tried again after this long, then twice as long, …
const FORGET_FIRST: Duration = Duration::from_secs(2);

/// … up to this.
const FORGET_MOST: Duration = Duration::from_secs(60);

/// What the runtime holds of a UID.
pub(super) enum Found {
    /// Containers run. For a UID that is desired: they did when the agent started.
    Running(RuntimePod),
    /// Logs and exit records, or containers that a worker is stopping.
    Remains,
}

impl<R: Runtime> Intake<R> {
    /// Resolves when another pass has something to do. Cancel-safe.
    pub(super) async fn something_to_clear_up(&mut self) {
        let retry = self.retry.unwrap_or(LIST_AGAIN);
        tokio::select! {
            () = self.workers.settled() => {}
            () = self.workers.syncer().unknown_changes() => self.list_at = Instant::now(),
            () = tokio::time::sleep_until(self.list_at) => return,
            () = tokio::time::sleep(retry), if self.retry.is_some() => return,
        }
        tokio::time::sleep(GATHER).await;
    }

    /// Lists the runtime. `tracked` is what the workers knew before.
    pub(super) async fn list(&mut self, tracked: &HashMap<PodUid, Lifecycle>) {
        match self.runtime.list_pods().await {
            Ok(pods) => self.note(pods, tracked),
            Err(error) => {
                tracing::warn!(%error, "the runtime does not say what runs; asking again");
                self.list_at = Instant::now() + LIST_RETRY;
            }
        }
    }

    /// Takes a listing in. What a worker knows is its worker's to handle; only containers of a pod
    /// that had finished before the listing began are nobody's, and are stopped.
    pub(super) fn note(
        &mut self,
        pods: Vec<RuntimePod>,
        tracked: &HashMap<PodUid, Lifecycle>,
    ) {
        self.list_at = Instant::now() + LIST_AGAIN;
        self.workers.syncer().note_listed(&pods);
        for pod in pods {
            match tracked.get(&pod.uid) {
                Some(Lifecycle::Finished) if pod.running => {
                    tracing::warn!(pod = %format_args!("{}/{}", pod.namespace, pod.name),
                        uid = %pod.uid, "stopping containers of a pod that had finished");
                    self.workers.kill_runtime_pod(pod);
                }
                Some(_) => {}
                None if pod.running => {
                    self.found.insert(pod.uid.clone(), Found::Running(pod));
                }
                None => {
                    self.found.insert(pod.uid, Found::Remains);
                }
            }
        }
    }

    /// Ends what runs under UIDs that nobody wants, and removes the remains of pods that are gone.
    /// While the source is not `complete`, what runs may be wanted all the same.
    pub(super) async fn clear_up(
        &mut self,
        tracked: &HashMap<PodUid, Lifecycle>,
        complete: bool,
    ) {
        let (mut strays, mut remains) = (Vec::new(), Vec::new());
        for (uid, found) in self.found.iter().filter(|(uid, _)| !tracked.contains_key(*uid)) {
            let desired = self.desired.get(uid);
            match found {
                Found::Running(pod) if complete && desired.is_none_or(|d| d.refused.is_some()) => {
                    strays.push(pod.clone());
                }
                Found::Remains if desired.is_none() => remains.push(uid.clone()),
                _ => {}
            }
        }
        for pod in strays {
            self.end_stray(pod);
        }
        let mut failed = false;
        for uid in remains {
            failed |= !self.forget(uid).await;
        }
        let next = self.retry.map_or(FORGET_FIRST, |last| (last * 2).min(FORGET_MOST));
        self.retry = failed.then_some(next);
    }

    fn end_stray(&mut self, pod: RuntimePod) {
        let label = PodLabel {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        tracing::info!(pod = %label, uid = %pod.uid,
            "ending a pod that runs but is no longer wanted");
        self.recorder.record(&Event::OrphanFound { pod: label });
        self.found.insert(pod.uid.clone(), Found::Remains);
        self.workers.kill_runtime_pod(pod);
    }

    /// Says whether the remains are gone.
    async fn forget(&mut self, uid: PodUid) -> bool {
        match self.runtime.forget_pod(&uid).await {
            Ok(()) => {
                self.statuses.remove(&uid);
                self.found.remove(&uid);
                true
            }
            Err(error) => {
                tracing::warn!(%uid, %error, "could not remove a pod's remains; will retry");
                false
            }
        }
    }
}
