//! Whether to wait, and for whom.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Seen, Stage};

/// What the rest of this node's shutdown does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It waits.
    Wait {
        /// For these nodes, by name; for the API server's answer if there are none.
        nodes: Vec<Arc<str>>,
        /// No longer than that.
        until: Instant,
    },
    /// It goes on.
    GoOn(Reason),
}

/// Why it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No other node goes first.
    NoneMatches,
    /// All that go first are down or gone.
    AllDown,
    /// Its own time is over.
    TimeOver,
}

/// Whether the nodes in `seen` are waited for `now`, `until` then at most.
///
/// An empty list counts only while the watch works: before that there may be nodes that are not known. That a node is
/// down counts until its object says otherwise, because the API server may go with the nodes.
pub fn decide(seen: &Seen, until: Instant, now: Instant) -> Decision {
    if now >= until {
        return Decision::GoOn(Reason::TimeOver);
    }
    let Some(all) = &seen.nodes else { return Decision::Wait { nodes: Vec::new(), until } };
    if all.is_empty() {
        return match seen.trouble {
            None => Decision::GoOn(Reason::NoneMatches),
            Some(_) => Decision::Wait { nodes: Vec::new(), until },
        };
    }
    let up = all.iter().filter(|(_, stage)| **stage != Stage::Down);
    let nodes: Vec<_> = up.map(|(name, _)| Arc::clone(name)).collect();
    if nodes.is_empty() {
        return Decision::GoOn(Reason::AllDown);
    }
    Decision::Wait { nodes, until }
}
