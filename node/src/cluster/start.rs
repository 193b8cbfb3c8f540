//! The tasks of a node in a cluster.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_cluster::after_boot::{AfterBoot, AfterBootPolicy};
use winddown_cluster::events::{EventWriter, Events};
use winddown_cluster::mirror::MirrorDriver;
use winddown_cluster::node::{NodeController, Ping};
use winddown_cluster::pods::{OrphanPolicy, PodController, PodControllerConfig, RunState};
use winddown_cluster::status::{Follow, OutboxDriver};
use winddown_pod_references::Freshener;
use winddown_shared::status::StatusStore;
use winddown_shared::{DesiredPods, PodSyncer, PodWorkers, WallClock, critical};

use super::provider::{HoldBack, WorkersProvider};
use super::status_sink::StatusSink;
use super::{Membership, PodSide};

/// A pod controller that failed is begun anew after this long.
const ANEW: Duration = Duration::from_secs(5);

/// What has to be started once the node is there.
pub(crate) struct ClusterWork<P> {
    pub(super) node: NodeController<P, Events>,
    pub(super) writer: EventWriter,
    pub(super) pods: Option<PodsWork>,
    pub(super) name: String,
}

/// The same for the API's pods.
pub(super) struct PodsWork {
    pub(super) outbox_driver: OutboxDriver,
    pub(super) mirror_driver: MirrorDriver,
    pub(super) freshener: Freshener,
    pub(super) policy: AfterBootPolicy,
    pub(super) orphans: OrphanPolicy,
    pub(super) runtime: watch::Receiver<String>,
}

/// The node that the tasks work for.
pub(crate) struct Around<S: PodSyncer> {
    pub(crate) workers: PodWorkers<S>,
    pub(crate) statuses: StatusStore,
    /// The pods of the manifests, once they were read.
    pub(crate) static_pods: watch::Receiver<Option<Arc<DesiredPods>>>,
    pub(crate) hold_back: HoldBack,
    pub(crate) wall: WallClock,
    pub(crate) stop: CancellationToken,
}

// === impl ClusterWork ===

impl<P: Ping> ClusterWork<P> {
    /// Starts everything. Must be called inside a tokio runtime.
    pub(crate) fn start<S: PodSyncer>(self, cluster: &Membership, around: Around<S>) {
        let stop = &around.stop;
        let connection = cluster.0.connection.clone();
        let until = stop.clone();
        critical::spawn("connection to the API server", async move { connection.run(until).await });
        critical::spawn("Node object", self.node.run(stop.clone()));
        critical::spawn("events", self.writer.run(stop.clone()));
        if let (Some(work), Some(_)) = (self.pods, cluster.pods()) {
            work.start(cluster, self.name, around);
        }
    }
}

// === impl PodsWork ===

impl PodsWork {
    fn start<S: PodSyncer>(self, cluster: &Membership, name: String, around: Around<S>) {
        let Around { workers, statuses, static_pods, hold_back, wall, stop } = around;
        let Some(side) = cluster.pods() else { return };
        let client = cluster.0.connection.client();
        critical::spawn("outbox", self.outbox_driver.run(client.clone(), stop.clone()));
        let follow = Follow::new(statuses.clone(), side.outbox.clone());
        let follow = follow.with_mirrors(side.mirrors.clone()).run(stop.clone());
        critical::spawn("statuses for the outbox", follow);
        let ending = workers.clone();
        let mirrors = self.mirror_driver.with_is_ending(Arc::new(move |seen| {
            let full_name = format!("{}_{}", seen.pod.name, seen.pod.namespace);
            ending.is_static_pod_terminating(&full_name.into())
        }));
        let mirrors = mirrors.run(client.clone(), static_pods, stop.clone());
        critical::spawn("mirror pods", mirrors);
        critical::spawn("volumes from the API", self.freshener.run(stop.clone()));
        remove_unknown_volumes(side);
        let (ready, is_ready) = watch::channel(false);
        let after_boot = AfterBoot::new(side.ended.clone(), self.policy, wall.clone());
        critical::spawn("statuses after a boot", after_boot.run(client, is_ready, stop.clone()));
        critical::spawn("state of the API server", hear_the_api(cluster.clone(), stop.clone()));
        tokio::spawn(
            stop.clone().run_until_cancelled_owned(name_runtime(cluster.clone(), self.runtime)),
        );
        let api_pods = side.api_pods.clone();
        let provider = WorkersProvider::new(api_pods, workers, statuses, hold_back, wall);
        let controllers = Controllers {
            cluster: cluster.clone(),
            provider: Arc::new(provider),
            config: PodControllerConfig {
                orphans: self.orphans,
                ..PodControllerConfig::new(name, cluster.0.connection.api_clock())
            },
            ready,
        };
        critical::spawn("pod controllers", controllers.run(stop));
    }
}

