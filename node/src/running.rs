//! From the first word of the login manager to the shutdown: the intake, the shutdown controller, and
//! what an earlier agent left for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_machine::host::is_in_memory;
use winddown_shared::{
    DesiredPods, GateReason, Inhibitor, Intake, KillRequest, PodKiller, PodUidMap, PodWorkers,
    Runtime, RuntimeSyncer, critical,
};
use winddown_shutdown::{
    AdmissionGate, RecordFile, RecordPlace, RunPhase, RunRecord, ShutdownController, ShutdownParts,
    StateFile, Trigger,
};

use super::Node;

/// How long pods are held back for the login manager's first word. One that is silent for longer
/// must not keep the node without pods.
const FIRST_WORD: Duration = Duration::from_secs(2);

/// How long a shutdown that is already under way waits for the pods to be found again.
const FIRST_PASS: Duration = Duration::from_secs(5);

/// Where the record of a shutdown is kept: the state directory, which is there after the boot, and
/// one that needs no disk.
pub(super) fn places(state: &Path, volatile: Option<&Path>) -> Vec<Arc<dyn RecordPlace>> {
    let second = volatile.map(|directory| match is_in_memory(directory) {
        true => RecordFile::in_memory(directory),
        false => RecordFile::in_directory(directory),
    });
    let files = [Some(RecordFile::in_directory(state)), second].into_iter().flatten();
    files.map(|file| Arc::new(file) as Arc<dyn RecordPlace>).collect()
}

/// The run of this boot that an earlier agent began, if nobody has called it off. With one the gate
/// is shut before anything can ask it.
pub(super) fn pick_up(
    places: &[Arc<dyn RecordPlace>],
    boot_id: &str,
    gate: &AdmissionGate,
) -> Option<RunRecord> {
    let found = RunRecord::of_boot(places, boot_id);
    let carried = found.filter(|record| record.phase != RunPhase::Cancelled);
    if carried.is_some() {
        gate.shut(GateReason::Startup);
    }
    carried
}

