//! Ends again what a kubelet that cannot be held back starts again.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::{PodLabel, PodUid};

use super::local_node::LocalNode;
use super::looks::Looks;

/// What they get: they were to have ended.
const GRACE: Duration = Duration::from_secs(1);

/// The pods that were ended without the kubelet, by the UID that the container runtime knows, and when.
#[derive(Debug, Default)]
pub(super) struct EndedPast(watch::Sender<HashMap<PodUid, (PodLabel, Instant)>>);

impl EndedPast {
    /// The pod was ended just now.
    pub(super) fn add(&self, inside: PodUid, pod: PodLabel) {
        self.0.send_modify(|all| drop(all.insert(inside, (pod, Instant::now()))));
    }

    /// While the node goes down, ends what runs of a pod that was ended. For ever.
    pub(super) async fn end_again<N: LocalNode>(
        &self,
        node: &N,
        all_looks: &Looks,
        mut going_down: watch::Receiver<bool>,
    ) {
        let mut ended = self.0.subscribe();
        loop {
            // No look is taken for nothing. The sender lives as long as `self`.
            let _ = ended.wait_for(|ended| !ended.is_empty()).await;
            let mut looks = all_looks.subscribe();
            while *going_down.borrow() {
                tokio::select! {
                    _ = looks.changed() => {}
                    changed = going_down.changed() => if changed.is_err() { return },
                }
                let Some(look) = looks.borrow_and_update().clone() else { continue };
                let runs_again: Vec<_> = {
                    let ended = self.0.borrow();
                    let again = ended.iter().filter(|(inside, (_, at))| {
                        *at < look.begun && look.of(inside).is_ok_and(|now| !now.running.is_empty())
                    });
                    again.map(|(inside, (pod, _))| (inside.clone(), pod.clone())).collect()
                };
                let again = runs_again.into_iter();
                join_all(again.map(|(inside, pod)| self.end_pod_again(node, inside, pod))).await;
            }
            // The node stays up: what runs is to run.
            self.0.send_modify(HashMap::clear);
        }
    }

    async fn end_pod_again<N: LocalNode>(&self, node: &N, inside: PodUid, pod: PodLabel) {
        tracing::warn!(%pod, "the kubelet has started its containers again: they are ended again");
        if let Err(error) = node.stop(&inside, GRACE).await {
            tracing::warn!(%pod, "its containers cannot be stopped: {error}");
        }
        self.add(inside, pod);
    }
}