/// Volumes of pods that went while no agent ran.
fn remove_unknown_volumes(side: &PodSide) {
    let (resolver, known) = (side.resolver.clone(), side.api_pods.uids());
    tokio::task::spawn_blocking(move || {
        let gone = resolver.remove_unknown(|uid| known.iter().any(|known| known.as_str() == uid));
        if gone > 0 {
            tracing::info!(directories = gone, "removed volumes of pods that are gone");
        }
    });
}

/// Says in the Node object what runs the pods.
async fn name_runtime(cluster: Membership, mut runtime: watch::Receiver<String>) {
    loop {
        let name = runtime.borrow_and_update().clone();
        cluster.change(|changing| changing.runtime = Some(name));
        if runtime.changed().await.is_err() {
            return;
        }
    }
}

/// Tells those who wait for the API server that it answers again, and the mirrors whose they are.
async fn hear_the_api(cluster: Membership, stop: CancellationToken) {
    let Some(side) = cluster.pods() else { return };
    let mut health = cluster.0.connection.health();
    let mut node = cluster.0.node.state();
    loop {
        if health.borrow_and_update().is_connected() {
            side.outbox.api_answers();
        }
        side.mirrors.set_node_uid(node.borrow_and_update().uid.clone());
        tokio::select! {
            () = stop.cancelled() => return,
            changed = health.changed() => if changed.is_err() { return },
            changed = node.changed() => if changed.is_err() { return },
        }
    }
}

/// One pod controller after the other; a second one only after a defect.
struct Controllers<S: PodSyncer> {
    cluster: Membership,
    provider: Arc<WorkersProvider<S>>,
    config: PodControllerConfig,
    /// The API's pods are known.
    ready: watch::Sender<bool>,
}

// === impl Controllers ===

impl<S: PodSyncer> Controllers<S> {
    async fn run(self, stop: CancellationToken) {
        let Some(side) = self.cluster.pods() else { return };
        loop {
            let client = self.cluster.0.connection.client();
            let statuses = Arc::new(StatusSink(side.outbox.clone()));
            let controller =
                PodController::new(client, self.provider.clone(), statuses, self.config.clone())
                    .with_prepare(Arc::new(side.resolver.clone()))
                    .with_events(Arc::new(self.cluster.0.events.clone()))
                    .with_mirrors(Arc::new(side.mirrors.clone()));
            let mut handle = controller.handle();
            *side.controller.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
            let run = tokio::spawn(controller.run(stop.clone()));
            if handle.ready().await {
                side.api_pods.all_known().await;
                self.ready.send_replace(true);
            }
            let ended = run.await;
            if stop.is_cancelled() {
                return;
            }
            let why = match (ended, handle.state()) {
                (Ok(Err(error)), _) => error.to_string(),
                (_, RunState::Done(Some(error))) => error.to_string(),
                (Err(panic), _) => panic.to_string(),
                (Ok(Ok(())), _) => "it ended by itself".to_owned(),
            };
            tracing::error!(
                error = why,
                "the pod controller failed, which is a bug; beginning anew"
            );
            tokio::select! {
                () = tokio::time::sleep(ANEW) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}
