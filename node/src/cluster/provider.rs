//! The pod workers as what runs the API's pods.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio_util::sync::CancellationToken;
use winddown_cluster::provider::{
    ChangeSender, Changes, Notify, ProvidedPod, Provider, ProviderError, changes,
};
use winddown_shared::status::StatusStore;
use winddown_shared::{Pod, PodSyncer, PodUid, PodUidMap, PodWorkers, WallClock};

use super::api_pods::{ApiPods, Given, is_ending, is_terminal, lean};

/// Why no pod can be let in or refused yet; `None` while that is possible.
pub(crate) type HoldBack = Arc<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// How soon a pod that was held back is brought again.
const HELD_BACK: Duration = Duration::from_secs(2);

/// Hands the API's pods to the intake, and tells what the workers say of them.
///
/// It starts and ends nothing: it changes what is desired here, and the intake and the workers do the
/// rest as for every other pod. What admission refuses has failed, and says so in its status.
pub(crate) struct WorkersProvider<S: PodSyncer> {
    pods: ApiPods,
    workers: PodWorkers<S>,
    statuses: StatusStore,
    hold_back: HoldBack,
    wall: WallClock,
    /// Replaced when a controller begins to listen.
    changed: Mutex<ChangeSender>,
}

// === impl WorkersProvider ===

impl<S: PodSyncer> WorkersProvider<S> {
    pub(crate) fn new(
        pods: ApiPods,
        workers: PodWorkers<S>,
        statuses: StatusStore,
        hold_back: HoldBack,
        wall: WallClock,
    ) -> Self {
        let changed = Mutex::new(changes().0);
        Self { pods, workers, statuses, hold_back, wall, changed }
    }

    fn told(&self, uid: &PodUid) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).changed(uid);
    }

    fn provided(&self, given: Given) -> ProvidedPod {
        let Given { pod, last } = given;
        if let Some(status) = last {
            return ProvidedPod { pod, status, ended: true };
        }
        // The end first: a status that comes after it is the last one.
        let ended = self.has_ended(pod.uid());
        let status = self.statuses.get(pod.uid()).unwrap_or_default();
        ProvidedPod { pod, status, ended }
    }

    /// Whether nothing of the pod runs, and nothing will.
    fn has_ended(&self, uid: &PodUid) -> bool {
        if self.workers.lifecycle(uid).is_some() {
            return self.workers.is_known_terminated(uid);
        }
        // Without a worker it was refused, or it has not come to the intake yet.
        self.statuses.get(uid).is_some_and(|status| is_terminal(&status))
    }

    /// Notes those of `ending` that have ended, and forgets about them.
    async fn note_ends(&self, ending: &mut PodUidMap<()>) {
        let ended: Vec<PodUid> = ending.keys().filter(|uid| self.has_ended(uid)).cloned().collect();
        for uid in ended {
            ending.remove(&uid);
            let status = self.statuses.get(&uid).filter(|status| is_terminal(status));
            if let Some(status) = status {
                self.pods.ended(&uid, status).await;
            }
            self.told(&uid);
        }
    }
}

impl<S: PodSyncer> Provider for WorkersProvider<S> {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        if let Some(what) = (self.hold_back)() {
            return Err(ProviderError::Unavailable { what: what.into(), after: Some(HELD_BACK) });
        }
        // A call may be repeated; what is known already is as it should be.
        if self.pods.get(pod.uid()).is_none() {
            self.pods.take(lean(pod)).await;
        }
        Ok(())
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        if self.pods.get(pod.uid()).is_none() {
            return Err(ProviderError::NotFound);
        }
        self.pods.take(lean(pod)).await;
        Ok(())
    }

    async fn delete_pod(&self, pod: &Pod, grace: Duration) -> Result<(), ProviderError> {
        match self.pods.end(pod.uid(), grace, self.wall.now()).await {
            true => Ok(()),
            false => Err(ProviderError::NotFound),
        }
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        Ok(self.pods.get(uid).map(|given| self.provided(given)))
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        Ok(self.pods.all().into_iter().map(|given| self.provided(given)).collect())
    }

    async fn forget_pod(&self, uid: &PodUid) {
        self.pods.forget(uid).await;
    }
}

impl<S: PodSyncer> Notify for WorkersProvider<S> {
    fn notifications(&self) -> Changes {
        let (sender, changes) = changes();
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = sender;
        changes
    }

    async fn drive(&self, cancel: CancellationToken) {
        let mut statuses = self.statuses.changes();
        let mut ends = self.workers.ends();
        let mut wanted = self.pods.changes();
        // Those that may end before long: no other is checked when one has ended.
        let mut ending = PodUidMap::default();
        let mut seen = 0;
        loop {
            statuses.mark_unchanged();
            ends.mark_unchanged();
            wanted.mark_unchanged();
            let (entries, now) = self.statuses.changed_since(seen);
            seen = now;
            for entry in entries.iter().filter(|entry| !entry.pod.is_static()) {
                let uid = entry.pod.uid();
                let Some(given) = self.pods.get(uid).filter(|given| given.last.is_none()) else {
                    continue;
                };
                if is_terminal(&entry.status) || is_ending(&given.pod) {
                    ending.insert(uid.clone(), ());
                }
                self.told(uid);
            }
            self.note_ends(&mut ending).await;
            tokio::select! {
                () = cancel.cancelled() => return,
                changed = statuses.changed() => if changed.is_err() { return cancel.cancelled().await },
                changed = ends.changed() => if changed.is_err() { return cancel.cancelled().await },
                changed = wanted.changed() => {
                    if changed.is_err() { return cancel.cancelled().await }
                    for given in self.pods.all() {
                        if given.last.is_none() && is_ending(&given.pod) {
                            ending.insert(given.pod.uid().clone(), ());
                        }
                    }
                }
            }
        }
    }
}

/// What a pod says of which nothing is known yet: nothing.
pub(crate) fn says_nothing(status: &api::PodStatus) -> bool {
    status.phase.is_none()
}
