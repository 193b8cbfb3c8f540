//! The ordered start of a node's pods: its report, status and metrics.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_control::api::{self, StartStatus, StartingGroup, StartingPod};
use winddown_shared::{Pod, Runtime, critical, error_chain};
use winddown_shutdown::{OrderedStart, Policy, StartParts, StartPlan, StartReport};

use super::Joined;
use crate::core::Core;
use crate::metrics::StartFacts;

/// The warning in a plan without a group timeout, in which all pods start at once.
const OFF: &str =
    "ordered start is off: after a boot all pods start at once; set startGroupTimeout";

/// The state of the ordered start.
pub(super) struct Started {
    /// `None` before the pods are known, and if they all start at once.
    pub(super) report: watch::Receiver<Option<StartReport>>,
    /// Zero if they all start at once.
    pub(super) group_timeout: Duration,
}

// === impl Started ===

impl Started {
    /// Returns the state, and the start itself unless that of this boot is over. Blocks on the disk.
    pub(super) fn of_boot<R: Runtime>(
        core: &Core<R>,
        state: &Path,
        group_timeout: Duration,
        policy: watch::Receiver<Arc<Policy>>,
    ) -> (Self, Option<OrderedStart>) {
        if group_timeout.is_zero() {
            return (Self { report: watch::Sender::new(None).subscribe(), group_timeout }, None);
        }
        let earlier = StartReport::load(state).unwrap_or_else(|error| {
            tracing::warn!(
                "how far the start of the pods is is not known: {}",
                error_chain(&error)
            );
            None
        });
        let parts = StartParts {
            wanted: core.wanted.subscribe(),
            statuses: core.statuses.clone(),
            gate: core.gate.changes(),
            policy,
            group_timeout,
            wall: core.wall.clone(),
            boot: core.boot_clock.clone(),
            boot_id: core.identity.boot_id.clone(),
        };
        let over = watch::Sender::new(earlier.clone()).subscribe();
        let start = OrderedStart::new(parts, earlier);
        let report = start.as_ref().map_or(over, OrderedStart::report);
        (Self { report, group_timeout }, start)
    }

    /// The current group and the pods that wait for it; `None` while no pod waits.
    pub(super) fn status(&self) -> Option<StartStatus> {
        let report = self.report.borrow();
        let report = report.as_ref().filter(|report| !report.is_over())?;
        let group = report.current().filter(|_| !report.waiting.is_empty())?;
        Some(StartStatus {
            group: group.name.clone(),
            not_ready: group.not_ready().collect(),
            until: report.started_at.checked_add(group.started + report.group_timeout).ok(),
            waiting: report.waiting.len(),
        })
    }

    pub(super) fn facts(&self) -> Option<StartFacts> {
        let report = self.report.borrow();
        let report = report.as_ref()?;
        Some(StartFacts {
            waiting: report.waiting.len(),
            not_ready: report.groups.iter().flat_map(|group| group.not_ready()).count(),
            took: report.took,
        })
    }
}

// === impl Joined ===

impl<R: Runtime> Joined<R> {
    /// Starts the pods in order, and stores the progress.
    pub(super) fn start_in_order(&self, start: Option<OrderedStart>) {
        let Some(start) = start else { return };
        let (mut report, state) = (start.report(), self.kept.state_directory.clone());
        let stop = self.core.stop.clone();
        // Nothing waits for the disk: an agent that starts meanwhile finds most pods running.
        tokio::spawn(async move {
            let mut kept = None;
            while report.changed().await.is_ok() {
                let turn = report.borrow_and_update().as_ref().map(StartReport::revision);
                // Written once per turn: the report holds all pods of the node, too much to write for each ready one.
                if std::mem::replace(&mut kept, turn) == turn {
                    continue;
                }
                let Some(now) = report.borrow().clone() else { continue };
                let state = state.clone();
                let stored = tokio::task::spawn_blocking(move || now.store(&state)).await;
                if let Ok(Err(error)) = stored {
                    tracing::warn!("how the pods start cannot be kept: {}", error_chain(&error));
                }
            }
        });
        critical::spawn(
            "ordered start",
            async move { stop.run_until_cancelled(start.run()).await },
        );
    }
}

/// Converts a plan for the control API; each group has so much time.
pub fn start_view(plan: &StartPlan, group_timeout: Duration) -> api::StartPlan {
    let pod = |pod: &Pod| StartingPod {
        namespace: pod.namespace().to_string(),
        name: pod.name().to_string(),
        uid: pod.uid().to_string(),
        priority: pod.priority_or_zero(),
    };
    let groups = plan.groups.iter().map(|group| StartingGroup {
        name: group.name.clone(),
        priority: group.rank.priority,
        drivers: group.rank.drivers,
        pods: group.pods.iter().map(pod).collect(),
    });
    let off = group_timeout.is_zero().then(|| OFF.to_owned());
    api::StartPlan {
        groups: groups.collect(),
        warnings: off.into_iter().collect(),
        group_timeout_seconds: group_timeout.as_secs_f64(),
    }
}
