//! Allocations on the way of a pod's end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use winddown_shared::{KillReason, KillRequest, Pod, PodKiller, PodSyncer, PodWorkers, UpdateKind};

use crate::counted::Counting;
use crate::figure::exact;
use crate::scaling::InMemory;
use crate::table::Grid;
use crate::workers::{AtOnce, Silent, pod};

/// How many pods end together.
const PODS: [u64; 3] = [100, 1000, 5000];

/// How much of the agent is on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// The pod workers alone.
    Workers,
    /// With statuses, on containers in memory.
    Statuses,
    /// A whole shutdown: plan, record, groups, report.
    Shutdown,
}

/// Counts what each layer allocates for a pod's end.
pub(crate) fn measure() -> Grid {
    let title = "allocations on the way of a pod's end, per pod; one thread, counted by valgrind: \
                 pods that are terminated less the same pods that are not"
        .to_owned();
    let columns: Vec<String> = PODS.iter().map(|pods| format!("{pods} pods")).collect();
    let mut head = vec!["what terminates them"];
    head.extend(columns.iter().map(String::as_str));
    let mut grid = Grid::titled(title, &head);
    for layer in Layer::ALL {
        let mut cells = vec![layer.title().to_owned()];
        cells.extend(PODS.map(|pods| match layer.per_pod(pods) {
            Some(count) => format!("{count:.1}"),
            None => "no valgrind".to_owned(),
        }));
        grid.row(cells);
    }
    grid
}

/// Has so many pods, and ends them or does not: what is counted.
pub(crate) fn once(layer: &str, pods: &str, ended: &str) -> Result<String, String> {
    let layer = Layer::ALL.into_iter().find(|one| one.as_str() == layer);
    let layer = layer.ok_or("which layer? workers, statuses or shutdown")?;
    let count: usize = pods.parse().map_err(|_| format!("{pods}: not a whole number"))?;
    let ends = ended == "ended";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let pods: Vec<Pod> = (0..count).filter_map(pod).collect();
        match layer {
            Layer::Workers => {
                let workers = PodWorkers::new(AtOnce, Arc::new(Silent));
                end(&workers, &pods, ends).await;
            }
            Layer::Statuses => {
                let node = InMemory::new(Duration::ZERO).map_err(|error| error.to_string())?;
                end(node.workers(), &pods, ends).await;
            }
            Layer::Shutdown => {
                let node = InMemory::new(Duration::ZERO).map_err(|error| error.to_string())?;
                node.start(&pods).await;
                if ends {
                    node.shut_down().await?;
                }
            }
        }
        Ok(format!("{count} pods"))
    })
}

async fn end<S: PodSyncer>(workers: &PodWorkers<S>, pods: &[Pod], ends: bool) {
    for pod in pods {
        workers.update(UpdateKind::Create, pod.clone(), None);
    }
    while workers.busy() > 0 {
        tokio::task::yield_now().await;
    }
    if ends {
        let request = || KillRequest::new(KillReason::Shutdown);
        join_all(pods.iter().map(|pod| workers.kill_pod(pod.clone(), request()))).await;
    }
}

impl Layer {
    const ALL: [Self; 3] = [Self::Workers, Self::Statuses, Self::Shutdown];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Statuses => "statuses",
            Self::Shutdown => "shutdown",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Workers => "`kill_pod` of the pod workers",
            Self::Statuses => "with statuses, on containers in memory",
            Self::Shutdown => "a whole shutdown: plan, record on disk, groups, report",
        }
    }

    fn per_pod(self, pods: u64) -> Option<f64> {
        let total = |ended: &str| {
            let args = ["kills", self.as_str(), &pods.to_string(), ended].map(str::to_owned);
            Counting::Allocations.total(&args)
        };
        Some(exact(total("ended")?.saturating_sub(total("kept")?)) / exact(pods))
    }
}
