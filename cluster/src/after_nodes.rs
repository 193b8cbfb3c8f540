//! Nodes that go down before this one, without a coordinator: each node reads in the others' objects how far they are.
//!
//! [`Follower`] watches the nodes of a selector all the time. At a shutdown [`wait`] waits for them; how long at most is
//! its caller's, and whatever the API server does, it never takes longer. [`decide`] is the decision: what is not known
//! is never taken for nothing, and what was said last counts until it is said otherwise.

mod course;
mod decide;
mod follow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::node::{CLEAN_SHUTDOWN, SHUTDOWN_IN_PROGRESS};
use course::Course;

pub use decide::{Decision, Reason, decide};
pub use follow::Follower;

/// Which nodes go down before this one, and what of this one waits for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterNodes {
    /// A label selector; this node is left out.
    pub selector: String,
    /// How long they are waited for at most.
    pub wait: Duration,
    /// The lowest priority of the pods here that wait.
    pub priority: i32,
}

/// What the API server has said of the nodes that go first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Each by its name; none before they were listed for the first time.
    pub nodes: Option<BTreeMap<Arc<str>, Stage>>,
    /// Why the watch does not work at the moment, for people.
    pub trouble: Option<Arc<str>>,
}

/// How far a node is, by its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It has never said whether it went down cleanly: winddown is not on it.
    Silent,
    /// It is up, or went down without saying so.
    Up,
    /// It is going down.
    GoingDown,
    /// It is down: every pod had ended, and nothing was left mounted.
    Down,
}

// === impl Stage ===

impl Stage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Silent, Self::Up, Self::GoingDown, Self::Down];

    /// As a metric's label has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Up => "up",
            Self::GoingDown => "goingDown",
            Self::Down => "down",
        }
    }

    /// As the conditions of `node` have it.
    pub fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let status = |kind| {
            let mut all = conditions.unwrap_or_default().iter();
            all.find(|condition| condition.type_ == kind).map(|found| found.status.as_str())
        };
        match (status(CLEAN_SHUTDOWN), status(SHUTDOWN_IN_PROGRESS)) {
            (Some("True"), _) => Self::Down,
            (_, Some("True")) => Self::GoingDown,
            (Some(_), _) => Self::Up,
            (None, _) => Self::Silent,
        }
    }
}

/// Waits until the nodes in `seen` are down or gone, and tells `said` meanwhile how that goes, in words for people.
/// From `until` on it resolves no more: its caller has dropped it by then. Dropping it ends nothing but the wait.
pub async fn wait(
    mut seen: watch::Receiver<Seen>,
    until: Instant,
    said: impl Fn(String),
) -> Reason {
    let mut course = Course::begun(Instant::now());
    loop {
        let now = Instant::now();
        let decision = {
            let seen = seen.borrow_and_update();
            course.see(&seen, now);
            said(course.told(&seen));
            decide(&seen, until, now)
        };
        match decision {
            Decision::GoOn(Reason::TimeOver) => return std::future::pending().await,
            Decision::GoOn(reason) => return reason,
            Decision::Wait { until, .. } => tokio::select! {
                Ok(()) = seen.changed() => {}
                () = sleep_until(until) => {}
            },
        }
    }
}
