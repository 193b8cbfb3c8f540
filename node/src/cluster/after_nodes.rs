//! The wait for nodes that go down before this one, as a plug-in beside that of the cluster.

use std::sync::Arc;

use tokio::sync::watch;
use winddown_api_client::Connection;
use winddown_cluster::after_nodes::{self, AfterNodes, DownStage, NodesFollower, SeenNodes};
use winddown_control::api;
use winddown_shared::{PluginName, Runtime, ShutdownPoint, ShutdownWork, critical};

use crate::metrics::{PluginGauge, ScrapedNode};
use crate::plugin::{NodePlugin, PluginRegistry, PluginSection};

/// The plug-in by which this node goes down after others. Comes after the cluster in a list.
#[derive(Clone, Debug)]
pub struct ShutdownAfterNodes {
    /// The connection to the API server.
    pub connection: Connection,
    /// The nodes that go down first.
    pub settings: AfterNodes,
}

/// The wait for the nodes that go down before this one. Clones share their state.
#[derive(Clone)]
struct NodesAhead {
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

impl<R: Runtime> NodePlugin<R> for ShutdownAfterNodes {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        let Self { connection, settings } = *self;
        let name = &node.core.identity.name;
        let follower = NodesFollower::new(connection.client(), &settings.selector, name);
        let ahead = NodesAhead { settings, seen: follower.seen(), waiting: Arc::default() };
        node.contributions.links.work.push(ahead.work());
        node.contributions.sections.push(Arc::new(ahead));
        let stop = node.core.stop.clone();
        node.start(|_| {
            critical::spawn("nodes that go down first", follower.run(stop));
        });
    }
}

impl PluginSection for NodesAhead {
    fn status(&self, status: &mut api::Status) {
        if let Some(cluster) = &mut status.cluster {
            cluster.after_nodes = Some(self.shown());
        }
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        let Some(cluster) = &mut facts.cluster else { return };
        let seen = self.seen.borrow();
        let count = |stage: DownStage| {
            let nodes = seen.nodes.iter().flat_map(|nodes| nodes.values());
            (stage.as_str(), nodes.filter(|of| **of == stage).count())
        };
        let mut stages = DownStage::ALL.map(count);
        stages.sort_unstable();
        let known = seen.nodes.is_some() && seen.trouble.is_none();
        cluster.of_plugins.extend([
            PluginGauge::labelled(
                "winddown_after_nodes",
                "Nodes that this one waits for at shutdown, by stage.",
                "stage",
                &stages,
            ),
            PluginGauge::count(
                "winddown_after_nodes_known",
                "Whether the API server reports the progress of these nodes.",
                usize::from(known),
            ),
            PluginGauge::count(
                "winddown_after_nodes_waiting",
                "Whether a shutdown is waiting for these nodes.",
                usize::from(*self.waiting.borrow()),
            ),
        ]);
    }
}

impl NodesAhead {
    /// The wait as shutdown work before the pods of the configured priority. The plan reserves the time for it.
    fn work(&self) -> ShutdownWork {
        let (what, waits) = ("wait for the nodes that go down first", self.clone());
        let point = ShutdownPoint::Before(self.settings.priority);
        let wait = self.settings.wait;
        ShutdownWork::new(PluginName::new("cluster"), what, point, wait, move |context| {
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
    fn shown(&self) -> api::AfterNodesStatus {
        let seen = self.seen.borrow();
        let node = |(name, stage): (&Arc<str>, &DownStage)| api::AfterNode {
            name: name.to_string(),
            stage: match stage {
                DownStage::NotReporting => api::NodeStage::NotReporting,
                DownStage::Up => api::NodeStage::Up,
                DownStage::ShuttingDown => api::NodeStage::ShuttingDown,
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
}
