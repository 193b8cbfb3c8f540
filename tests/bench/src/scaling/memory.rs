//! A node whose containers are in memory: everything that is on the way of a shutdown, and nothing
//! of the machine.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::status::StatusStore;
use winddown_shared::testing::{FakeInhibitor, FakeRuntime};
use winddown_shared::{
    Pod, PodWorkers, RunningPods, RuntimeSyncer, UpdateKind, WallClock, WallTime,
};
use winddown_shutdown::{
    BootClock, Policy, ProgressPhase, ProgressSender, RecordFile, RecordStore, ReportStore,
    ShutdownController, ShutdownParts, Trigger,
};

use crate::node::CRITICAL;
use crate::workers::Silent;

/// What each of the two groups gets.
const GROUP: Duration = Duration::from_secs(30);

/// A node with containers in memory.
pub(crate) struct InMemory {
    workers: PodWorkers<RuntimeSyncer<FakeRuntime>>,
    runtime: FakeRuntime,
    stop: Duration,
    /// Keeps the record and the report of the shutdown.
    state: TempDir,
    volatile: TempDir,
}

impl InMemory {
    /// A node without pods, each of which will take `stop` to end.
    ///
    /// # Errors
    /// No temporary directory can be made.
    pub(crate) fn new(stop: Duration) -> io::Result<Self> {
        let runtime = FakeRuntime::default();
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let recorder = Arc::new(Silent);
        let syncer = RuntimeSyncer::new(
            Arc::new(runtime.clone()),
            StatusStore::default(),
            recorder.clone(),
            wall,
        );
        let workers = PodWorkers::new(syncer, recorder);
        // Nothing else runs: a shutdown that does not know that waits to its end.
        workers.note_running(RunningPods { known: true, ..RunningPods::default() });
        let temporary = || tempfile::Builder::new().prefix("winddown-bench-").tempdir();
        // In memory where there is such a place, as /run is on a node.
        let volatile = tempfile::Builder::new().prefix("winddown-bench-").tempdir_in("/dev/shm");
        let volatile = volatile.or_else(|_| temporary())?;
        Ok(Self { workers, runtime, stop, state: temporary()?, volatile })
    }

    pub(crate) fn workers(&self) -> &PodWorkers<RuntimeSyncer<FakeRuntime>> {
        &self.workers
    }

    /// Starts pods; resolves when all run.
    pub(crate) async fn start(&self, pods: &[Pod]) {
        for pod in pods {
            if !self.stop.is_zero() {
                self.runtime.stop_takes(pod.uid(), self.stop);
            }
            self.workers.update(UpdateKind::Create, pod.clone(), None);
        }
        while self.workers.busy() > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Has the login manager announce a shutdown; how long it was until the lock was released.
    ///
    /// # Errors
    /// It never was.
    pub(crate) async fn shut_down(&self) -> Result<Duration, String> {
        let login = FakeInhibitor::holding(GROUP * 4);
        let progress = ProgressSender::new();
        let policy = Policy::from_periods(GROUP * 2, GROUP).map_err(|error| error.to_string())?;
        let records: Vec<Arc<dyn RecordStore>> = vec![
            Arc::new(RecordFile::in_memory(self.volatile.path())),
            Arc::new(RecordFile::in_directory(self.state.path())),
        ];
        let mut parts = ShutdownParts::new(
            Arc::new(self.workers.clone()),
            Arc::new(login.clone()),
            policy,
            WallClock::fixed(WallTime::UNIX_EPOCH),
            BootClock::new(Duration::default),
            "bench",
        );
        parts.reports = Arc::new(ReportStore::new(self.state.path()));
        parts.records = records;
        parts.recorder = Arc::new(Silent);
        parts.progress = progress.clone();
        parts.trigger = Trigger::Drill;
        let controller = ShutdownController::new(parts);
        let done = CancellationToken::new();
        let running = tokio::spawn(controller.run(done.clone()));
        tokio::task::yield_now().await;
        let begun = Instant::now();
        login.prepare();
        let mut steps = progress.subscribe();
        let released = steps.wait_for(|progress| progress.phase == ProgressPhase::Released);
        let released = tokio::time::timeout(GROUP * 3, released).await;
        let took = begun.elapsed();
        if !released.is_ok_and(|released| released.is_ok()) {
            return Err(format!("the lock was not released within {:?}", GROUP * 3));
        }
        done.cancel();
        running.await.map_err(|error| error.to_string())?;
        Ok(took)
    }
}

/// A small pod, critical or not.
pub(crate) fn pod(i: usize, critical: bool) -> Option<Pod> {
    let mut object: api::Pod = (*crate::workers::pod(i)?).clone();
    let spec = object.spec.get_or_insert_default();
    spec.priority = Some(if critical { CRITICAL } else { 0 });
    spec.termination_grace_period_seconds = Some(30);
    Pod::new(object).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_takes_little_more_than_its_two_groups() {
        let stop = Duration::from_secs(1);
        let node = InMemory::new(stop).unwrap();
        let pods: Vec<Pod> = (0..10).filter_map(|i| pod(i, i < 2)).collect();
        node.start(&pods).await;
        let took = node.shut_down().await.unwrap();
        assert!((stop * 2..stop * 3).contains(&took), "{took:?}");
    }
}
