//! What the cluster is told of the node while it is up, and when it begins to go down.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_cluster::node::{Ping, Pressure};
use winddown_eviction::{Condition, Conditions};
use winddown_shared::{
    DesiredPods, FinalStatusFlush, Inhibitor, LockState, Pod, Runtime, WallClock, critical,
    error_chain,
};
use winddown_shutdown::ProgressPhase;

use super::{Identity, Node};
use crate::cluster::{Around, Clean, Cluster, ClusterParts, ClusterWork, FinalReport};

/// A node without the lock for so long says so in its conditions.
const UNPROTECTED_AFTER: Duration = Duration::from_secs(60);

/// Asks whether the runtime can run pods.
pub(super) struct RuntimePing<R> {
    runtime: Arc<R>,
    health: fn(&R) -> Result<(), String>,
}

/// A cluster that cannot be joined leaves a node on its own, with its static pods.
pub(super) fn prepare<R: Runtime>(
    parts: ClusterParts,
    identity: &Identity,
    ping: RuntimePing<R>,
    wall: &WallClock,
) -> Option<(Cluster, ClusterWork<RuntimePing<R>>)> {
    let Identity { name, boot_id } = identity;
    let joined = Cluster::prepare(parts, name, boot_id, ping, wall);
    joined
        .inspect_err(|error| {
            tracing::error!(error = error_chain(&error), "the node does not join its cluster");
        })
        .ok()
}

impl<R> RuntimePing<R> {
    pub(super) fn new(runtime: &Arc<R>, health: fn(&R) -> Result<(), String>) -> Self {
        Self { runtime: Arc::clone(runtime), health }
    }
}

