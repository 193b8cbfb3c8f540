//! Runs the shutdown controller, once the login manager has answered, with the run that an earlier agent left for it.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use winddown_host::machine::is_in_memory;
use winddown_shared::{
    AdmissionGate, BootClock, EarlierKill, GateReason, PodUidMap, PodWorkers, Recorder, Runtime,
    RuntimeSyncer,
};
use winddown_shutdown::{
    Policy, RecordFile, RecordStore, RunPhase, RunRecord, ShutdownController, ShutdownParts,
    StateFile,
};

use super::Joined;

/// Where the record of a run is kept: in the state directory, which survives a reboot, and in one that needs no disk.
/// `file` names the file, in such a directory, of this kind of run.
pub(crate) fn places(
    state: &Path,
    volatile: Option<&Path>,
    file: fn(RecordFile) -> RecordFile,
) -> Vec<Arc<dyn RecordStore>> {
    let second = volatile.map(|directory| match is_in_memory(directory) {
        true => RecordFile::in_memory(directory),
        false => RecordFile::in_directory(directory),
    });
    let files = [Some(RecordFile::in_directory(state)), second].into_iter().flatten();
    files.map(|place| Arc::new(file(place)) as Arc<dyn RecordStore>).collect()
}

/// The run of this boot that an earlier agent began since the system was started, unless it was cancelled. If there is
/// one, the gate is shut before any pod can be admitted.
pub(super) fn pick_up(
    places: &[Arc<dyn RecordStore>],
    (boot_id, clock): (&str, &BootClock),
    gate: &AdmissionGate,
) -> Option<RunRecord> {
    let found = RunRecord::of_boot(places, (boot_id, clock), clock.system_start());
    let carried = found.filter(|record| record.phase != RunPhase::Cancelled);
    if carried.is_some() {
        gate.shut(GateReason::Startup);
    }
    carried
}

impl<R: Runtime> Joined<R> {
    /// Returns the kill requests of the run of an earlier agent, and what runs once the pods are known.
    pub(super) async fn lead(
        self: Arc<Self>,
        carried: Option<RunRecord>,
    ) -> (PodUidMap<EarlierKill>, BoxFuture<'static, ()>) {
        let controller = self.controller(carried);
        let asked = controller.take_over().await;
        let then = async move {
            self.go_on_draining();
            controller.run(self.core.stop.clone()).await;
        };
        (asked, Box::pin(then))
    }

    fn controller(
        &self,
        carried: Option<RunRecord>,
    ) -> ShutdownController<PodWorkers<RuntimeSyncer<R>>> {
        let (core, kept, objection) = (&self.core, &self.kept, self.objection());
        let mut parts = ShutdownParts::new(
            Arc::new(core.workers.clone()),
            Arc::clone(&self.lock.inhibitor),
            Policy::clone(&self.policy.borrow()),
            core.wall.clone(),
            core.boot_clock.clone(),
            core.identity.boot_id.clone(),
        );
        parts.notices = self.notices.notices();
        parts.unit_stop = self.unit_stop.subscribe();
        parts.gate = core.gate.clone();
        parts.policy = self.policy.clone();
        parts.reports = Arc::new(kept.reports.clone());
        parts.records.clone_from(&kept.records);
        parts.carried = carried;
        parts.state_file = Some(StateFile::in_directory(&kept.state_directory));
        parts.objections = Arc::new(move || objection.iter().flat_map(|o| o.reasons()).collect());
        parts.work = self.work().to_vec();
        parts.recorder = Arc::clone(&core.recorders) as Arc<dyn Recorder>;
        parts.progress = self.progress.clone();
        parts.trigger = self.trigger;
        ShutdownController::new(parts)
    }
}
