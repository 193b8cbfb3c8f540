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
    Admission, KillReason, KillRequest, Lifecycle, Others, Pod, PodUid, PodUidMap, PodWorkers,
    Recorder, Rejection, RunningPods, Runtime, RuntimePod, RuntimeSyncer, StartTurn, VictimLock,
    error_chain,
};

mod delays;
mod leftovers;
mod pending_preemption;
mod rejected_static;
#[cfg(test)]
mod tests;
mod turns;

pub use delays::ReturnDelays;
use leftovers::Found;
pub use pending_preemption::WAITING_FOR_PREEMPTION;
use pending_preemption::{PendingPreemption, importance};
use rejected_static::RejectedStatic;

/// A runtime that has not answered for this long is silent.
const SILENCE: Duration = Duration::from_secs(2);

/// How long what runs counts as possibly wanted while no source has been read. A node whose sources
/// cannot be read is shut down all the same.
const SOURCE_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the pod workers in step with the pods that a source wants on this node.
///
/// A pod is *desired* while its source lists it, and *active* while it is desired, was not refused
/// and may still run containers. One task owns the intake, so a pod is never admitted twice and no
/// pod appears in the middle of a pass.
///
/// New pods of one pass are asked by priority, critical ones first. A critical pod that lacks room is
/// held until others have ended for it; `pending_preemption.rs` has the rules. A static pod that was refused or
/// preempted is asked again when there may be room; `rejected_static.rs` has those. A pod whose turn has not come
/// is not asked before it has ([`StartTurn`]).
///
/// A pass is made when the source changed, when admission opens again, when it is others' turn to start,
/// when a pod has finished that is to be forgotten or started anew, and when the runtime has something
/// unknown. Nothing ticks in between, but for the safety net of a pass every five minutes.
pub struct Intake<R: Runtime> {
    runtime: Arc<R>,
    workers: PodWorkers<RuntimeSyncer<R>>,
    statuses: StatusStore,
    admission: Admission,
    recorder: Arc<dyn Recorder>,
    desired: HashMap<PodUid, Desired>,
    /// What the runtime was found to hold beside what the workers know.
    found: HashMap<PodUid, Found>,
    /// What ran when the runtime was last listed, until the workers have been told.
    listed: Option<Vec<RuntimePod>>,
    /// When the runtime is to be listed again.
    list_at: Instant,
    /// The runtime did not say what runs, and the log knows.
    list_fails: bool,
    /// How long to wait before remains that could not be removed are tried again.
    retry: Option<Duration>,
    passes: watch::Sender<u64>,
    victim_lock: VictimLock,
    pending_preemption: PendingPreemption,
    rejected_static: RejectedStatic,
    /// Pods that an earlier agent has asked to end.
    earlier_kills: PodUidMap<KillRequest>,
    /// Of which pods a refusal is the end.
    for_good: Arc<dyn Fn(&Pod) -> bool + Send + Sync>,
    /// Whether admission is closed for the whole node.
    admission_closed: watch::Receiver<bool>,
    /// Which new pods may start now.
    turns: watch::Receiver<StartTurn>,
}

/// What a source wants on this node: all of it, as state.
#[derive(Clone, Debug, Default)]
pub struct DesiredPods {
    /// The pods. An unchanged pod is the same object as before.
    pub pods: Vec<Pod>,
    /// Pods that the source wants too, and cannot hand over yet, such as for want of a Secret. What runs of them is
    /// left alone, and what is left of them, such as volumes, stays.
    pub waiting: Vec<PodUid>,
    /// The source could be read whole. While it could not, a pod that runs and is not listed may be
    /// wanted all the same (its manifest is broken, its directory away): it is left alone.
    pub complete: bool,
}

struct Desired {
    pod: Pod,
    standing: Standing,
}

/// What admission said of a pod.
enum Standing {
    /// A worker has it, or had it.
    Admitted,
    /// It starts when there is room. `again`: it ran before under the same UID.
    PendingPreemption {
        again: bool,
    },
    /// It is asked about when others have started.
    WaitingForTurn,
    Refused(Rejection),
}

