//! From what is desired to the pod workers: admission, changes, restarts, leftovers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::status::StatusStore;
use crate::syncer::UpdateKind;
use crate::workers::has_terminal_phase;
use crate::{
    Admission, Event, KillReason, KillRequest, Lifecycle, Pod, PodKiller, PodUid, PodWorkers,
    Recorder, Rejection, Runtime, RuntimeSyncer,
};

mod leftovers;
#[cfg(test)]
mod tests;

use leftovers::Found;

/// Keeps the pod workers in step with the pods that a source wants on this node.
///
/// A pod is *desired* while its source lists it, and *active* while it is desired, was not refused
/// and may still run containers. One task owns the intake, so a pod is never admitted twice and no
/// pod appears in the middle of a pass.
///
/// A pass is made when the source changed, when admission opens again, when a pod has finished that
/// is to be forgotten or started anew, and when the runtime has something that nobody knows. Nothing
/// ticks in between, but for the safety net of a pass every five minutes.
pub struct Intake<R: Runtime> {
    runtime: Arc<R>,
    workers: PodWorkers<RuntimeSyncer<R>>,
    statuses: StatusStore,
    admission: Admission,
    recorder: Arc<dyn Recorder>,
    desired: HashMap<PodUid, Desired>,
    /// What the runtime was found to hold beside what the workers know.
    found: HashMap<PodUid, Found>,
    /// When the runtime is to be listed again.
    list_at: Instant,
    /// How long to wait before remains that could not be removed are tried again.
    retry: Option<Duration>,
    passes: watch::Sender<u64>,
}

/// What a source wants on this node: all of it, as state.
#[derive(Clone, Debug, Default)]
pub struct DesiredPods {
    /// The pods. An unchanged pod is the same object as before.
    pub pods: Vec<Pod>,
    /// The source could be read whole. While it could not, a pod that runs and is not listed may be
    /// wanted all the same (its manifest is broken, its directory away): it is left alone.
    pub complete: bool,
}

struct Desired {
    pod: Pod,
    refused: Option<Rejection>,
}

impl<R: Runtime> Intake<R> {
    /// An intake that knows no pod yet.
    pub fn new(
        runtime: Arc<R>,
        workers: PodWorkers<RuntimeSyncer<R>>,
        statuses: StatusStore,
        admission: Admission,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        Self {
            runtime,
            workers,
            statuses,
            admission,
            recorder,
            desired: HashMap::new(),
            found: HashMap::new(),
            list_at: Instant::now(),
            retry: None,
            passes: watch::Sender::new(0),
        }
    }

