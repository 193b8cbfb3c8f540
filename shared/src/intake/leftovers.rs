//! What the runtime holds besides the pods that the workers know: strays, containers of finished
//! pods, and remains of pods that are gone.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::{Desired, Intake, Wakeup, is_over};
use crate::{
    Event, GateState, KillReason, Lifecycle, Pod, PodUid, Recorder, Retry, Runtime, RuntimeError,
    RuntimePod, UpdateKind, error_chain,
};

/// Interval at which the runtime is listed without a reason: the safety net for a lost event.
const RELIST_INTERVAL: Duration = Duration::from_secs(300);

/// How long one call to the runtime may hold up a pass. The runtime bounds its own calls, but by
/// what its own pods can bear; here, every new pod waits.
pub(super) const RUNTIME_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Finished pods come in groups: all that finish within this time share one pass.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// What the runtime holds, as far as it is not a worker's.
pub(super) struct Leftovers {
    /// Pods that the runtime was found to hold and the workers do not know.
    pub(super) found: HashMap<PodUid, ListedPod>,
    /// The pods that ran when the runtime was last listed, until they are reported to the workers.
    pub(super) listed: Option<Vec<RuntimePod>>,
    /// When to list the runtime again.
    pub(super) list_at: Instant,
    /// How often listing the runtime has failed since it last worked; the first time was logged.
    failures: u32,
}

impl Leftovers {
    /// Before the first listing.
    pub(super) fn new() -> Self {
        Self { found: HashMap::new(), listed: None, list_at: Instant::now(), failures: 0 }
    }
}

/// What the runtime holds of a UID.
pub(super) enum ListedPod {
    /// Containers run. For a desired UID: they ran when the agent started.
    Running(RuntimePod),
    /// Logs and exit records, or containers that a worker is stopping, of a pod that its source dropped. If the source
    /// lists it again, that is a new pod, which starts once these are removed.
    Remains,
    /// Remains, including volumes, of a pod that its source wants, or may want once it is read.
    Unclaimed,
}

impl ListedPod {
    /// Records that nothing of it runs any more.
    pub(super) fn end(&mut self) {
        if matches!(self, Self::Running(_)) {
            *self = Self::Unclaimed;
        }
    }
}

impl<R: Runtime> Intake<R> {
    /// Resolves when there is work that no change of the desired pods requested. Cancel-safe.
    pub(super) async fn next_wakeup(&mut self) -> Wakeup {
        loop {
            tokio::select! {
                told = self.pending_preemption.room_may_have_come() => {
                    told.iter().for_each(|event| self.recorder.record(event));
                    return Wakeup::Room;
                }
                () = self.rejected_static.may_return(&self.workers) => return Wakeup::Room,
                (removed, is_wanted) = self.removals.next(&self.runtime) => {
                    if let Some(uid) = removed {
                        self.leftovers.found.remove(&uid);
                    }
                    if is_wanted {
                        return Wakeup::Pass;
                    }
                    continue;
                }
                () = self.workers.settled() => {}
                () = self.workers.syncer().relist_needed() => self.leftovers.list_at = Instant::now(),
                // A time and not a delay: this future is created again whenever there may be room for a pod.
                () = tokio::time::sleep_until(self.leftovers.list_at) => return Wakeup::Pass,
            }
            tokio::time::sleep(GATHER_TIME).await;
            return Wakeup::Pass;
        }
    }

    /// Lists the runtime. `tracked` is what the workers knew before that.
    pub(super) async fn list(&mut self, tracked: &HashMap<PodUid, Lifecycle>) {
        match self.what_runs().await {
            Ok(pods) => {
                if std::mem::take(&mut self.leftovers.failures) > 0 {
                    tracing::info!("the runtime lists its pods again");
                }
                self.note(pods, tracked);
            }
            Err(error) => {
                let failures = self.leftovers.failures;
                if failures == 0 {
                    warn_of_silence(&error);
                }
                self.leftovers.failures = failures.saturating_add(1);
                self.leftovers.list_at = Instant::now() + Retry::LISTING.delay(failures, 0.0);
            }
        }
    }

    /// Lists the runtime, within [`RUNTIME_CALL_TIMEOUT`].
    pub(super) async fn what_runs(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.workers.listing_begins();
        patiently("listing the pods", self.runtime.list_pods()).await
    }

    /// Begins another run of the pods that have terminated here and that another agent runs again for their source: a
    /// kubelet does, after a shutdown that was called off. The next shutdown has to terminate them.
    pub(super) fn follow_new_runs(&self, tracked: &HashMap<PodUid, Lifecycle>) {
        let ended = tracked.iter().filter(|(_, lifecycle)| **lifecycle >= Lifecycle::Terminated);
        for Desired { pod, .. } in ended.filter_map(|(uid, _)| self.desired.get(uid)) {
            if !is_over(pod) && self.is_kept(pod.uid()) {
                self.workers.update(UpdateKind::Create, pod.clone(), None);
            }
        }
    }

    /// Whether the runtime would not stop the pod for want of a source: another agent runs it.
    pub(super) fn is_kept(&self, uid: &PodUid) -> bool {
        self.runtime.refuses_stop(uid, KillReason::Removed).is_some()
    }

