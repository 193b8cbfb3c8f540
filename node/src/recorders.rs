//! The recorders that hear what happens.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winddown_shared::status::StatusStore;
use winddown_shared::{Event, Listed, PodUid, Recorder, WallClock};

use crate::Decisions;
use crate::kept_kills::KeptKills;
use crate::metrics::{Metrics, Start};

/// Passes each event to every recorder.
pub(crate) struct Recorders {
    pub(crate) decisions: Decisions,
    pub(crate) metrics: Arc<Metrics>,
    /// None where nothing is kept over a restart of the agent.
    kills: Option<KeptKills>,
    /// Those that plug-ins bring. Set when all have joined.
    others: OnceLock<Vec<Arc<dyn Recorder>>>,
}

impl Recorders {
    pub(crate) fn new(wall: &WallClock, kills: Option<KeptKills>, plugins: &[Listed]) -> Self {
        Self {
            decisions: Decisions::new(wall.clone()),
            metrics: Arc::new(Metrics::new(wall.clone(), plugins)),
            kills,
            others: OnceLock::new(),
        }
    }

    /// Tells these as well from now on.
    pub(crate) fn join(&self, others: Vec<Arc<dyn Recorder>>) {
        // It is set once.
        let _ = self.others.set(others);
    }
}

impl Recorder for Recorders {
    fn record(&self, event: &Event) {
        // First: what follows tells people of it.
        if let Some(kills) = &self.kills {
            kills.record(event);
        }
        self.metrics.record(event);
        self.decisions.record(event);
        self.others.get().into_iter().flatten().for_each(|other| other.record(event));
    }
}

/// How often pods that are starting are looked at, at most. There is no event for it that many pods
/// starting at once would not make expensive.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Measures how long pods take to start. Sleeps while none does.
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
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

fn start_of(statuses: &StatusStore, uid: &PodUid) -> Start {
    let status = statuses.get(uid);
    match status.as_ref().and_then(|s| s.phase.as_deref()) {
        // One that has ended by itself already has started as well.
        Some("Running" | "Succeeded") => Start::Running,
        Some("Failed") => Start::Never,
        _ => Start::NotYet,
    }
}
