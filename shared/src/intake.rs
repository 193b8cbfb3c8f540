//! From what is desired to the pod workers: admission, changes, restarts, leftovers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::status::StatusStore;
use crate::syncer::UpdateKind;
use crate::{
    Admission, Event, KillReason, KillRequest, Lifecycle, Pod, PodKiller, PodUid, PodWorkers,
    Recorder, Rejection, Runtime, RuntimeSyncer,
};

#[cfg(test)]
mod tests;

/// How often leftovers are looked at while there are any. Nothing ticks when there are none.
const HOUSEKEEPING: Duration = Duration::from_secs(2);

/// Keeps the pod workers in step with the pods that a source wants on this node.
///
/// One task owns it, so a pod is never admitted twice and no pod appears in the middle of a pass.
pub struct Intake<R: Runtime> {
    runtime: Arc<R>,
    workers: PodWorkers<RuntimeSyncer<R>>,
    statuses: StatusStore,
    admission: Admission,
    recorder: Arc<dyn Recorder>,
    desired: HashMap<PodUid, Desired>,
    /// UIDs of which the runtime had something when the agent started.
    found: HashMap<PodUid, Found>,
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Running,
    Remains,
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
            if let Some(wanted) = wanted {
                self.apply(&wanted).await;
                self.passes.send_modify(|n| *n += 1);
            }
            tokio::select! {
                changed = desired.changed() => if changed.is_err() { return },
                Ok(()) = closed.changed() => {
                    if !*closed.borrow_and_update() {
                        self.reopen();
                    }
                }
                () = tokio::time::sleep(HOUSEKEEPING), if self.has_leftovers() => {}
            }
        }
    }

    /// Asks the runtime what it still holds from before the agent started. A runtime that does not
    /// answer is asked again until it does: starting pods beside unknown ones could run them twice.
    async fn find_running(&mut self) {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.runtime.list_pods().await {
                Ok(pods) => {
                    self.found = pods
                        .into_iter()
                        .map(|p| (p.uid, if p.running { Found::Running } else { Found::Remains }))
                        .collect();
                    return;
                }
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
        for pod in &wanted.pods {
            self.take(pod);
        }
        let tracked = self.workers.sync_known_pods(&uids);
        self.start_again(&tracked);
        self.tear_down_unknown(&tracked, wanted.complete).await;
    }

    /// Ends the pods that left their source.
    fn drop_undesired(&mut self, uids: &HashSet<PodUid>) {
        let gone: Vec<PodUid> =
            self.desired.keys().filter(|u| !uids.contains(*u)).cloned().collect();
        for uid in gone {
            let Some(desired) = self.desired.remove(&uid) else { continue };
            if desired.refused.is_some() {
                self.statuses.remove(&uid);
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
                if known.refused.is_none() {
                    self.workers.update(UpdateKind::Update, pod.clone(), None);
                }
            }
            None => {
                // What runs already was admitted before the agent restarted, and must be known to
                // its worker even while admission is closed: a shutdown has to end it.
                let runs = self.found.get(pod.uid()) == Some(&Found::Running);
                let refused = if runs { None } else { self.ask(pod) };
                if refused.is_none() {
                    self.workers.update(UpdateKind::Create, pod.clone(), None);
                }
                self.desired.insert(pod.uid().clone(), Desired { pod: pod.clone(), refused });
            }
        }
    }

    fn ask(&self, pod: &Pod) -> Option<Rejection> {
        let others = || self.workers.active_pods();
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
    /// was still ending.
    fn start_again(&mut self, tracked: &HashMap<PodUid, Lifecycle>) {
        for (uid, desired) in &self.desired {
            if desired.refused.is_none() && !tracked.contains_key(uid) {
                // What was said of the former self must not decide about this one.
                self.statuses.remove(uid);
                self.workers.update(UpdateKind::Create, desired.pod.clone(), None);
            }
        }
    }

    /// Ends what runs under UIDs that nobody wants, and removes the remains of pods that are gone.
    async fn tear_down_unknown(
        &mut self,
        tracked: &HashMap<PodUid, Lifecycle>,
        complete: bool,
    ) {
        let unknown: Vec<(PodUid, Found)> = self
            .found
            .iter()
            .filter(|(uid, _)| !tracked.contains_key(*uid) && !self.desired.contains_key(*uid))
            .map(|(uid, found)| (uid.clone(), *found))
            .collect();
        let mut running = Vec::new();
        for (uid, found) in unknown {
            match found {
                Found::Running if !complete => {}
                Found::Running => running.push(uid),
                Found::Remains => self.forget(uid).await,
            }
        }
        if running.is_empty() {
            return;
        }
        let Ok(listed) = self.runtime.list_pods().await else { return };
        for pod in listed.into_iter().filter(|p| running.contains(&p.uid)) {
            tracing::info!(pod = %format_args!("{}/{}", pod.namespace, pod.name), uid = %pod.uid,
                "ending a pod that runs but is no longer wanted");
            self.found.insert(pod.uid.clone(), Found::Remains);
            self.workers.kill_runtime_pod(pod);
        }
    }

    async fn forget(&mut self, uid: PodUid) {
        match self.runtime.forget_pod(&uid).await {
            Ok(()) => {
                self.statuses.remove(&uid);
                self.found.remove(&uid);
            }
            Err(error) => {
                tracing::warn!(%uid, %error, "could not remove a pod's remains; will retry");
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

    /// Whether something still ends or is to be removed.
    fn has_leftovers(&self) -> bool {
        let ending = |(uid, found): (&PodUid, &Found)| {
            *found == Found::Remains && !self.desired.contains_key(uid)
        };
        self.found.iter().any(ending)
            || self.workers.has_restart_requests()
    }
}