    /// Processes a listing. A pod that a worker knows is left to its worker, except for containers of a pod that had
    /// finished before the listing began: they are orphans and are stopped, unless another agent runs them.
    pub(super) fn note(&mut self, pods: Vec<RuntimePod>, tracked: &HashMap<PodUid, Lifecycle>) {
        self.leftovers.list_at = Instant::now() + RELIST_INTERVAL;
        self.workers.syncer().note_listed(&pods);
        self.leftovers.listed = Some(pods.iter().filter(|pod| pod.running).cloned().collect());
        for pod in pods {
            match tracked.get(&pod.uid) {
                Some(Lifecycle::Finished) if pod.running && !self.is_kept(&pod.uid) => {
                    tracing::warn!(pod = %format_args!("{}/{}", pod.namespace, pod.name),
                        uid = %pod.uid, "stopping containers of a pod that had finished");
                    self.workers.kill_runtime_pod(&pod);
                }
                Some(_) => {}
                None if pod.running => {
                    self.leftovers.found.insert(pod.uid.clone(), ListedPod::Running(pod));
                }
                None => {
                    // It stopped while no agent ran.
                    let kill = self.earlier.kills.get(&pod.uid).map(|kill| kill.request.reason);
                    let left = match kill {
                        Some(KillReason::Removed) => ListedPod::Remains,
                        _ => ListedPod::Unclaimed,
                    };
                    let found = self.leftovers.found.entry(pod.uid);
                    found.and_modify(ListedPod::end).or_insert(left);
                }
            }
        }
    }

    /// Stops what runs under UIDs that no source wants and no worker knows, unless another agent runs it. While the
    /// source is not `complete`, what runs may still be wanted, and while the node may go down, it has its turn in that;
    /// unless an earlier agent requested its termination.
    pub(super) fn end_strays(&mut self, desired: &HashSet<PodUid>, complete: bool) {
        let complete = complete && *self.opening.gate.borrow() == GateState::Open;
        let refused = |uid| self.desired.get(uid).is_some_and(|d| !d.is_admitted());
        let found = self.leftovers.found.iter();
        let strays: Vec<RuntimePod> = found
            .filter(|(uid, _)| complete || self.earlier.kills.contains_key(*uid))
            .filter(|(uid, _)| !desired.contains(*uid) || refused(uid))
            .filter(|(uid, _)| self.workers.lifecycle(uid).is_none())
            .filter(|(uid, _)| self.workers.runs(uid) != Some(false))
            .filter_map(|(_, found)| match found {
                ListedPod::Running(pod) if !self.is_kept(&pod.uid) => Some(pod.clone()),
                ListedPod::Running(_) | ListedPod::Remains | ListedPod::Unclaimed => None,
            })
            .collect();
        for pod in &strays {
            self.end_stray(pod);
        }
    }

    /// Begins to remove the remains of pods that are gone. While the source is not `complete`, a pod from
    /// before the agent started may still be wanted, and keeps its volumes.
    pub(super) fn remove_remains(
        &mut self,
        desired: &HashSet<PodUid>,
        tracked: &HashMap<PodUid, Lifecycle>,
        complete: bool,
    ) {
        let is_left = |uid: &PodUid, found: &ListedPod| match found {
            ListedPod::Running(_) => false,
            ListedPod::Remains => true,
            ListedPod::Unclaimed => complete && !desired.contains(uid),
        };
        let has_worker =
            |uid: &PodUid| tracked.contains_key(uid) || self.workers.lifecycle(uid).is_some();
        let found = self.leftovers.found.iter();
        let left = found.filter(|(uid, found)| is_left(uid, found) && !has_worker(uid));
        self.removals.left = left.map(|(uid, _)| (uid.clone(), desired.contains(uid))).collect();
    }

    /// Whether the pod starts only when the remains of the one before it are removed.
    pub(super) fn awaits_removal(&self, uid: &PodUid) -> bool {
        let is_dropped = matches!(self.leftovers.found.get(uid), Some(ListedPod::Remains))
            && self.workers.lifecycle(uid).is_none()
            && !self.is_kept(uid);
        is_dropped || self.removals.is_current(uid)
    }

    fn end_stray(&mut self, pod: &RuntimePod) {
        self.leftovers.found.insert(pod.uid.clone(), ListedPod::Remains);
        // A pod that was terminating when its source dropped it gets the rest of its grace period.
        match self.earlier_kill(&pod.uid) {
            Some(request) => self.workers.request_kill(Pod::of_runtime(pod), &request),
            None => {
                self.recorder.record(&Event::OrphanFound { pod: pod.pod_ref() });
                self.workers.kill_runtime_pod(pod);
            }
        }
    }
}

pub(super) fn warn_of_silence(error: &RuntimeError) {
    tracing::warn!(error = error_chain(error), "the runtime does not list its pods; retrying");
}

pub(super) async fn patiently<T>(
    what: &str,
    call: impl Future<Output = Result<T, RuntimeError>>,
) -> Result<T, RuntimeError> {
    let timeout = |_| RuntimeError::Timeout { what: what.to_owned(), after: RUNTIME_CALL_TIMEOUT };
    tokio::time::timeout(RUNTIME_CALL_TIMEOUT, call).await.map_err(timeout)?
}
