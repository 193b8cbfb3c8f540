//! Writable layers as the runtime reports them, and memory and CPU time of containers without a cgroup here.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use winddown_engine::stats::Figures;
use winddown_shared::{DiskUse, Mutex, error_chain};

use super::super::{CriContext, api, by_pod};
use super::Measured;

/// The runtime's last report, by container ID; none if it failed.
#[derive(Debug, Default)]
pub(super) struct Layers {
    known: Mutex<Option<HashMap<String, LayerUse>>>,
    /// The time of the last request; held while one is in progress.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LayerUse {
    layer: Option<DiskUse>,
    figures: Figures,
}

impl Layers {
    /// Requests a report, unless the last one is younger than `age`. After an error nothing is known. Dropping the
    /// future leaves the last report.
    pub(super) async fn refresh(&self, context: &CriContext, age: Duration) {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < age) {
            return;
        }
        let ask = |label_selector| {
            let filter = api::ContainerStatsFilter { label_selector, ..Default::default() };
            let request = api::ListContainerStatsRequest { filter: Some(filter) };
            context.client.list_container_stats(request)
        };
        let told = match by_pod::ask_all(context, "asking what containers use", ask).await {
            Ok(all) => {
                let stats = all.into_iter().flat_map(|answer| answer.stats);
                Some(stats.filter_map(layer_use).collect())
            }
            Err(error) => {
                let why = error_chain(&error);
                let is_news = asked.is_none() || self.known.lock().is_some();
                if is_news {
                    tracing::warn!(
                        why,
                        "the container runtime does not report what containers use"
                    );
                }
                None
            }
        };
        *asked = Some(Instant::now());
        *self.known.lock() = told;
    }

    /// Fills in the layers, and unless the runtime is silent, memory and CPU time where they are still missing.
    /// Returns whether the layers are known.
    pub(super) fn enter(&self, pods: &mut [Measured], is_silent: bool) -> bool {
        let known = self.known.lock();
        let Some(known) = &*known else { return false };
        for pod in pods {
            for container in &mut pod.containers {
                let told = known.get(&*container.id).copied().unwrap_or_default();
                container.layer = told.layer;
                let missing = if is_silent { Figures::default() } else { told.figures };
                container.figures = container.figures.map(|known| known.or(missing));
            }
        }
        true
    }
}

fn layer_use(stats: api::ContainerStats) -> Option<(String, LayerUse)> {
    let layer = stats.writable_layer.and_then(|layer| {
        let inodes = layer.inodes_used.map_or(0, |inodes| inodes.value);
        Some(DiskUse { bytes: layer.used_bytes?.value, inodes, is_partial: false })
    });
    let memory = stats.memory.and_then(|memory| memory.working_set_bytes);
    let cpu = stats.cpu.and_then(|cpu| cpu.usage_core_nano_seconds);
    let figures = Figures {
        memory_working_set: memory.map(|bytes| bytes.value),
        cpu_time: cpu.map(|used| Duration::from_nanos(used.value)),
        ..Figures::default()
    };
    Some((stats.attributes?.id, LayerUse { layer, figures }))
}
