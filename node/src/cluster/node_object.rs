//! Keeps the Node object up to date while the node is up and when it begins to go down.

use std::sync::Arc;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::watch;
use tokio::time::sleep;
use winddown_cluster::node::{self, Ping};
use winddown_control::api::Protection;
use winddown_shared::{PressureCondition, Runtime, critical};

use super::{Clean, Membership};
use crate::Settings;
use crate::core::Core;
use crate::links::{Draining, NodeEnd, Observe, next_change};

/// Checks whether the runtime can run pods. Until a starting agent knows which pods run, it waits with the answer, so
/// that a restart of the agent does not make a healthy node NotReady.
pub(super) struct RuntimePing<R: Runtime>(pub(super) Arc<Core<R>>);

impl<R: Runtime> Ping for RuntimePing<R> {
    async fn ping(&self) -> Result<(), String> {
        self.0.pods_are_known().await;
        self.0.runtime_health().map_err(|why| format!("container runtime: {why}"))
    }
}

/// Publishes the node's state to the Node object.
pub(super) struct NodePublisher<R: Runtime> {
    pub(super) core: Arc<Core<R>>,
    pub(super) cluster: Membership,
    pub(super) settings: watch::Receiver<Settings>,
    /// Whether the node is about to go down; `None` without the shutdown plug-in.
    pub(super) end: Option<Box<dyn Observe<NodeEnd>>>,
    /// What speaks against a shutdown; `None` if nothing can.
    pub(super) held: Option<Box<dyn Observe<Option<String>>>>,
    /// The resources that the node runs short of; `None` without the eviction plug-in.
    pub(super) pressure: Option<Box<dyn Observe<Vec<PressureCondition>>>>,
}

impl<R: Runtime> NodePublisher<R> {
    pub(super) fn start(self) {
        let heard = follow_node(Arc::clone(&self.core), self.cluster.clone());
        critical::spawn("reader of the Node object", heard);
        self.core.count(self.cluster.0.connection.health());
        critical::spawn("teller of the cluster", self.run());
    }

    /// Publishes every change. No other part of the node waits for it.
    async fn run(mut self) {
        let mut gate = self.core.gate.changes();
        let mut found = self.core.fit.changes();
        // Whether pods can run is the ping's to say.
        self.cluster.node().set_ready(Ok(()));
        loop {
            let node = self.cluster.node();
            let (mut up, mut protection) = (None, None);
            gate.mark_unchanged();
            if let Some(end) = &mut self.end {
                let end = end.now();
                // Must come before Ready: a node that becomes ready removes its own cordon.
                node.set_shutting_down(end.is_near);
                node.set_draining(draining(end.draining));
                protection = end.protection;
                up = (!end.is_near).then_some(end.last);
            }
            if let Some(pressure) = &mut self.pressure {
                node.set_pressure(pressure.now());
            }
            let held = self.held.as_mut().and_then(|held| held.now());
            found.mark_unchanged();
            self.publish_facts(up, protection, held);
            let again = self.settings.borrow_and_update().status_update_frequency;
            self.cluster.read_addresses(&self.settings.borrow());
            tokio::select! {
                () = self.core.stop.cancelled() => return,
                Ok(()) = gate.changed() => {}
                Ok(()) = found.changed() => {}
                Some(()) = changed(&mut self.end) => {}
                Some(()) = changed(&mut self.held) => {}
                Some(()) = changed(&mut self.pressure) => {}
                () = next_change(&mut self.settings) => {}
                // Nothing tells of a new address.
                () = sleep(again), if self.cluster.pods().is_some() => {}
            }
        }
    }

    fn publish_facts(&self, up: Option<String>, told: Option<Protection>, held: Option<String>) {
        let found = self.core.fit.found();
        self.cluster.change(|changing| {
            if let Some(found) = found {
                changing.labels = Some(found.own.labels.clone());
                changing.amounts = Some((found.whole.clone(), found.own.allocatable.clone()));
            }
            // The result of a shutdown stays until the node no longer goes down, whatever keeps the gate shut.
            if let Some(last) = up {
                changing.clean = Clean::Up(last);
            }
            (changing.protection, changing.held) = (told, held);
        });
    }
}

/// Follows the Node object on the API server, because others label and taint it.
async fn follow_node<R: Runtime>(core: Arc<Core<R>>, cluster: Membership) {
    let mut node = cluster.node().server_node();
    loop {
        let now = node.borrow_and_update().clone();
        core.fit.set_server_node(now);
        tokio::select! {
            () = core.stop.cancelled() => return,
            changed = node.changed() => if changed.is_err() { return },
        }
    }
}

fn changed<T>(observed: &mut Option<Box<dyn Observe<T>>>) -> OptionFuture<BoxFuture<'_, ()>> {
    observed.as_mut().map(|observed| observed.changed()).into()
}

fn draining(draining: Draining) -> node::DrainingNode {
    match draining {
        Draining::No => node::DrainingNode::No,
        Draining::InProgress(()) => node::DrainingNode::InProgress,
        Draining::Done => node::DrainingNode::Done,
    }
}