/// What an earlier agent of this boot was in the middle of.
pub(super) struct Left {
    /// A shutdown.
    pub(super) run: Option<RunRecord>,
    /// The end of single pods.
    pub(super) kills: PodUidMap<KillRequest>,
}

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Ends the pods as at a shutdown that the login manager did not announce, within `time`, and
    /// resolves when they are gone or the time is over.
    ///
    /// A run that an earlier agent of this boot did not finish is gone on with.
    pub async fn end_pods(&self, inhibitor: Arc<impl Inhibitor>, trigger: Trigger) {
        let carried = self.unfinished_run().await;
        self.controller(inhibitor, trigger, carried).run(self.0.stop.clone()).await;
    }

    /// Brings pods in, and ends them when the node goes down.
    pub(super) async fn run(self, runtime: Arc<R>, trigger: Trigger, left: Left) {
        let Left { run: carried, kills: mut asked_before } = left;
        let mut inhibitor = self.0.inhibitor.state();
        let said = inhibitor.wait_for(|s| s.preparing || s.lock.is_known());
        let said = tokio::time::timeout(FIRST_WORD, said).await;
        let preparing = said.ok().and_then(Result::ok).map(|state| state.preparing);
        let (has_spoken, preparing) = (preparing.is_some(), preparing.unwrap_or(false));
        let ends = |preparing| preparing || self.0.notice_aggregator.notices().borrow().is_some();
        let ends_early = ends(preparing);
        if ends_early {
            self.0.gate.shut(GateReason::Startup);
        }
        // Where it was not called off meanwhile, nothing that was asked to end is started again.
        let now = self.0.boot_clock.now();
        let goes_on = carried.as_ref().filter(|run| run.may_go_on(now, ends_early, !has_spoken));
        asked_before.extend(goes_on.into_iter().flat_map(|run| run.asked(now)));
        let first_pass = self.start_intake(runtime, asked_before);
        // A shutdown need not wait for a runtime that is silent where it knows what to ask.
        let known = tokio::time::timeout(FIRST_PASS, async {
            tokio::select! {
                biased;
                () = first_pass => true,
                () = self.something_may_run() => false,
            }
        });
        if !known.await.unwrap_or(false) {
            tracing::warn!("it is not known yet which pods run; a shutdown would wait for that");
        }
        self.0.pods_known.send_replace(true);
        let controller = self.controller(Arc::clone(&self.0.inhibitor), trigger, carried);
        // From here on the controller keeps the gate shut if need be.
        controller.hold_admission();
        self.0.gate.lift(GateReason::Startup);
        self.go_on_draining();
        controller.run(self.0.stop.clone()).await;
    }

    /// Waits until the pods that ran before the agent did are known, for as long as a shutdown waits
    /// for that. An agent that is stopped as soon as it was started would pass them over.
    pub async fn pods_are_known(&self) {
        let mut known = self.0.pods_known.subscribe();
        let known = known.wait_for(|known| *known);
        let _ = tokio::time::timeout(FIRST_WORD + FIRST_PASS, known).await;
    }

    /// Resolves when the runtime is silent and there is something that a shutdown can ask to end all
    /// the same.
    async fn something_may_run(&self) {
        let mut more = self.0.workers.more_known();
        loop {
            let running = self.0.workers.running();
            if !running.known && !running.pods.is_empty() {
                return;
            }
            if more.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Starts the intake; resolves when it has gone through the desired pods once.
    fn start_intake(
        &self,
        runtime: Arc<R>,
        asked_before: PodUidMap<KillRequest>,
    ) -> impl Future<Output = ()> + use<R, I> {
        let intake = Intake::new(
            runtime,
            self.0.workers.clone(),
            self.0.statuses.clone(),
            self.admission(self.0.fit.room()),
            Arc::clone(&self.0.recorder),
        )
        .with_victim_lock(self.0.fit.victim_lock())
        .with_earlier_kills(asked_before)
        .with_admission_closed(self.admission_closed())
        .with_refusals_for_good(self.refused_for_good());
        let mut passed = intake.passes();
        let desired = self.desired();
        let stop = self.0.stop.clone();
        critical::spawn_until("intake", stop, intake.run(desired));
        async move {
            // An intake that is gone will not say more.
            let _ = passed.wait_for(|n| *n > 0).await;
        }
    }

    /// The desired pods as the intake reads them: nothing until the directory was read once. Those of
    /// the API come beside those of the manifests.
    fn desired(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        let mut statics = self.static_pods();
        let Some(cluster) = self.0.cluster.clone().filter(|cluster| cluster.pods().is_some())
        else {
            return statics;
        };
        let (tx, rx) = watch::channel(None);
        critical::spawn("wanted pods", async move {
            let Some(side) = cluster.pods() else { return };
            let mut wanted = side.api_pods.changes();
            loop {
                wanted.mark_unchanged();
                if let Some(now) = statics.borrow_and_update().clone() {
                    let (mut pods, complete) = side.api_pods.wanted();
                    pods.extend(now.pods.iter().cloned());
                    let complete = complete && now.complete;
                    tx.send_replace(Some(Arc::new(DesiredPods { pods, complete })));
                }
                tokio::select! {
                    changed = statics.changed() => if changed.is_err() { return },
                    changed = wanted.changed() => if changed.is_err() { return },
                    () = tx.closed() => return,
                }
            }
        });
        rx
    }

    fn controller<J: Inhibitor>(
        &self,
        inhibitor: Arc<J>,
        trigger: Trigger,
        carried: Option<RunRecord>,
    ) -> ShutdownController<PodWorkers<RuntimeSyncer<R>>, J> {
        let state = self.configuration().config.state_directory.clone();
        ShutdownController::new(ShutdownParts {
            killer: Arc::new(self.0.workers.clone()),
            inhibitor,
            notices: self.0.notice_aggregator.notices(),
            gate: self.0.gate.clone(),
            policy: self.0.policy.subscribe(),
            reports: Arc::new(self.0.reports.clone()),
            records: self.0.records.clone(),
            carried,
            state_file: Some(StateFile::in_directory(state)),
            final_status_flush: self.final_status_flush(),
            recorder: Arc::clone(&self.0.recorder),
            progress: self.0.progress.clone(),
            clock: self.0.wall.clone(),
            boot_clock: self.0.boot_clock.clone(),
            boot_id: self.0.identity.boot_id.clone(),
            trigger,
        })
    }

    /// The run of this boot that nobody has finished, if there is one.
    async fn unfinished_run(&self) -> Option<RunRecord> {
        let (places, boot) = (self.0.records.clone(), self.0.identity.boot_id.clone());
        let look = tokio::task::spawn_blocking(move || RunRecord::of_boot(&places, &boot));
        look.await.ok().flatten().filter(|record| !record.phase.is_over())
    }
}
