//! Ends again what a kubelet that cannot be held back starts again.

use std::collections::HashMap;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::{PodLabel, PodUid};

use super::local_node::LocalNode;
use super::stop::{Core, LAST_GRACE};

/// The pods that were ended without the kubelet, by the UID that the container runtime knows, and when.
#[derive(Debug, Default)]
pub(super) struct EndedPast(watch::Sender<HashMap<PodUid, (PodLabel, Instant)>>);

// === impl EndedPast ===

impl EndedPast {
    /// The pod was ended just now.
    pub(super) fn add(&self, inside: PodUid, pod: PodLabel) {
        self.0.send_modify(|all| drop(all.insert(inside, (pod, Instant::now()))));
    }
}

// === impl Core ===

impl<A, N: LocalNode> Core<A, N> {
    /// While the node goes down, ends what runs of a pod that was ended. For ever.
    pub(super) async fn end_what_is_started_again(&self) {
        let (mut ended, mut going_down) =
            (self.ended_past.0.subscribe(), self.config.going_down.clone());
        loop {
            // No look is taken for nothing. The sender lives as long as `self`.
            let _ = ended.wait_for(|ended| !ended.is_empty()).await;
            let mut looks = self.looks.subscribe();
            while *going_down.borrow() {
                tokio::select! {
                    _ = looks.changed() => {}
                    _ = going_down.changed() => {}
                }
                let Some(look) = looks.borrow_and_update().clone() else { continue };
                let runs_again: Vec<_> = {
                    let ended = self.ended_past.0.borrow();
                    let again = ended.iter().filter(|(inside, (_, at))| {
                        *at < look.begun && look.of(inside).is_ok_and(|now| !now.running.is_empty())
                    });
                    again.map(|(inside, (pod, _))| (inside.clone(), pod.clone())).collect()
                };
                join_all(runs_again.into_iter().map(|(inside, pod)| self.end_again(inside, pod)))
                    .await;
            }
            // The node stays up: what runs is to run.
            self.ended_past.0.send_modify(HashMap::clear);
        }
    }

    async fn end_again(&self, inside: PodUid, pod: PodLabel) {
        tracing::warn!(%pod, "the kubelet has started its containers again: they are ended again");
        if let Err(error) = self.node.stop(&inside, LAST_GRACE).await {
            tracing::warn!(%pod, "its containers cannot be stopped: {error}");
        }
        self.ended_past.add(inside, pod);
    }
}
