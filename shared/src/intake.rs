//! Passes the desired pods to the pod workers: admission, changes, restarts, leftovers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::status::StatusStore;
use crate::workers::has_terminal_phase;
use crate::workers::syncer::UpdateKind;
use crate::{
    Admission, Backoff, BootClock, ContainedRecorder, EarlierKill, GateState, KillReason,
    KillRequest, Lifecycle, OtherPods, Pod, PodUid, PodUidMap, PodWorkers, Recorder, Rejection,
    RestartCondition, RunningPods, Runtime, RuntimeSyncer, StartTurn, VictimLock,
};

mod delays;
mod leftovers;
mod outlook;
mod pending_preemption;
mod rejected_static;
mod removals;
#[cfg(test)]
mod tests;
mod turns;

pub use delays::ReadmissionBackoff;
use leftovers::{Leftovers, ListedPod};
pub use outlook::Outlook;
pub use pending_preemption::WAITING_FOR_PREEMPTION;
use pending_preemption::{PendingPreemption, importance};
use rejected_static::RejectedStatic;
use removals::Removals;

/// How long the runtime may take to answer before it counts as silent.
const RUNTIME_SILENT_AFTER: Duration = Duration::from_secs(2);

/// How long running pods count as possibly wanted while no source has been read. A node whose
/// sources cannot be read is shut down all the same.
const SOURCE_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the pod workers in step with the pods that a source wants on this node.
///
/// A pod is *desired* while its source lists it, and *active* while it is desired, was not refused and may still run
/// containers. One task owns the intake, so a pod is never admitted twice and no pod appears in the middle of a pass.
///
/// New pods of one pass are admitted in order of priority, critical ones first, and of equals the older first. A critical
/// pod that lacks room is held until others have terminated for it; `pending_preemption.rs` has the rules. A static pod
/// that was refused or preempted is tried again when there may be room; see `rejected_static.rs`. A pod whose turn has not
/// come is not tried before ([`StartTurn`]).
///
/// A pass is made when the source changed, when admission opens again, when the start turn changes, when a pod has
/// finished that is to be forgotten or started again, and when the runtime has an unknown change. There is no polling
/// in between, except for a pass every five minutes as a safety net.
pub struct Intake<R: Runtime> {
    runtime: Arc<R>,
    workers: PodWorkers<RuntimeSyncer<R>>,
    statuses: StatusStore,
    admission: Admission,
    recorder: ContainedRecorder,
    desired: HashMap<PodUid, Desired>,
    leftovers: Leftovers,
    removals: Removals,
    passes: watch::Sender<u64>,
    victim_lock: VictimLock,
    pending_preemption: PendingPreemption,
    rejected_static: RejectedStatic,
    earlier: Earlier,
    /// Whether a refusal of this pod is final.
    refusal_is_final: Arc<dyn Fn(&Pod) -> bool + Send + Sync>,
    opening: Opening,
}

/// When new pods may start.
struct Opening {
    /// Whether the whole node admits pods.
    gate: watch::Receiver<GateState>,
    /// Which new pods may start now.
    turns: watch::Receiver<StartTurn>,
}

/// Pods that an earlier agent requested to terminate, and the clock of their ends.
struct Earlier {
    kills: PodUidMap<EarlierKill>,
    clock: BootClock,
}

/// The pods that a source wants on this node: all of them, as state.
#[derive(Clone, Debug, Default)]
pub struct DesiredPods {
    /// The pods. An unchanged pod is the same object as before.
    pub pods: Vec<Pod>,
    /// Pods that the source also wants, but cannot hand over yet, for example because a Secret is missing. Their
    /// running containers are left alone, and their remains, such as volumes, are kept.
    pub waiting: Vec<PodUid>,
    /// Whether the source could be read completely. If not, a pod of an earlier agent that is not listed may still be
    /// wanted (its manifest is broken, its directory unavailable): it is left alone. A pod that this agent was given is
    /// terminated as soon as it is not listed, complete or not: one that cannot be read any more stays in `pods` or
    /// `waiting`.
    pub complete: bool,
    /// Whether pods may be missing because the source has not been read yet. An ordered start waits for them, but not for
    /// the pod of a manifest that is invalid: that may stay so for ever.
    pub awaited: bool,
}

struct Desired {
    pod: Pod,
    state: AdmissionState,
}

/// The result of admission for a pod.
enum AdmissionState {
    /// A worker has the pod, or had it.
    Admitted,
    /// The pod starts when there is room. `again`: it ran before under the same UID.
    PendingPreemption {
        again: bool,
    },
    /// The pod is tried when others have started.
    WaitingForTurn,
    Refused(Rejection),
}

