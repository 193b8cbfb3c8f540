//! Controllers of others, beside the node's own.

use std::sync::Arc;

use winddown_control::api;
use winddown_shared::{
    AdmitHandler, Inhibitor, NodeHandle, NodeHandleParts, Plugin, PodWorkers, Runtime,
    RuntimeSyncer, critical,
};

use super::Node;

/// What the plug-ins ask of a new pod, in their order.
pub(super) fn admission(plugins: &[Box<dyn Plugin>]) -> Vec<Arc<dyn AdmitHandler>> {
    plugins.iter().filter_map(|plugin| plugin.admission()).collect()
}

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Starts the plug-ins, each when the pods that ran before the agent did are known.
    pub(super) fn start_plugins(&self, plugins: Vec<Box<dyn Plugin>>) {
        for plugin in plugins {
            self.0.metrics.of_plugin(plugin.name());
            let node = self.clone();
            critical::spawn_until(plugin.name().as_str(), self.0.stop.clone(), async move {
                node.pods_are_known().await;
                let stop = node.0.stop.clone();
                let handle = NodeHandle::new(plugin.name(), node.handle_parts());
                tokio::select! {
                    () = plugin.run(handle) => stop.cancelled().await,
                    () = stop.cancelled() => {}
                }
            });
        }
    }

    fn handle_parts(&self) -> NodeHandleParts<PodWorkers<RuntimeSyncer<R>>> {
        let inner = &*self.0;
        NodeHandleParts {
            killer: Arc::new(inner.workers.clone()),
            victims: inner.fit.victim_lock(),
            gate: inner.gate.changes(),
            statuses: inner.statuses.clone(),
            recorder: Arc::clone(&inner.recorder),
            wall: inner.wall.clone(),
            notes: inner.plugin_notes.clone(),
        }
    }

    /// What plug-ins say of themselves.
    pub(super) fn plugin_statuses(&self) -> Vec<api::PluginStatus> {
        let notes = self.0.plugin_notes.all().into_iter();
        notes
            .map(|note| api::PluginStatus {
                name: note.name.as_str().to_owned(),
                text: note.line.to_string(),
            })
            .collect()
    }
}