/// Why the intake wakes.
enum Reason {
    /// The desired pods have to be gone through.
    Pass,
    /// Pods ended, or did not end in time, while others wait for room or are away.
    Room,
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
        let pending_preemption = PendingPreemption::new(workers.ends());
        Self {
            runtime,
            workers,
            statuses,
            admission,
            recorder,
            desired: HashMap::new(),
            found: HashMap::new(),
            listed: None,
            list_at: Instant::now(),
            list_fails: false,
            retry: None,
            passes: watch::Sender::new(0),
            victim_lock: VictimLock::new(),
            pending_preemption,
            rejected_static: RejectedStatic::default(),
            earlier_kills: PodUidMap::default(),
            for_good: Arc::new(|_| false),
            admission_closed: watch::Sender::new(false).subscribe(),
            turns: watch::Sender::new(StartTurn::default()).subscribe(),
        }
    }

    /// The same, with pods that an earlier agent has asked to end. Those that still run are asked
    /// again before anything else: once their worker looked after them as usual, a container that
    /// ended in this moment would be started again.
    #[must_use]
    pub fn with_earlier_kills(mut self, asked: PodUidMap<KillRequest>) -> Self {
        self.earlier_kills = asked;
        self
    }

    /// The same, told when admission is closed for the whole node, as in a shutdown: when it opens again, pods
    /// that were refused for it are asked again and static pods that it ended come back. That pods are
    /// refused meanwhile is up to [`Admission`]. Without this it is never closed.
    #[must_use]
    pub fn with_admission_closed(mut self, closed: watch::Receiver<bool>) -> Self {
        self.admission_closed = closed;
        self
    }

    /// The same, where a refusal is the end of those pods for which `for_good` is true: an API
    /// server was told that they have failed, and their creator makes others.
    #[must_use]
    pub fn with_refusals_for_good(
        mut self,
        for_good: impl Fn(&Pod) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.for_good = Arc::new(for_good);
        self
    }

    /// The same, choosing victims for a critical pod in turn with all holders of `lock`.
    #[must_use]
    pub fn with_victim_lock(mut self, lock: VictimLock) -> Self {
        self.victim_lock = lock;
        self
    }

    /// The same, letting new pods in when it is their turn. Those that ran before the agent started do not wait.
    /// Without this it is every pod's turn.
    #[must_use]
    pub fn with_turns(mut self, turns: watch::Receiver<StartTurn>) -> Self {
        self.turns = turns;
        self
    }

    /// Counts how often the desired pods were gone through. From 1 on every pod that runs is known
    /// to its worker.
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.passes.subscribe()
    }

    /// Follows `desired` until its sender is gone.
    ///
    /// `desired` is `None` until the source has been read once; nothing is torn down before that.
    pub async fn run(mut self, mut desired: watch::Receiver<Option<Arc<DesiredPods>>>) {
        let (mut closed, mut turns) = (self.admission_closed.clone(), self.turns.clone());
        self.find_running(&mut desired).await;
        self.rejected_static.shut(*closed.borrow_and_update());
        // A source that is slow must not hide what runs.
        let read = desired.wait_for(Option::is_some);
        if tokio::time::timeout(SOURCE_PATIENCE, read).await.is_err() {
            self.publish_running();
        }
        loop {
            let wanted = desired.borrow_and_update().clone();
            if let Some(wanted) = &wanted {
                self.apply(wanted).await;
                self.publish_running();
                self.passes.send_modify(|n| *n += 1);
            }
            loop {
                let reason = tokio::select! {
                    changed = desired.changed() => match changed {
                        Ok(()) => Reason::Pass,
                        Err(_) => return,
                    },
                    Ok(()) = closed.changed() => {
                        let is_closed = *closed.borrow_and_update();
                        self.rejected_static.shut(is_closed);
                        if !is_closed {
                            self.reopen();
                        }
                        Reason::Pass
                    }
                    Ok(()) = turns.changed() => {
                        self.next_turn();
                        Reason::Pass
                    }
                    reason = self.next_reason(), if wanted.is_some() => reason,
                };
                match reason {
                    Reason::Pass => break,
                    Reason::Room => {
                        let mut others = self.others();
                        self.ask_held(&mut others);
                        self.ask_away(&mut others);
                    }
                }
            }
        }
    }

    /// Asks the runtime what it still holds from before the agent started. A runtime that does not
    /// answer is asked again until it does: starting pods beside unknown ones could run them twice.
    ///
    /// Meanwhile what the source wants may run: a shutdown asks for its end, and the runtime says what
    /// came of that as far as it can.
    async fn find_running(&mut self, desired: &mut watch::Receiver<Option<Arc<DesiredPods>>>) {
        let mut wait = Duration::from_millis(100);
        let silent_at = Instant::now() + SILENCE;
        loop {
            let listed = {
                let listing = self.what_runs();
                tokio::pin!(listing);
                tokio::select! {
                    listed = &mut listing => listed,
                    () = self.publish_may_run(desired, silent_at) => listing.await,
                }
            };
            match listed {
                Ok(pods) => return self.note(pods, &HashMap::new()),
                Err(error) => {
                    tracing::warn!(
                        error = error_chain(&error),
                        "the runtime does not say what runs; asking again"
                    );
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    /// Tells the workers from `at` on what the source wants, for as long as it changes.
    async fn publish_may_run(
        &self,
        desired: &mut watch::Receiver<Option<Arc<DesiredPods>>>,
        at: Instant,
    ) {
        tokio::time::sleep_until(at).await;
        loop {
            let wanted = desired.borrow_and_update().clone();
            let pods = wanted.iter().flat_map(|wanted| &wanted.pods);
            let pods = pods.filter(|pod| !is_over(pod)).cloned().collect();
            self.workers.note_running(RunningPods { pods, ..RunningPods::default() });
            if desired.changed().await.is_err() {
                return;
            }
        }
    }

    /// Tells the workers what runs: a shutdown ends that too which was not handed to them. Once for
    /// each listing, as the workers know what has ended since.
    fn publish_running(&mut self) {
        if let Some(runtime_only) = self.listed.take() {
            self.workers.note_running(RunningPods { pods: Vec::new(), runtime_only, known: true });
        }
    }

    async fn apply(&mut self, wanted: &DesiredPods) {
        let pods = wanted.pods.iter().map(Pod::uid);
        let uids: HashSet<PodUid> = pods.chain(&wanted.waiting).cloned().collect();
        self.drop_undesired(&uids);
        // First, so that a static pod waits for what an older manifest of its name has left.
        self.end_strays(&uids, wanted.complete);
        // Of two static pods of one name, the one that runs already comes first.
        for pod in wanted.pods.iter().filter(|p| self.ran_before(p.uid())).collect::<Vec<_>>() {
            self.take(pod);
        }
        let tracked = self.bring_in(wanted, &uids);
        if self.list_at <= Instant::now() {
            self.list(&tracked).await;
            self.end_strays(&uids, wanted.complete);
        }
        self.forget_remains(&uids, &tracked, wanted.complete).await;
    }

    /// Asks for everything that is to start, and hands it to the workers. Returns what they know then.
    fn bring_in(
        &mut self,
        wanted: &DesiredPods,
        uids: &HashSet<PodUid>,
    ) -> HashMap<PodUid, Lifecycle> {
        let mut new = Vec::new();
        for pod in &wanted.pods {
            if !self.take(pod) {
                new.push(pod);
            }
        }
        let mut others = self.others();
        self.ask_held(&mut others);
        new.sort_by_key(|pod| importance(pod));
        for pod in new {
            // Listed twice.
            if self.take(pod) {
                continue;
            }
            let standing = match self.wait_for_turn(pod) {
                Some(waits) => waits,
                None => self.ask(pod, &mut others),
            };
            if matches!(standing, Standing::Admitted) {
                self.start(pod, false);
            }
            self.desired.insert(pod.uid().clone(), Desired { pod: pod.clone(), standing });
        }
        let tracked = self.workers.sync_known_pods(uids);
        self.statuses.retain(|uid| uids.contains(uid) || tracked.contains_key(uid));
        self.start_again(&tracked, &mut others);
        tracked
    }

    /// Ends the pods that left their source.
    fn drop_undesired(&mut self, uids: &HashSet<PodUid>) {
        let gone: Vec<PodUid> =
            self.desired.keys().filter(|u| !uids.contains(*u)).cloned().collect();
        for uid in gone {
            let Some(desired) = self.desired.remove(&uid) else { continue };
            self.rejected_static.forget(&uid);
            // One that was not admitted is known to a worker only if it was deleted as well.
            if !desired.is_admitted() && self.workers.lifecycle(&uid).is_none() {
                continue;
            }
            self.workers.request_kill(desired.pod, &KillRequest::new(KillReason::Removed));
            self.found.insert(uid, Found::Remains);
        }
    }

    /// Takes in a pod that is known or need not be asked about. False: it has to be asked.
    fn take(&mut self, pod: &Pod) -> bool {
        match self.desired.get_mut(pod.uid()) {
            Some(known) if known.pod.is_same_object(pod) => {}
            Some(known) => {
                known.pod = pod.clone();
                // One that was not admitted and is deleted is taken to its end, so that its source
                // can drop it.
                if is_over(pod) && known.waits() {
                    known.standing = Standing::Admitted;
                }
                if known.is_admitted() || is_over(pod) {
                    self.workers.update(UpdateKind::Update, pod.clone(), None);
                }
            }
            None => {
                // What runs already was admitted before the agent restarted, and must be known to
                // its worker even while admission is closed: a shutdown has to end it.
                let runs = self.ran_before(pod.uid());
                // What ends needs no room; what is to start after its former self has ended is asked
                // when that is so.
                let stays = self.earlier_kills.get(pod.uid()).is_some_and(KillRequest::stays);
                let ends =
                    is_over(pod) || stays || self.workers.is_termination_requested(pod.uid());
                if !runs && !ends {
                    return false;
                }
                match self.earlier_kills.remove(pod.uid()) {
                    Some(request) if runs || stays => {
                        if request.reason == KillReason::Preemption && pod.is_static() {
                            self.rejected_static.note(pod, true);
                        }
                        self.workers.request_kill(pod.clone(), &request);
                        if request.reason == KillReason::Removed {
                            // It is wanted again by now, and starts anew once it has ended.
                            self.workers.update(UpdateKind::Create, pod.clone(), None);
                        }
                    }
                    _ => self.workers.update(UpdateKind::Create, pod.clone(), None),
                }
                let standing = Standing::Admitted;
                self.desired.insert(pod.uid().clone(), Desired { pod: pod.clone(), standing });
            }
        }
        true
    }

    fn ran_before(&self, uid: &PodUid) -> bool {
        matches!(self.found.get(uid), Some(Found::Running(_)))
    }

    /// Starts admitted pods that the workers do not know: a UID that came back while its former self
    /// was still ending. It is asked like any other new pod: the node may be another one than when
    /// its former self was let in.
    fn start_again(&mut self, tracked: &HashMap<PodUid, Lifecycle>, others: &mut Others) {
        let mut unknown: Vec<Pod> = self
            .desired
            .values()
            .filter(|d| d.is_admitted() && !tracked.contains_key(d.pod.uid()))
            .filter(|d| !has_terminal_phase(&d.pod))
            .map(|d| d.pod.clone())
            .collect();
        unknown.sort_by_key(|pod| (importance(pod), pod.full_name().clone()));
        for pod in unknown {
            // What was said of the former self must not decide about this one.
            self.statuses.remove(pod.uid());
            let mut standing = self.ask(&pod, others);
            match &mut standing {
                Standing::Admitted => self.start(&pod, true),
                Standing::PendingPreemption { again } => *again = true,
                Standing::WaitingForTurn | Standing::Refused(_) => {}
            }
            if let Some(desired) = self.desired.get_mut(pod.uid()) {
                desired.standing = standing;
            }
        }
    }

    /// Admission is open again: a cancelled shutdown leaves a node that works as before.
    fn reopen(&mut self) {
        let waiting: Vec<Pod> = self
            .desired
            .values()
            .filter(|d| matches!(&d.standing, Standing::Refused(rejection) if rejection.retryable))
            .filter(|d| !(self.for_good)(&d.pod))
            .map(|d| d.pod.clone())
            .collect();
        for pod in waiting {
            self.desired.remove(pod.uid());
            self.statuses.remove(pod.uid());
            self.rejected_static.forget(pod.uid());
        }
        self.rejected_static.node_changed();
        let ended = self
            .workers
            .snapshot()
            .into_iter()
            .filter(|s| matches!(s.ending_by, Some(KillReason::Shutdown | KillReason::Drain)));
        for pod in ended.filter(|s| s.stays || s.pod.as_ref().is_some_and(Pod::is_static)) {
            let Some(pod) = pod.pod else { continue };
            self.workers.update(UpdateKind::Create, pod, None);
        }
    }
}

impl DesiredPods {
    /// These pods, and no other.
    #[must_use]
    pub fn all(pods: Vec<Pod>) -> Self {
        Self { pods, waiting: Vec::new(), complete: true }
    }
}

impl Desired {
    fn is_admitted(&self) -> bool {
        matches!(self.standing, Standing::Admitted)
    }

    fn waits(&self) -> bool {
        matches!(self.standing, Standing::PendingPreemption { .. } | Standing::WaitingForTurn)
    }
}

/// Whether the pod only has to be ended and freed.
fn is_over(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || has_terminal_phase(pod)
}