    /// Counts how often the desired pods were gone through. From 1 on every pod that runs is known
    /// to its worker.
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.passes.subscribe()
    }

    /// Follows `desired` until its sender is gone.
    ///
    /// `desired` is `None` until the source has been read once; nothing is torn down before that.
    /// `closed` is true while admission is closed for the whole node (a shutdown): when it opens
    /// again, pods that were refused for it are asked again and static pods that it ended come back.
    pub async fn run(
        mut self,
        mut desired: watch::Receiver<Option<Arc<DesiredPods>>>,
        mut closed: watch::Receiver<bool>,
    ) {
        self.find_running().await;
        loop {
            let wanted = desired.borrow_and_update().clone();
            if let Some(wanted) = &wanted {
                self.apply(wanted).await;
                self.passes.send_modify(|n| *n += 1);
            }
            tokio::select! {
                changed = desired.changed() => if changed.is_err() { return },
                Ok(()) = closed.changed() => {
                    if !*closed.borrow_and_update() {
                        self.reopen();
                    }
                }
                () = self.something_to_clear_up(), if wanted.is_some() => {}
            }
        }
    }

    /// Asks the runtime what it still holds from before the agent started. A runtime that does not
    /// answer is asked again until it does: starting pods beside unknown ones could run them twice.
    async fn find_running(&mut self) {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.what_runs().await {
                Ok(pods) => return self.note(pods, &HashMap::new()),
                Err(error) => {
                    tracing::warn!(%error, "the runtime does not say what runs; asking again");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    async fn apply(&mut self, wanted: &DesiredPods) {
        let uids: HashSet<PodUid> = wanted.pods.iter().map(|p| p.uid().clone()).collect();
        self.drop_undesired(&uids);
        // First, so that a static pod waits for what an older manifest of its name has left.
        self.end_strays(&uids, wanted.complete);
        // Of two static pods of one name, the one that runs already comes first.
        for pod in wanted.pods.iter().filter(|p| self.ran_before(p.uid())).collect::<Vec<_>>() {
            self.take(pod);
        }
        for pod in &wanted.pods {
            self.take(pod);
        }
        let tracked = self.workers.sync_known_pods(&uids);
        self.statuses.retain(|uid| uids.contains(uid) || tracked.contains_key(uid));
        self.start_again(&tracked);
        if self.list_at <= Instant::now() {
            self.list(&tracked).await;
            self.end_strays(&uids, wanted.complete);
        }
        self.forget_remains(&tracked).await;
    }

    /// Ends the pods that left their source.
    fn drop_undesired(&mut self, uids: &HashSet<PodUid>) {
        let gone: Vec<PodUid> =
            self.desired.keys().filter(|u| !uids.contains(*u)).cloned().collect();
        for uid in gone {
            let Some(desired) = self.desired.remove(&uid) else { continue };
            // A refused pod is known to a worker only if it was deleted as well.
            if desired.refused.is_some() && self.workers.lifecycle(&uid).is_none() {
                continue;
            }
            self.workers.request_kill(desired.pod, &KillRequest::new(KillReason::Removed));
            self.found.insert(uid, Found::Remains);
        }
    }

    /// Hands a new or changed pod to its worker, if it is admitted.
    fn take(&mut self, pod: &Pod) {
        match self.desired.get_mut(pod.uid()) {
            Some(known) if known.pod.is_same_object(pod) => {}
            Some(known) => {
                known.pod = pod.clone();
                // A refused pod that is deleted is taken to its end, so that its source can drop it.
                if known.refused.is_none() || is_over(pod) {
                    self.workers.update(UpdateKind::Update, pod.clone(), None);
                }
            }
            None => {
                // What runs already was admitted before the agent restarted, and must be known to
                // its worker even while admission is closed: a shutdown has to end it.
                let runs = self.ran_before(pod.uid());
                // What ends needs no room; what is to start after its former self has ended is asked
                // when that is so.
                let ends = is_over(pod) || self.workers.is_termination_requested(pod.uid());
                let refused = if runs || ends { None } else { self.ask(pod) };
                if refused.is_none() {
                    self.workers.update(UpdateKind::Create, pod.clone(), None);
                }
                self.desired.insert(pod.uid().clone(), Desired { pod: pod.clone(), refused });
            }
        }
    }

    fn ran_before(&self, uid: &PodUid) -> bool {
        matches!(self.found.get(uid), Some(Found::Running(_)))
    }

    fn ask(&self, pod: &Pod) -> Option<Rejection> {
        let others = || {
            let mut pods = self.workers.active_pods();
            pods.retain(|p| p.uid() != pod.uid());
            pods
        };
        let Err(rejection) = self.admission.admit(pod, &others) else {
            self.recorder.record(&Event::PodAdmitted { pod: pod.label().clone() });
            return None;
        };
        self.recorder.record(&Event::PodRejected {
            pod: pod.label().clone(),
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
        });
        self.statuses.reject(pod.clone(), &rejection);
        Some(rejection)
    }

    /// Starts admitted pods that the workers do not know: a UID that came back while its former self
    /// was still ending. It is asked like any other new pod: the node may be another one than when
    /// its former self was let in.
    fn start_again(&mut self, tracked: &HashMap<PodUid, Lifecycle>) {
        let unknown: Vec<Pod> = self
            .desired
            .values()
            .filter(|d| d.refused.is_none() && !tracked.contains_key(d.pod.uid()))
            .filter(|d| !has_terminal_phase(&d.pod))
            .map(|d| d.pod.clone())
            .collect();
        for pod in unknown {
            // What was said of the former self must not decide about this one.
            self.statuses.remove(pod.uid());
            let refused = self.ask(&pod);
            if refused.is_none() {
                self.recorder.record(&Event::PodRestarted {
                    pod: pod.label().clone(),
                    is_static: pod.is_static(),
                });
                self.workers.update(UpdateKind::Create, pod.clone(), None);
            }
            if let Some(desired) = self.desired.get_mut(pod.uid()) {
                desired.refused = refused;
            }
        }
    }

    /// Admission is open again: a cancelled shutdown leaves a node that works as before.
    fn reopen(&mut self) {
        let waiting: Vec<Pod> = self
            .desired
            .values()
            .filter(|d| d.refused.as_ref().is_some_and(|r| r.passing))
            .map(|d| d.pod.clone())
            .collect();
        for pod in waiting {
            self.desired.remove(pod.uid());
            self.statuses.remove(pod.uid());
        }
        let ended = self
            .workers
            .snapshot()
            .into_iter()
            .filter(|s| matches!(s.ending_by, Some(KillReason::Shutdown | KillReason::Drain)));
        for pod in ended.filter_map(|s| s.pod).filter(Pod::is_static) {
            self.workers.update(UpdateKind::Create, pod, None);
        }
    }
}

/// Whether the pod only has to be ended and freed.
fn is_over(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || has_terminal_phase(pod)
}