impl<R: Runtime> Ping for RuntimePing<R> {
    async fn ping(&self) -> Result<(), String> {
        (self.health)(&self.runtime).map_err(|why| format!("container runtime is down: {why}"))
    }
}

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Joins the cluster.
    pub(super) fn join(self, cluster: Cluster, work: ClusterWork<RuntimePing<R>>) {
        let (gate, fit) = (self.0.gate.clone(), self.0.fit.clone());
        // What is refused has failed for good in the API, so no pod is judged on unknown facts.
        let hold_back = move || {
            (fit.is_unknown() && !gate.is_shut()).then_some("this machine cannot be read yet")
        };
        work.start(
            &cluster,
            Around {
                workers: self.0.workers.clone(),
                statuses: self.0.statuses.clone(),
                static_pods: self.static_pods(),
                hold_back: Arc::new(hold_back),
                wall: self.0.wall.clone(),
                stop: self.0.stop.clone(),
            },
        );
        critical::spawn("reader of the Node object", self.clone().hear_of_node(cluster.clone()));
        tokio::spawn(self.clone().show_cluster(cluster.clone()));
        critical::spawn("teller of the cluster", self.tell_cluster(cluster));
    }

    /// Of which pods a refusal is the end: those of the API.
    pub(super) fn refused_for_good(&self) -> impl Fn(&Pod) -> bool + Send + Sync + use<R, I> {
        let cluster = self.0.cluster.clone();
        move |pod| {
            let side = cluster.as_ref().and_then(Cluster::pods);
            side.is_some_and(|side| side.api_pods.get(pod.uid()).is_some())
        }
    }

    /// The final status flush before the node goes down; none outside a cluster.
    pub(super) fn final_status_flush(&self) -> Option<Arc<dyn FinalStatusFlush>> {
        let cluster = self.0.cluster.clone()?;
        Some(Arc::new(FinalReport { cluster, statuses: self.0.statuses.clone() }))
    }

    /// Keeps the Node object in step with the node. Nothing of the node waits for it.
    pub(super) async fn tell_cluster(self, cluster: Cluster) {
        let mut inhibitor = self.0.inhibitor.state();
        let mut notices = self.0.notice_aggregator.notices();
        let mut progress = self.0.progress.subscribe();
        let mut known = self.0.pods_known.subscribe();
        let mut drained = self.0.drained.subscribe();
        let mut gate = self.0.gate.changes();
        let mut found = self.0.fit.changes();
        let mut pressed = self.0.pressure.as_ref().map(super::pressure::Pressure::changes);
        let mut unheld_since = None;
        loop {
            let known_now = *known.borrow_and_update();
            let lock = {
                let said = inhibitor.borrow_and_update();
                let ends = said.preparing || notices.borrow_and_update().is_some();
                let phase = progress.borrow_and_update().phase;
                let runs = matches!(
                    phase,
                    ProgressPhase::Ending | ProgressPhase::Ended | ProgressPhase::Released
                );
                // What an earlier agent has begun goes on, until it is called off. This comes
                // before Ready: a node that is ready undoes its own cordon.
                let carried = !known_now && self.0.gate.is_shut();
                cluster.node().set_shutting_down(ends || runs || carried);
                said.lock.clone()
            };
            gate.mark_unchanged();
            cluster.node().set_draining(*drained.borrow_and_update());
            if let Some(pressed) = &mut pressed {
                cluster.node().set_pressure(pressure(*pressed.borrow_and_update()));
            }
            let unprotected_at = unheld(&lock, &mut unheld_since);
            found.mark_unchanged();
            self.tell_facts(&cluster, &lock, unprotected_at);
            if known_now {
                cluster.node().set_ready(Ok(()));
            }
            tokio::select! {
                () = self.0.stop.cancelled() => return,
                Ok(()) = inhibitor.changed() => {}
                Ok(()) = notices.changed() => {}
                Ok(()) = progress.changed() => {}
                Ok(()) = known.changed() => {}
                Ok(()) = drained.changed() => {}
                Ok(()) = gate.changed() => {}
                Ok(()) = found.changed() => {}
                () = changed(pressed.as_mut()) => {}
                () = sleep_until(unprotected_at.unwrap_or_else(Instant::now)),
                    if unprotected_at.is_some_and(|at| at > Instant::now()) => {}
            }
        }
    }

    fn tell_facts(&self, cluster: &Cluster, lock: &LockState, unprotected_at: Option<Instant>) {
        let found = self.0.fit.found();
        let last = self.0.last_boot.status().map(|last| last.text).unwrap_or_default();
        let unprotected = unprotected(lock, unprotected_at);
        cluster.change(|changing| {
            if let Some(found) = found {
                changing.labels = Some(found.own.labels.clone());
                changing.amounts = Some((found.whole.clone(), found.own.allocatable.clone()));
            }
            // What was said last stands until pods are let in again.
            if !self.0.gate.is_shut() || matches!(changing.clean, Clean::Up(_)) {
                changing.clean = Clean::Up(last);
            }
            changing.unprotected = unprotected;
        });
    }

    /// Follows the Node object as the API server has it: others label and taint it.
    pub(super) async fn hear_of_node(self, cluster: Cluster) {
        let mut node = cluster.node().server_node();
        loop {
            let now = node.borrow_and_update().clone();
            self.0.fit.hear(now);
            tokio::select! {
                () = self.0.stop.cancelled() => return,
                changed = node.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Counts changes of how it stands with the API server as changes of the picture.
    pub(super) async fn show_cluster(self, cluster: Cluster) {
        let mut api = cluster.api_changes();
        while self.0.stop.run_until_cancelled(api.changed()).await.is_some_and(|c| c.is_ok()) {
            self.0.changes.send_modify(|n| *n += 1);
        }
    }

    /// The pods of the manifests, once they were read.
    pub(super) fn static_pods(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        let (tx, rx) = watch::channel(None);
        let mut manifests = self.0.manifests.clone();
        critical::spawn("static pods", async move {
            loop {
                let now = Arc::clone(&manifests.borrow_and_update());
                if now.generation > 0 {
                    let (pods, complete) = (now.pods.clone(), now.complete);
                    tx.send_replace(Some(Arc::new(DesiredPods { pods, complete })));
                }
                tokio::select! {
                    changed = manifests.changed() => if changed.is_err() { return },
                    () = tx.closed() => return,
                }
            }
        });
        rx
    }
}

/// When a node that does not hold the lock counts as unprotected; `None` while it holds it.
fn unheld(lock: &LockState, since: &mut Option<Instant>) -> Option<Instant> {
    if *lock == LockState::Held {
        *since = None;
    } else if since.is_none() {
        *since = Some(Instant::now());
    }
    since.map(|since| since + UNPROTECTED_AFTER)
}

/// Why a shutdown would not wait for the pods, once that has been so for long enough.
fn unprotected(lock: &LockState, at: Option<Instant>) -> Option<String> {
    at.filter(|at| *at <= Instant::now()).map(|_| match lock {
        LockState::Waiting { why } | LockState::Absent { why } => why.to_string(),
        _ => "the lock was given back, and the node is still up".to_owned(),
    })
}

fn pressure(conditions: Conditions) -> Pressure {
    Pressure {
        memory: conditions.contains(Condition::Memory),
        disk: conditions.contains(Condition::Disk),
        pid: conditions.contains(Condition::Pid),
    }
}

async fn changed(pressed: Option<&mut watch::Receiver<Conditions>>) {
    let gone = match pressed {
        Some(pressed) => pressed.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
