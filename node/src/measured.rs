//! What the metrics need of the node.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{Event, Inhibitor, LockState, Pod, PodCounts, PodUid, Recorder, Runtime};
use winddown_shutdown::{StateFile, StateTimes};

use super::kept_kills::KeptKills;
use super::{Decisions, Node};
use crate::metrics::{InhibitorFacts, Metrics, NodeFacts, Start};

/// Tells everyone who listens to events.
pub(super) struct Everyone {
    pub(super) decisions: Decisions,
    pub(super) metrics: Arc<Metrics>,
    pub(super) kills: KeptKills,
    /// Kubernetes Events, and the note of pods that this node has ended.
    pub(super) cluster: Option<Arc<dyn Recorder>>,
}

impl Recorder for Everyone {
    fn record(&self, event: &Event) {
        // First: what follows tells people of it.
        self.kills.record(event);
        self.metrics.record(event);
        self.decisions.record(event);
        if let Some(cluster) = &self.cluster {
            cluster.record(event);
        }
    }
}

/// The times of the last shutdown. A file that cannot be read is replaced at the next one.
pub(super) fn last_shutdown(state_directory: &Path) -> StateTimes {
    StateFile::in_directory(state_directory).load().unwrap_or_else(|error| {
        tracing::warn!(
            "when the last shutdown was is not known: {}",
            winddown_shared::error_chain(&error)
        );
        StateTimes::default()
    })
}

/// How often pods that are starting are looked at, at most. There is no event for it that many pods
/// starting at once would not make expensive.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Measures how long pods take to start. Sleeps while none does.
    pub(super) async fn measure_starts(self) {
        let mut changes = self.0.statuses.changes();
        loop {
            tokio::select! {
                () = self.0.metrics.pods_start() => {}
                () = self.0.stop.cancelled() => return,
            }
            while self.0.metrics.look_at_starts(|uid| self.start_of(uid)) {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = self.0.stop.cancelled() => return,
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    fn start_of(&self, uid: &PodUid) -> Start {
        let status = self.0.statuses.get(uid);
        match status.as_ref().and_then(|s| s.phase.as_deref()) {
            // One that has ended by itself already has started as well.
            Some("Running" | "Succeeded") => Start::Running,
            Some("Failed") => Start::Never,
            _ => Start::NotYet,
        }
    }

    /// How the node stands now.
    pub(super) fn facts(&self) -> NodeFacts {
        let inner = &*self.0;
        let manifests = Arc::clone(&inner.manifests.borrow());
        let cluster = inner.cluster.as_ref().map(|cluster| cluster.facts(&inner.wall));
        let mut desired = manifests.pods.clone();
        let side = inner.cluster.as_ref().and_then(crate::cluster::Cluster::pods);
        desired.extend(side.map(|side| side.api_pods.wanted().0).unwrap_or_default());
        let mut pods =
            PodCounts::of(&desired, &inner.workers.snapshot(), |pod| self.has_ended(pod));
        pods.mirrors = cluster.as_ref().map_or(0, |facts| facts.mirrors);
        let (held, delay_max) = {
            let state = inner.inhibitor.state();
            let state = state.borrow();
            (state.lock == LockState::Held, state.delay)
        };
        NodeFacts {
            pods,
            cluster,
            inhibitor: InhibitorFacts {
                held,
                delay_max,
                delay_wanted: inner.policy.borrow().delay_wanted(),
                refused_signals: (inner.refused_signals)(&inner.inhibitor),
            },
            last_shutdown_graceful: inner.last_boot.graceful(),
            pressure: inner
                .pressure
                .as_ref()
                .map(|pressure| pressure.conditions())
                .unwrap_or_default(),
            thresholds: inner
                .pressure
                .as_ref()
                .map(|pressure| pressure.view().thresholds())
                .unwrap_or_default(),
            manifest_problems: manifests.errors.len(),
            process: inner.process.read(),
        }
    }

    fn has_ended(&self, pod: &Pod) -> bool {
        let status = self.0.statuses.get(pod.uid());
        let phase = status.as_ref().and_then(|s| s.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }
}
