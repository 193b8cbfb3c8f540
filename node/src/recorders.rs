//! The recorders that receive the node's events.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winddown_shared::status::StatusStore;
use winddown_shared::{
    ContainedRecorder, DesiredPods, Event, KillReason, Pod, PodRef, PodUid, Recorder, StopChange,
    WallClock, WorkerObserver,
};

use crate::kept_kills::KeptKills;
use crate::metrics::{Metrics, PodStartup};
use crate::registered_plugin::RegisteredPlugin;
use crate::{Decisions, Product};

/// Forwards each event to every recorder.
pub(crate) struct Recorders {
    pub(crate) decisions: Decisions,
    pub(crate) metrics: Arc<Metrics>,
    /// `None` if kills are not recorded for the next agent.
    kills: Option<KeptKills>,
    /// The recorders of plug-ins. Set when all have joined.
    others: OnceLock<Vec<ContainedRecorder>>,
}

impl Recorders {
    pub(crate) fn new(
        wall: &WallClock,
        kills: Option<KeptKills>,
        plugins: &[RegisteredPlugin],
        product: &Product,
    ) -> Self {
        Self {
            decisions: Decisions::new(wall.clone()),
            metrics: Arc::new(Metrics::new(wall.clone(), plugins, product)),
            kills,
            others: OnceLock::new(),
        }
    }

    /// The pods whose termination was requested for this reason, by an earlier agent too.
    pub(crate) fn requested_by(&self, reason: KillReason) -> Vec<PodUid> {
        self.kills.as_ref().map(|kills| kills.requested_by(reason)).unwrap_or_default()
    }

    /// Drops what is recorded of pods that are not `wanted`: one that never starts, because it was replaced while it
    /// waited, is in no event, and one that has terminated starts no more. `is_over` is whether nothing of it runs.
    pub(crate) fn forget_unwanted(&self, wanted: &DesiredPods, is_over: impl Fn(&PodUid) -> bool) {
        let wanted: HashSet<&PodUid> =
            wanted.pods.iter().map(|pod| pod.uid()).chain(&wanted.waiting).collect();
        self.metrics.forget_starts(|uid| !wanted.contains(uid));
        if let Some(kills) = &self.kills {
            kills.forget_all(|uid| !wanted.contains(uid) && is_over(uid));
        }
    }

    /// Adds the recorders of plug-ins. A panic in one is not the others' affair.
    pub(crate) fn join(&self, others: Vec<Arc<dyn Recorder>>) {
        // Called once.
        let _ = self.others.set(others.into_iter().map(ContainedRecorder::new).collect());
    }
}

impl Recorder for Recorders {
    fn record(&self, event: &Event) {
        // First, because the others report the kill to people, and it must not be lost after that.
        if let Some(kills) = &self.kills {
            kills.record(event);
        }
        self.metrics.record(event);
        self.decisions.record(event);
        self.others.get().into_iter().flatten().for_each(|other| other.record(event));
    }
}

impl WorkerObserver for Recorders {
    fn pod_started(&self, pod: &Pod, waited: Duration) {
        self.metrics.pod_started(pod, waited);
    }

    fn step_ended(&self, operation: &'static str, took: Duration) {
        self.metrics.step_ended(operation, took);
    }

    fn stop_changed(&self, pod: &PodRef, change: &StopChange) {
        if let Some(kills) = &self.kills {
            kills.change(pod, change);
        }
    }
}

/// The shortest interval between checks of starting pods. An event for each of them would be expensive when many
/// pods start at once.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Measures how long pods take to start. Sleeps while none is starting.
pub(crate) async fn measure_starts(
    metrics: Arc<Metrics>,
    statuses: StatusStore,
    stop: CancellationToken,
) {
    let mut changes = statuses.changes();
    loop {
        tokio::select! {
            () = metrics.pods_start() => {}
            () = stop.cancelled() => return,
        }
        while metrics.look_at_starts(|uid| start_of(&statuses, uid)) {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            tokio::time::sleep(MIN_CHECK_INTERVAL).await;
        }
    }
}

fn start_of(statuses: &StatusStore, uid: &PodUid) -> PodStartup {
    let status = statuses.get(uid);
    match status.as_ref().and_then(|s| s.phase.as_deref()) {
        // A pod that has already completed has started too.
        Some("Running" | "Succeeded") => PodStartup::Running,
        Some("Failed") => PodStartup::Never,
        _ => PodStartup::NotYet,
    }
}
