//! Nodes that go down before this one, without a coordinator: each node reads the progress in the others' objects.
//!
//! [`NodesFollower`] watches the nodes of a selector all the time. At a shutdown [`wait`] waits for them,
//! never longer than its caller allows, whatever the API server does. [`decide`] makes the decision:
//! unknown never counts as none, and the last known state counts until it is contradicted.

mod decide;
mod follow;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::node::{CLEAN_SHUTDOWN, READY, SHUTDOWN_IN_PROGRESS};
use progress::WaitProgress;

pub use decide::{AfterNodesDecision, Reason, decide};
pub use follow::NodesFollower;

/// For how long after a clean shutdown a kubelet may still report that its node is ready.
const LAST_REPORTS: Duration = Duration::from_secs(120);

/// Which nodes go down before this one, and which pods of this one wait for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterNodes {
    /// The label selector of those nodes; this node is left out.
    pub selector: String,
    /// The maximum time to wait for them.
    pub wait: Duration,
    /// The lowest priority of the pods on this node that wait.
    pub priority: i32,
}

/// What the API server has reported about the nodes that go down first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenNodes {
    /// The stage of each node by name; `None` before they were listed for the first time.
    pub nodes: Option<BTreeMap<Arc<str>, DownStage>>,
    /// Why the watch does not work at the moment, for people.
    pub trouble: Option<Arc<str>>,
}

/// How far a node's shutdown is, according to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DownStage {
    /// It has never reported whether it went down cleanly: winddown does not run on it.
    NotReporting,
    /// It is up, or went down without reporting it.
    Up,
    /// It is going down.
    ShuttingDown,
    /// It is down: every pod had terminated, and nothing was left mounted.
    Down,
}

// === impl DownStage ===

impl DownStage {
    /// All stages.
    pub const ALL: [Self; 4] = [Self::NotReporting, Self::Up, Self::ShuttingDown, Self::Down];

    /// The value in a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReporting => "notReporting",
            Self::Up => "up",
            Self::ShuttingDown => "shuttingDown",
            Self::Down => "down",
        }
    }

    /// The stage according to the conditions of `node`. One that went down in an earlier boot, whose id is in the message,
    /// is not down, nor is one whose kubelet is still ready long after.
    pub fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let find = |kind| conditions.iter().find(|condition| condition.type_ == kind);
        let is_true = |found: &NodeCondition| found.status == "True";
        // An agent that does not start after the boot leaves the condition as it is; the kubelet writes the boot's id.
        let boot = status.and_then(|status| Some(&*status.node_info.as_ref()?.boot_id));
        let is_of_boot = |found: &NodeCondition| {
            boot.is_none_or(|boot| found.message.as_deref().unwrap_or_default().contains(boot))
        };
        // A soft-reboot keeps the boot's id.
        let ready_for = |found: &NodeCondition| {
            let heard = find(READY).filter(|ready| is_true(ready))?.last_heartbeat_time.as_ref()?;
            let down = found.last_transition_time.as_ref()?;
            Duration::try_from(heard.0.duration_since(down.0)).ok()
        };
        let stays = |found| ready_for(found).is_some_and(|time| time > LAST_REPORTS);
        match (find(CLEAN_SHUTDOWN), find(SHUTDOWN_IN_PROGRESS)) {
            (Some(clean), _) if is_true(clean) && is_of_boot(clean) && !stays(clean) => Self::Down,
            (_, Some(going)) if is_true(going) => Self::ShuttingDown,
            (Some(_), _) => Self::Up,
            (None, _) => Self::NotReporting,
        }
    }
}

/// Waits until the nodes in `seen` are down or gone, and reports the progress to `said`, in words for people.
/// From `until` on it never completes: its caller has dropped it by then. Dropping it has no other effect.
pub async fn wait(
    mut seen: watch::Receiver<SeenNodes>,
    until: Instant,
    said: impl Fn(String),
) -> Reason {
    let mut progress = WaitProgress::begun(Instant::now());
    loop {
        let now = Instant::now();
        let decision = {
            let seen = seen.borrow_and_update();
            progress.see(&seen, now);
            said(progress.describe(&seen));
            decide(&seen, until, now)
        };
        match decision {
            AfterNodesDecision::GoOn(Reason::TimeOver) => return std::future::pending().await,
            AfterNodesDecision::GoOn(reason) => return reason,
            AfterNodesDecision::Wait { until, .. } => tokio::select! {
                Ok(()) = seen.changed() => {}
                () = sleep_until(until) => {}
            },
        }
    }
}
