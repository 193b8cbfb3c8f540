//! The wait for nodes that go down before this one, with its status and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use winddown_cluster::after_nodes::{self, AfterNodes, DownStage, SeenNodes};
use winddown_control::api;
use winddown_shared::{PluginName, ShutdownPoint, ShutdownWork};

use crate::metrics::AfterNodesFacts;

/// The wait for the nodes that go down before this one. Clones share their state.
#[derive(Clone)]
pub(crate) struct GoesAfter {
    settings: AfterNodes,
    seen: watch::Receiver<SeenNodes>,
    waiting: Arc<watch::Sender<bool>>,
}

/// Resets the flag when dropped, also if the wait is cancelled.
struct Waiting(Arc<watch::Sender<bool>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl GoesAfter {
    pub(super) fn new(settings: AfterNodes, seen: watch::Receiver<SeenNodes>) -> Self {
        Self { settings, seen, waiting: Arc::default() }
    }

    /// The wait as shutdown work before the pods of the configured priority. The plan reserves the time for it.
    pub(super) fn work(&self) -> ShutdownWork {
        let (what, waits) = ("wait for the nodes that go down first", self.clone());
        let point = ShutdownPoint::Before(self.settings.priority);
        let wait = self.settings.wait;
        ShutdownWork::new(PluginName::of("cluster"), what, point, wait, move |context| {
            let Self { seen, waiting, .. } = waits.clone();
            async move {
                waiting.send_replace(true);
                let _waiting = Waiting(waiting);
                after_nodes::wait(seen, context.until, |said| {
                    tracing::info!("nodes that go down first: {said}");
                    context.remark.set(said);
                })
                .await;
                Ok(())
            }
        })
    }

    /// The part of `winddown status`.
    pub(super) fn status(&self) -> api::AfterNodesStatus {
        let seen = self.seen.borrow();
        let node = |(name, stage): (&Arc<str>, &DownStage)| api::AfterNode {
            name: name.to_string(),
            stage: match stage {
                DownStage::Silent => api::NodeStage::Silent,
                DownStage::Up => api::NodeStage::Up,
                DownStage::GoingDown => api::NodeStage::GoingDown,
                DownStage::Down => api::NodeStage::Down,
            },
        };
        api::AfterNodesStatus {
            selector: self.settings.selector.clone(),
            wait_seconds: self.settings.wait.as_secs_f64(),
            nodes: seen.nodes.as_ref().map(|nodes| nodes.iter().map(node).collect()),
            problem: seen.trouble.as_deref().map(str::to_owned),
            waiting: *self.waiting.borrow(),
        }
    }

    /// The part of the metrics.
    pub(super) fn facts(&self) -> AfterNodesFacts {
        let seen = self.seen.borrow();
        let mut stages = BTreeMap::from(DownStage::ALL.map(|stage| (stage.as_str(), 0)));
        for stage in seen.nodes.iter().flat_map(BTreeMap::values) {
            *stages.entry(stage.as_str()).or_default() += 1;
        }
        AfterNodesFacts {
            stages,
            known: seen.nodes.is_some() && seen.trouble.is_none(),
            waiting: *self.waiting.borrow(),
        }
    }
}
