//! Starts the tasks of a node in a cluster.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_api_client::node_pods::KubePods;
use winddown_cluster::after_boot::{AfterBoot, AfterBootPolicy};
use winddown_cluster::events::EventWriter;
use winddown_cluster::mirror::MirrorDriver;
use winddown_cluster::node::{NodeController, Ping};
use winddown_cluster::pods::{NodeSide, PodController};
use winddown_cluster::status::{Follow, Outbox, OutboxDriver};
use winddown_pod_references::{Freshener, Resolver};
use winddown_shared::{
    Pod, PodKiller, PodUid, PodWorkers, Runtime, RuntimeSyncer, critical, error_chain,
};

use super::{Membership, NodeRuntime};
use crate::core::Core;
use crate::links::next_change;

/// The work to start once the node exists.
pub(crate) struct ClusterWork<P> {
    pub(super) node: NodeController<P>,
    pub(super) writer: EventWriter,
    pub(super) pods: Option<PodsWork>,
}

/// The work for the API server's pods.
pub(super) struct PodsWork {
    pub(super) outbox_driver: OutboxDriver,
    pub(super) mirror_driver: MirrorDriver,
    pub(super) freshener: Freshener,
    pub(super) policy: AfterBootPolicy,
    pub(super) api_pods: KubePods,
    pub(super) controller: PodController<Outbox, Resolver>,
    pub(super) runtime: watch::Receiver<NodeRuntime>,
}

// === impl ClusterWork ===

impl<P: Ping> ClusterWork<P> {
    /// Starts all tasks. Must be called inside a tokio runtime.
    pub(crate) fn start<R: Runtime>(self, cluster: &Membership, core: &Core<R>) {
        let stop = &core.stop;
        let connection = cluster.0.connection.clone();
        let until = stop.clone();
        critical::spawn("connection to the API server", async move { connection.run(until).await });
        critical::spawn("Node object", self.node.run(stop.clone()));
        critical::spawn("events", self.writer.run(stop.clone()));
        if let (Some(work), Some(_)) = (self.pods, cluster.pods()) {
            work.start(cluster, core);
        }
    }
}

// === impl PodsWork ===

impl PodsWork {
    fn start<R: Runtime>(self, cluster: &Membership, core: &Core<R>) {
        let (workers, statuses) = (core.workers.clone(), core.statuses.clone());
        let stop = core.stop.clone();
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
        let mirrors = mirrors.run(client.clone(), core.wanted.subscribe(), stop.clone());
        critical::spawn("mirror pods", mirrors);
        critical::spawn("volumes from the API", self.freshener.run(stop.clone()));
        let (ready, is_ready) = watch::channel(false);
        let after_boot = AfterBoot::new(side.ended.clone(), self.policy, core.wall.clone());
        critical::spawn(
            "statuses after a boot",
            after_boot.run(self.api_pods, is_ready, stop.clone()),
        );
        critical::spawn("state of the API server", follow_the_api(cluster.clone(), stop.clone()));
        tokio::spawn(
            stop.clone().run_until_cancelled_owned(tell_runtime(cluster.clone(), self.runtime)),
        );
        let mut handle = self.controller.handle();
        let remove = remove_unknown_volumes(cluster.clone(), workers.clone());
        let until = stop.clone();
        let side = NodeSide::of_workers(workers, statuses).with_remains(Arc::clone(&core.runtime));
        let run = self.controller.run(side, stop.clone());
        critical::spawn_stopping("pods of the API", until, async move {
            if let Err(error) = run.await {
                tracing::error!(error = error_chain(&error), "cannot follow the pods of the API");
            }
        });
        critical::spawn("readiness of the API's pods", async move {
            if handle.ready().await {
                ready.send_replace(true);
                stop.run_until_cancelled(remove).await;
            }
            stop.cancelled().await;
        });
    }
}

/// Removes the volumes of pods that went away while no agent ran, once it is known which pods run, and of those that only
/// the runtime knows when they have terminated. To be called when the API server has listed the wanted ones.
async fn remove_unknown_volumes<R: Runtime>(
    cluster: Membership,
    workers: PodWorkers<RuntimeSyncer<R>>,
) {
    let Some(side) = cluster.pods() else { return };
    let (mut more, mut ends) = (workers.more_known(), workers.ends());
    loop {
        ends.mark_unchanged();
        let running = workers.running();
        if !running.known {
            next_change(&mut more).await;
            continue;
        }
        let wanted = side.wanted.borrow().clone();
        let wanted =
            wanted.iter().flat_map(|all| all.pods.iter().map(Pod::uid).chain(&all.waiting));
        let mut known: HashSet<PodUid> = wanted.cloned().collect();
        known.extend(running.pods.iter().map(Pod::uid).cloned());
        // Nothing but the runtime will tell that they have terminated.
        let orphans = running.runtime_only.into_iter().map(|pod| pod.uid);
        let orphans: Vec<PodUid> = orphans.filter(|uid| !known.contains(uid)).collect();
        known.extend(orphans.iter().cloned());
        let resolver = side.resolver.clone();
        let removed = tokio::task::spawn_blocking(move || {
            resolver.remove_unknown(|uid| known.contains(&PodUid::new(uid)))
        });
        if let Ok(removed @ 1..) = removed.await {
            tracing::info!(directories = removed, "removed volumes of pods that are gone");
        }
        if orphans.is_empty() {
            return;
        }
        while orphans.iter().all(|uid| workers.runs(uid) != Some(false)) {
            next_change(&mut ends).await;
        }
    }
}

/// Keeps the runtime in the Node object up to date.
async fn tell_runtime(cluster: Membership, mut runtime: watch::Receiver<NodeRuntime>) {
    loop {
        let now = runtime.borrow_and_update().clone();
        cluster.change(|changing| changing.runtime = Some(now));
        if runtime.changed().await.is_err() {
            return;
        }
    }
}

/// Tells the outbox when the API server answers again, and the mirrors the UID of the Node that owns them.
async fn follow_the_api(cluster: Membership, stop: CancellationToken) {
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
