//! The pod workers alone, against steps that are done at once: what is left is their own cost.

mod tokio_alone;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use winddown_node_tests::usage;
use winddown_shared::{
    Event, Grace, KillReason, KillRequest, Lifecycle, NodeEndListener, Pod, PodKiller, PodStopped,
    PodSyncer, PodWorkers, Recorder, RuntimePod, RuntimeStateProvider, Stop, SyncError, SyncUpdate,
    Synced, UpdateKind,
};

use crate::figure::{bytes, count, exact, median, micros, per_second};
use crate::table::Table;
use crate::targets;

use tokio_alone::Alone;
pub(crate) use tokio_alone::once as tokio_alone_once;

/// Pods that are created, updated and killed.
const PODS: usize = 10_000;
/// How often each is updated.
const UPDATES: usize = 10;
/// Whole rounds; the median of each figure counts.
const ROUNDS: usize = 9;

/// Measures on two threads, which is what the agent has.
pub(crate) fn measure() -> Result<Table, std::io::Error> {
    let floor = tokio_alone::measure()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // As in the agent, where every caller is a task of the runtime.
    runtime.block_on(runtime.spawn(run(floor))).map_err(std::io::Error::other)
}

#[derive(Default)]
struct Figures {
    create: Vec<Duration>,
    update: Vec<Duration>,
    kill: Vec<Duration>,
}

async fn run(floor: Alone) -> Table {
    let pods: Vec<Pod> = (0..PODS).filter_map(pod).collect();
    let before = usage::own_memory();
    let workers = PodWorkers::new(AtOnce, Arc::new(Silent));
    let mut figures = Figures::default();
    let (mut idle, mut idle_tasks, mut queries) = (0, 0, 0);
    for round in 0..ROUNDS {
        figures.create.push(create(&workers, &pods).await);
        if round == 0 {
            idle = usage::own_memory().saturating_sub(before);
            // Later than the wait for it, which would make it 0 by construction.
            tokio::time::sleep(Duration::from_millis(100)).await;
            idle_tasks = u64::try_from(workers.busy()).unwrap_or(u64::MAX);
        }
        figures.update.push(update(&workers, &pods).await);
        if round == ROUNDS - 1 {
            queries = queries_under_load(&workers, &pods).await;
        }
        figures.kill.push(kill(&workers, &pods).await);
        workers.sync_known_pods(&HashSet::new());
    }
    let peak = usage::own_memory().saturating_sub(before);
    table(figures, floor, [idle, idle_tasks, peak, queries])
}

async fn create(workers: &PodWorkers<AtOnce>, pods: &[Pod]) -> Duration {
    let begun = Instant::now();
    for pod in pods {
        workers.update(UpdateKind::Create, pod.clone(), None);
    }
    settled(workers).await;
    begun.elapsed()
}

async fn update(workers: &PodWorkers<AtOnce>, pods: &[Pod]) -> Duration {
    let begun = Instant::now();
    for _ in 0..UPDATES {
        for pod in pods {
            workers.update(UpdateKind::Update, pod.clone(), None);
        }
    }
    settled(workers).await;
    begun.elapsed()
}

async fn kill(workers: &PodWorkers<AtOnce>, pods: &[Pod]) -> Duration {
    let begun = Instant::now();
    let kills = pods
        .iter()
        .map(|pod| workers.kill_pod(pod.clone(), KillRequest::new(KillReason::Shutdown)));
    join_all(kills).await;
    let took = begun.elapsed();
    while workers.snapshot().iter().any(|pod| pod.lifecycle != Lifecycle::Finished) {
        tokio::task::yield_now().await;
    }
    took
}

/// Waits until no pod has anything to do.
async fn settled(workers: &PodWorkers<AtOnce>) {
    while workers.busy() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Answers per second that one thread gets while another one sends updates.
async fn queries_under_load(workers: &PodWorkers<AtOnce>, pods: &[Pod]) -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let load = {
        let (workers, pods, stop) = (workers.clone(), pods.to_vec(), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                for pod in &pods {
                    workers.update(UpdateKind::Update, pod.clone(), None);
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let (begun, mut answers) = (Instant::now(), 0_u64);
    while begun.elapsed() < Duration::from_millis(500) {
        for pod in pods {
            std::hint::black_box(workers.runs(pod.uid()));
            answers += 1;
        }
        tokio::task::yield_now().await;
    }
    let per_second =
        answers * 1000 / u64::try_from(begun.elapsed().as_millis()).unwrap_or(1).max(1);
    stop.store(true, Ordering::Relaxed);
    let _ = load.await;
    settled(workers).await;
    per_second
}

fn table(figures: Figures, floor: Alone, [idle, idle_tasks, peak, queries]: [u64; 4]) -> Table {
    let title = format!(
        "pod workers alone: {PODS} pods, {UPDATES} updates each, then all killed at once; steps that \
         are done at once, two threads, median of {ROUNDS} rounds"
    );
    let mut table = Table::titled(title);
    let pods = u64::try_from(PODS).unwrap_or(1);
    let steps = u32::try_from(PODS).unwrap_or(1);
    let updates = u32::try_from(PODS * UPDATES).unwrap_or(1);
    let mut each = |what, took: Vec<Duration>, times: u32, floor: Duration, most: Duration| {
        let row = table.row(what, micros(median(took) / times));
        row.below(micros(most)).floor(Some(micros(floor / times)));
    };
    each("create, per pod", figures.create, steps, floor.create, targets::CREATE);
    each("update, per update", figures.update, updates, floor.update, targets::UPDATE);
    each("kill, per pod", figures.kill, steps, floor.kill, targets::KILL);
    table.row("memory per idle pod", bytes(idle / pods)).below(bytes(targets::IDLE_POD));
    table.row("memory per pod at the worst moment", bytes(peak / pods));
    table.row("tasks while idle", count(idle_tasks));
    table.row("queries under load", per_second(exact(queries)));
    table
}

/// A small pod.
pub(crate) fn pod(i: usize) -> Option<Pod> {
    Pod::new(api::Pod {
        metadata: ObjectMeta {
            name: Some(format!("pod-{i}")),
            namespace: Some("default".into()),
            uid: Some(format!("{i:08}-0123-4567-89ab-cdef01234567")),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: vec![api::Container { name: "main".into(), ..api::Container::default() }],
            ..api::PodSpec::default()
        }),
        status: None,
    })
    .ok()
}

/// Steps that are done at once.
pub(crate) struct AtOnce;

impl PodSyncer for AtOnce {
    async fn sync_pod(&self, _: SyncUpdate) -> Result<Synced, SyncError> {
        Ok(Synced::default())
    }

    async fn sync_terminating_pod(&self, _: Pod, _: Stop) -> Result<PodStopped, SyncError> {
        Ok(PodStopped::default())
    }

    async fn sync_terminating_runtime_pod(
        &self,
        _: RuntimePod,
        _: Grace,
    ) -> Result<PodStopped, SyncError> {
        Ok(PodStopped::default())
    }

    async fn sync_terminated_pod(&self, _: Pod) -> Result<(), SyncError> {
        Ok(())
    }
}

impl RuntimeStateProvider for AtOnce {}

impl NodeEndListener for AtOnce {}

/// Hears nothing.
pub(crate) struct Silent;

impl Recorder for Silent {
    fn record(&self, _: &Event) {}
}
