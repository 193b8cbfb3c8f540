//! Runs the shutdown controller, once the login manager has answered, with the run that an earlier agent left for it.

use std::path::Path;
use std::sync::Arc;

use tokio::time::timeout;
use winddown_host::machine::is_in_memory;
use winddown_shared::{
    AdmissionGate, BootClock, EarlierKill, GateReason, MachineState, PodUidMap, PodWorkers,
    Recorder, Runtime, RuntimeSyncer,
};
use winddown_shutdown::{
    Policy, RecordFile, RecordStore, RunPhase, RunRecord, ShutdownController, ShutdownParts,
    StateFile,
};

use super::Joined;
use crate::core::FIRST_WORD;

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
    /// Waits up to [`FIRST_WORD`] for the login manager's state: a silent one must not keep the node without
    /// pods. Returns the kill requests of the run of an earlier agent.
    pub(super) async fn first(
        self: Arc<Self>,
        carried: Option<RunRecord>,
    ) -> PodUidMap<EarlierKill> {
        let mut inhibitor = self.lock.inhibitor.state();
        let said = inhibitor.wait_for(|s| s.preparing || s.lock.is_known());
        // Without a word, what is known so far counts.
        let _ = timeout(FIRST_WORD, said).await;
        let login = inhibitor.borrow().clone();
        let ends_early = login.preparing || !self.notices.notices().borrow().in_effect.is_empty();
        if ends_early {
            self.core.gate.shut(GateReason::Startup);
        }
        // A terminating pod must not be started again before it has ended.
        let now = self.core.boot_clock.now();
        let Some(run) = carried else { return PodUidMap::default() };
        let sources = self.notices.notices().borrow().clone();
        let machine = match ends_early {
            false => self.lock.inhibitor.machine().await,
            true => MachineState::Unknown,
        };
        let ends = ends_early || matches!(machine, MachineState::GoingDown(_));
        let is_unknown = !run.is_decided_by(&login, machine);
        let goes_on = run.may_resume(now, ends, &sources, is_unknown);
        run.asked(now, !goes_on).collect()
    }

    /// Runs the controller, which ends the pods when the node goes down.
    pub(super) async fn then(self: Arc<Self>, carried: Option<RunRecord>) {
        let controller = self.controller(carried);
        // From here on the controller keeps the gate shut if need be, and ends the start with its first decision.
        controller.hold_admission();
        self.go_on_draining();
        controller.run(self.core.stop.clone()).await;
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
