//! The progress of a wait: which node went down when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::display::in_seconds;

use super::{DownStage, SeenNodes};

const MAX_NAMED_NODES: usize = 10;

/// The progress since a wait began.
pub(super) struct WaitProgress {
    begun: Instant,
    nodes: BTreeMap<Arc<str>, Where>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Awaited,
    Down(Duration),
    Gone(Duration),
}

impl WaitProgress {
    pub(super) fn begun(begun: Instant) -> Self {
        Self { begun, nodes: BTreeMap::new() }
    }

    /// Updates the progress with what is seen `now`.
    pub(super) fn see(&mut self, seen: &SeenNodes, now: Instant) {
        let Some(all) = &seen.nodes else { return };
        let after = now.saturating_duration_since(self.begun);
        for (name, at) in &mut self.nodes {
            if *at == Where::Awaited && !all.contains_key(name) {
                *at = Where::Gone(after);
            }
        }
        for (name, stage) in all {
            let at = self.nodes.entry(Arc::clone(name)).or_insert(Where::Awaited);
            *at = match (*stage, *at) {
                (DownStage::Down, Where::Down(after)) => Where::Down(after),
                (DownStage::Down, _) => Where::Down(after),
                _ => Where::Awaited,
            };
        }
    }

    /// The progress in words for people. Nodes that are still awaited come first.
    pub(super) fn describe(&self, seen: &SeenNodes) -> String {
        let mut said = Vec::new();
        if let Some(why) = &seen.trouble {
            said.push(format!("the API server does not report the progress of the nodes: {why}"));
        } else if seen.nodes.is_none() {
            said.push("the API server has not listed the nodes".to_owned());
        } else if self.nodes.is_empty() {
            said.push("no other node matches".to_owned());
        }
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_by_key(|(_, at)| **at != Where::Awaited);
        said.extend(nodes.iter().take(MAX_NAMED_NODES).map(|(name, at)| match at {
            Where::Awaited => format!("{name} has not reported a clean shutdown"),
            Where::Down(Duration::ZERO) => format!("{name} was down"),
            Where::Down(after) => format!("{name} was down after {}", in_seconds(*after)),
            Where::Gone(after) => format!("{name} was gone after {}", in_seconds(*after)),
        }));
        if let Some(more @ 1..) = nodes.len().checked_sub(MAX_NAMED_NODES) {
            said.push(format!("{more} more"));
        }
        said.join(", ")
    }
}
