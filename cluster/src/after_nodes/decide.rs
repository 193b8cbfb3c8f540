//! Decides whether to wait, and for which nodes.

use std::sync::Arc;

use tokio::time::Instant;

use super::{DownStage, SeenNodes};

/// What the rest of this node's shutdown does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterNodesDecision {
    /// It waits.
    Wait {
        /// The names of the awaited nodes; empty if the API server's answer is awaited.
        nodes: Vec<Arc<str>>,
        /// The deadline of the wait.
        until: Instant,
    },
    /// It continues.
    GoOn(Reason),
}

/// Why it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No other node goes first.
    NoneMatches,
    /// All nodes that go first are down or gone.
    AllDown,
    /// The deadline has passed.
    TimeOver,
}

/// Decides whether to wait, at `now`, for the nodes in `seen`, at most until `until`.
///
/// An empty list counts only while the watch works: otherwise there may be unknown nodes. A node that was
/// down counts as down until its object says otherwise, because the API server may go down with the nodes.
pub fn decide(seen: &SeenNodes, until: Instant, now: Instant) -> AfterNodesDecision {
    if now >= until {
        return AfterNodesDecision::GoOn(Reason::TimeOver);
    }
    let Some(all) = &seen.nodes else {
        return AfterNodesDecision::Wait { nodes: Vec::new(), until };
    };
    if all.is_empty() {
        return match seen.trouble {
            None => AfterNodesDecision::GoOn(Reason::NoneMatches),
            Some(_) => AfterNodesDecision::Wait { nodes: Vec::new(), until },
        };
    }
    let up = all.iter().filter(|(_, stage)| **stage != DownStage::Down);
    let nodes: Vec<_> = up.map(|(name, _)| Arc::clone(name)).collect();
    if nodes.is_empty() {
        return AfterNodesDecision::GoOn(Reason::AllDown);
    }
    AfterNodesDecision::Wait { nodes, until }
}