/// Why the intake wakes up.
enum Wakeup {
    /// The desired pods have to be processed.
    Pass,
    /// Pods terminated, or missed their deadline, while others wait for room or are rejected.
    Room,
}

impl<R: Runtime> Intake<R> {
    /// Creates an intake that knows no pod yet.
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
            recorder: ContainedRecorder::new(recorder),
            desired: HashMap::new(),
            leftovers: Leftovers::new(),
            removals: Removals::none(),
            passes: watch::Sender::new(0),
            victim_lock: VictimLock::new(),
            pending_preemption,
            rejected_static: RejectedStatic::default(),
            earlier: Earlier {
                kills: PodUidMap::default(),
                clock: BootClock::new(|| Duration::ZERO),
            },
            refusal_is_final: Arc::new(|_| false),
            opening: Opening {
                gate: watch::Sender::new(GateState::Open).subscribe(),
                turns: watch::Sender::new(StartTurn::default()).subscribe(),
            },
        }
    }

    /// Sets the pods that an earlier agent requested to terminate, and the clock of their ends. Those that still run
    /// are requested again before anything else: if their worker synced them first, a container that exited at this
    /// moment would be restarted. A recorder that keeps each [`crate::Event::KillRequested`] in `/run` knows them.
    #[must_use]
    pub fn with_earlier_kills(mut self, kills: PodUidMap<EarlierKill>, clock: BootClock) -> Self {
        (self.earlier.kills, self.earlier.clock) = (kills, clock);
        self
    }

    /// Sets the state of admission for the whole node. While it is undecided, new pods wait. Whenever it is sent as open,
    /// as after a shutdown or the end of a shortage, pods with a retryable refusal are tried again, and static pods that a
    /// shutdown terminated come back. Refusing pods while it is shut is up to [`Admission`]. Without this, it is open.
    #[must_use]
    pub fn with_gate(mut self, gate: watch::Receiver<GateState>) -> Self {
        self.opening.gate = gate;
        self
    }

    /// Sets the pods for which a refusal is final: those for which `refusal_is_final` returns true. The API
    /// server was told that they have failed, and their controller creates others.
    #[must_use]
    pub fn with_final_rejections(
        mut self,
        refusal_is_final: impl Fn(&Pod) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.refusal_is_final = Arc::new(refusal_is_final);
        self
    }

    /// Sets the lock that serializes the choice of victims for a critical pod with the other holders of `lock`.
    #[must_use]
    pub fn with_victim_lock(mut self, lock: VictimLock) -> Self {
        self.victim_lock = lock;
        self
    }

    /// Sets the turns in which new pods start. Pods that ran before the agent started do not wait.
    /// Without this, all pods may start.
    #[must_use]
    pub fn with_turns(mut self, turns: watch::Receiver<StartTurn>) -> Self {
        self.opening.turns = turns;
        self
    }

    /// A counter of passes over the desired pods. From 1 on, every running pod is known to its worker.
    pub fn passes(&self) -> watch::Receiver<u64> {
        self.passes.subscribe()
    }

    /// Follows `desired` until its sender is gone.
    ///
    /// `desired` is `None` until the source has been read once; nothing is torn down before that.
    pub async fn run(mut self, mut desired: watch::Receiver<Option<Arc<DesiredPods>>>) {
        let (mut gate, mut turns) = (self.opening.gate.clone(), self.opening.turns.clone());
        self.find_running(&mut desired).await;
        self.rejected_static.shut(*gate.borrow_and_update() != GateState::Open);
        // A slow source must not hide what runs.
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
                let wakeup = tokio::select! {
                    changed = desired.changed() => match changed {
                        Ok(()) => Wakeup::Pass,
                        Err(_) => return,
                    },
                    Ok(()) = gate.changed() => {
                        let state = *gate.borrow_and_update();
                        self.gate_changed(state);
                        Wakeup::Pass
                    }
                    Ok(()) = turns.changed() => {
                        self.next_turn();
                        Wakeup::Pass
                    }
                    wakeup = self.next_wakeup(), if wanted.is_some() => wakeup,
                };
                match wakeup {
                    Wakeup::Pass => break,
                    Wakeup::Room => {
                        let mut others = self.workers.others();
                        self.retry_held(&mut others);
                        self.retry_rejected(&mut others);
                    }
                }
            }
        }
    }

    /// Lists what the runtime still holds from before the agent started, and retries until it
    /// answers: starting pods next to unknown ones could run them twice.
    ///
    /// Meanwhile, the pods that the source wants count as possibly running: a shutdown requests
    /// their termination, and the runtime reports the result as far as it can.
    async fn find_running(&mut self, desired: &mut watch::Receiver<Option<Arc<DesiredPods>>>) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let silent_at = Instant::now() + RUNTIME_SILENT_AFTER;
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
                    leftovers::warn_of_silence(&error);
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Reports the pods that the source wants to the workers, from `at` on and with every change.
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

    /// Reports the running pods to the workers, so that a shutdown also terminates those that were
    /// not handed to them. Once per listing, as the workers know what has terminated since.
    fn publish_running(&mut self) {
        if let Some(runtime_only) = self.leftovers.listed.take() {
            self.workers.note_running(RunningPods { pods: Vec::new(), runtime_only, known: true });
        }
    }

    async fn apply(&mut self, wanted: &DesiredPods) {
        let kept = self.keeping_turns(wanted);
        let wanted = kept.as_ref().unwrap_or(wanted);
        let pods = wanted.pods.iter().map(Pod::uid);
        let uids: HashSet<PodUid> = pods.chain(&wanted.waiting).cloned().collect();
        self.drop_undesired(&uids, &wanted.pods);
        // First, so that a static pod waits for the leftovers of an older manifest of its name.
        self.end_strays(&uids, wanted.complete);
        // Of two static pods with one name, the one that already runs comes first.
        let from_before =
            |pod: &&Pod| self.ran_before(pod.uid()) || self.earlier.kills.contains_key(pod.uid());
        for pod in wanted.pods.iter().filter(from_before).collect::<Vec<_>>() {
            self.take(pod);
        }
        // From here on, what runs without a worker is in no source, and takes room.
        self.publish_running();
        let tracked = self.bring_in(wanted, &uids);
        if self.leftovers.list_at <= Instant::now() {
            self.list(&tracked).await;
            self.publish_running();
            self.end_strays(&uids, wanted.complete);
        }
        self.remove_remains(&uids, &tracked, wanted.complete);
    }

    /// Runs admission for everything that is to start, and hands it to the workers. Returns what they then track.
    fn bring_in(
        &mut self,
        wanted: &DesiredPods,
        uids: &HashSet<PodUid>,
    ) -> HashMap<PodUid, Lifecycle> {
        let mut new: Vec<&Pod> = wanted.pods.iter().filter(|pod| !self.take(pod)).collect();
        let mut others = self.workers.others();
        self.retry_held(&mut others);
        new.sort_by_key(|pod| importance(pod));
        for pod in new {
            // The pod was listed twice.
            if self.take(pod) {
                continue;
            }
            let state = match self.wait_for_turn(pod) {
                Some(waits) => waits,
                None => self.admit(pod, &mut others),
            };
            if matches!(state, AdmissionState::Admitted) {
                self.start(pod, false);
            }
            self.desired.insert(pod.uid().clone(), Desired { pod: pod.clone(), state });
        }
        // Until the node admits pods again, a pod that is to start again keeps its worker, and its status.
        self.workers.hold_restarts(*self.opening.gate.borrow() == GateState::Shut);
        let tracked = self.workers.sync_known_pods(uids);
        self.follow_new_runs(&tracked);
        self.statuses.retain(|uid| uids.contains(uid) || tracked.contains_key(uid));
        self.start_again(&tracked, &mut others);
        tracked
    }

    /// What is wanted while the node admits no pods, if that is so: a manifest's pod stays as it was until it is asked. Nothing
    /// would start in its place, and its turn may come after those of others.
    fn keeping_turns(&self, wanted: &DesiredPods) -> Option<DesiredPods> {
        let is_shut = *self.opening.gate.borrow() == GateState::Shut;
        let mut pods = is_shut.then(|| self.workers.places().non_terminating)?;
        pods.retain(Pod::is_static);
        let kept: HashSet<PodUid> = pods.iter().map(|pod| pod.uid().clone()).collect();
        pods.extend(wanted.pods.iter().filter(|pod| !kept.contains(pod.uid())).cloned());
        Some(DesiredPods { pods, ..wanted.clone() })
    }

    /// Terminates the pods that left their source. A static pod whose manifest changed under a UID of its own did, too:
    /// it starts again as the new one.
    fn drop_undesired(&mut self, uids: &HashSet<PodUid>, wanted: &[Pod]) {
        let gone = self.desired.keys().filter(|uid| !uids.contains(*uid));
        let changed = wanted.iter().filter(|pod| {
            let known = self.desired.get(pod.uid()).map(|desired| &desired.pod);
            let differs = |known: &Pod| !known.is_same_object(pod) && known.spec != pod.spec;
            pod.is_static() && known.is_some_and(differs)
        });
        let gone: Vec<PodUid> = gone.chain(changed.map(|pod| pod.uid())).cloned().collect();
        for uid in gone {
            let Some(desired) = self.desired.remove(&uid) else { continue };
            self.rejected_static.forget(&uid);
            // A pod that was not admitted has a worker only if it was deleted as well.
            if !desired.is_admitted() && self.workers.lifecycle(&uid).is_none() {
                self.statuses.remove(&uid);
                continue;
            }
            self.workers.request_kill(desired.pod, &KillRequest::new(KillReason::Removed));
            self.leftovers.found.insert(uid, ListedPod::Remains);
        }
    }

    /// Handles a pod that is known or needs no admission. Returns false if it has to be admitted.
    fn take(&mut self, pod: &Pod) -> bool {
        match self.desired.get_mut(pod.uid()) {
            Some(known) if known.pod.is_same_object(pod) => {}
            Some(known) => {
                known.pod = pod.clone();
                if has_terminal_phase(pod)
                    && let Some(said) = self.statuses.get(pod.uid())
                {
                    self.statuses.set(pod.clone(), said.as_ref().clone());
                }
                // A pod that was not admitted and is deleted is taken to its final state, so that
                // its source can drop it.
                if is_over(pod) && known.waits() {
                    known.state = AdmissionState::Admitted;
                }
                if known.is_admitted() || is_over(pod) {
                    self.workers.update(UpdateKind::Update, pod.clone(), None);
                }
            }
            None => {
                // It is taken once the removal is over.
                if self.awaits_removal(pod.uid()) {
                    return true;
                }
                if !self.take_known(pod) {
                    return false;
                }
                let state = AdmissionState::Admitted;
                self.desired.insert(pod.uid().clone(), Desired { pod: pod.clone(), state });
            }
        }
        true
    }

    /// Hands a new pod that needs no admission to its worker. Returns false if it needs admission.
    fn take_known(&mut self, pod: &Pod) -> bool {
        // A pod that already runs was admitted before the agent restarted, and must be known to its worker even while
        // admission is closed: a shutdown has to terminate it.
        let kill = self.earlier.kills.get(pod.uid());
        let is_kept_out = kill.is_some_and(|kill| kill.keeps_out(pod.is_static()));
        let is_kept_out = is_kept_out && !has_terminal_phase(pod);
        let here = self.ran_before(pod.uid()) || is_kept_out;
        if here && self.resume_kill(pod) {
            return true;
        }
        self.end_changed(pod);
        // A terminating pod needs no room. A pod that is to start after its predecessor has terminated is admitted at
        // that time.
        if here || is_over(pod) || self.workers.is_termination_requested(pod.uid()) {
            self.workers.update(UpdateKind::Create, pod.clone(), None);
            return true;
        }
        let left = matches!(self.leftovers.found.get(pod.uid()), Some(ListedPod::Unclaimed));
        let had_completed = left && self.runtime.has_completed(pod);
        if had_completed {
            self.workers.take_completed(pod.clone());
        }
        had_completed
    }

    /// Takes up the kill that an earlier agent requested of this pod. Returns whether there is one.
    fn resume_kill(&mut self, pod: &Pod) -> bool {
        let Some(request) = self.earlier_kill(pod.uid()) else { return false };
        // What cannot be carried out any more would be tried for ever.
        if self.runtime.refuses_stop(pod.uid(), request.reason).is_some() {
            return false;
        }
        self.workers.resume_kill(pod.clone(), &request);
        // Admission may have opened before this agent knew what runs. If not, `reopen` starts the pod.
        let is_open = *self.opening.gate.borrow() == GateState::Open && !self.is_kept(pod.uid());
        let comes_back = pod.is_static() || request.restarts_on_node();
        match request.reason.restart_condition() {
            RestartCondition::AdmissionReopens if is_open && comes_back => {
                self.workers.update(UpdateKind::Create, pod.clone(), None);
            }
            // It is wanted again.
            RestartCondition::SourceListsIt => {
                self.leftovers.found.insert(pod.uid().clone(), ListedPod::Remains);
                self.workers.update(UpdateKind::Create, pod.clone(), None);
            }
            RestartCondition::RoomIsFree if pod.is_static() => self.rejected_static.note(pod, true),
            // The workers start the pod again, the controller that terminated it does, or it stays terminated.
            RestartCondition::Terminated
            | RestartCondition::PressureEnds
            | RestartCondition::Never
            | RestartCondition::AdmissionReopens
            | RestartCondition::RoomIsFree => {}
        }
        true
    }

    /// Terminates a static pod whose manifest changed under a UID of its own while no agent ran: it starts again as the
    /// new one.
    fn end_changed(&mut self, pod: &Pod) {
        if let Some(ListedPod::Running(old)) = self.leftovers.found.get(pod.uid())
            && pod.is_static()
            && old.differs_from(pod)
        {
            self.workers.kill_runtime_pod(old);
            self.leftovers.found.insert(pod.uid().clone(), ListedPod::Remains);
        }
    }

    /// Removes the kill that an earlier agent requested of this pod, and returns it with what is left of its grace.
    fn earlier_kill(&mut self, uid: &PodUid) -> Option<KillRequest> {
        let kill = self.earlier.kills.remove(uid)?;
        let request = kill.request_at(self.earlier.clock.now());
        Some(KillRequest { is_recorded: kill.has_terminated && !self.ran_before(uid), ..request })
    }

    fn ran_before(&self, uid: &PodUid) -> bool {
        matches!(self.leftovers.found.get(uid), Some(ListedPod::Running(_)))
    }

    /// Starts admitted pods that the workers do not know: a UID that came back while its predecessor was still
    /// terminating. It is admitted like any new pod: the node may have changed since the predecessor was admitted.
    fn start_again(&mut self, tracked: &HashMap<PodUid, Lifecycle>, others: &mut OtherPods) {
        let admitted = self.desired.values().filter(|d| d.is_admitted()).map(|d| &d.pod);
        let unknown = admitted.filter(|p| !tracked.contains_key(p.uid()) && !has_terminal_phase(p));
        let mut unknown: Vec<Pod> = unknown.cloned().collect();
        unknown.sort_by_key(|pod| (importance(pod), pod.full_name().clone()));
        for pod in unknown {
            // The predecessor's status must not affect this pod, nor must its containers if they ran when the agent
            // started: nothing of it runs any more.
            if let Some(found) = self.leftovers.found.get_mut(pod.uid()) {
                found.end();
            }
            let is_removed = self.awaits_removal(pod.uid());
            // Deleted or completed: it needs no room, and its status is final.
            if is_over(&pod) || (!is_removed && self.runtime.has_completed(&pod)) {
                self.workers.update(UpdateKind::Create, pod, None);
                continue;
            }
            self.statuses.remove(pod.uid());
            if is_removed {
                continue;
            }
            self.retry(&pod, true, others);
        }
    }

    /// Handles a change of the node's admission.
    fn gate_changed(&mut self, state: GateState) {
        self.rejected_static.shut(state != GateState::Open);
        if !matches!(state, GateState::Undecided { .. }) {
            self.end_wait();
        }
        if state == GateState::Open {
            self.reopen();
        }
    }

    /// Handles the reopening of admission: a cancelled shutdown leaves a node that works as before.
    fn reopen(&mut self) {
        let refused = |d: &&Desired| matches!(&d.state, AdmissionState::Refused(r) if r.retryable);
        let waiting = self.desired.values().filter(refused).map(|d| d.pod.clone());
        let waiting: Vec<Pod> = waiting.filter(|pod| !(self.refusal_is_final)(pod)).collect();
        for pod in waiting {
            self.desired.remove(pod.uid());
            self.statuses.remove(pod.uid());
            self.rejected_static.forget(pod.uid());
        }
        self.rejected_static.node_changed();
        let is_due = |by: KillReason| by.restart_condition() == RestartCondition::AdmissionReopens;
        let ended =
            self.workers.snapshot().into_iter().filter(|s| s.prior_reason.is_some_and(is_due));
        for pod in
            ended.filter(|s| s.restarts_on_node || s.pod.as_ref().is_some_and(Pod::is_static))
        {
            let Some(pod) = pod.pod else { continue };
            self.workers.update(UpdateKind::Create, pod, None);
        }
    }
}

impl DesiredPods {
    /// Exactly these pods.
    #[must_use]
    pub fn all(pods: Vec<Pod>) -> Self {
        Self { pods, waiting: Vec::new(), complete: true, awaited: false }
    }
}

impl Desired {
    fn is_admitted(&self) -> bool {
        matches!(self.state, AdmissionState::Admitted)
    }

    fn waits(&self) -> bool {
        !matches!(self.state, AdmissionState::Admitted | AdmissionState::Refused(_))
    }
}

/// Whether the pod only has to be terminated and freed.
fn is_over(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || has_terminal_phase(pod)
}
