//! Stops again the containers that a kubelet restarts when it cannot be held.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::{PodRef, PodUid};

use super::local_node::{ContainerStop, KubeletHost};
use super::runtime_poller::RuntimePoller;

/// The grace period of restarted containers; short, because they should have stopped already.
const RESTARTED_GRACE: Duration = Duration::from_secs(1);

/// The pods that were stopped while the kubelet was not held, with the time, by the UID that the runtime knows.
#[derive(Debug, Default)]
pub(super) struct RestartGuard(watch::Sender<HashMap<PodUid, (PodRef, Instant)>>);

impl RestartGuard {
    /// Records that the pod was just stopped.
    pub(super) fn add(&self, runtime_uid: PodUid, pod: PodRef) {
        self.0.send_modify(|all| drop(all.insert(runtime_uid, (pod, Instant::now()))));
    }

    /// While the node goes down, stops whatever runs of a recorded pod. Never returns.
    pub(super) async fn end_again<N: KubeletHost>(
        &self,
        node: &N,
        poller: &RuntimePoller,
        mut going_down: watch::Receiver<bool>,
    ) {
        let mut ended = self.0.subscribe();
        loop {
            // Without recorded pods the runtime is not polled. The sender lives as long as `self`.
            let _ = ended.wait_for(|ended| !ended.is_empty()).await;
            let mut snapshots = poller.subscribe();
            while *going_down.borrow() {
                tokio::select! {
                    _ = snapshots.changed() => {}
                    changed = going_down.changed() => if changed.is_err() { return },
                }
                let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
                let runs_again: Vec<_> = {
                    let ended = self.0.borrow();
                    let again = ended.iter().filter(|(uid, (_, at))| {
                        *at < snapshot.begun
                            && snapshot.of(uid).is_ok_and(|now| !now.running.is_empty())
                    });
                    again.map(|(uid, (pod, _))| (uid.clone(), pod.clone())).collect()
                };
                let again = runs_again.into_iter();
                join_all(again.map(|(uid, pod)| self.end_pod_again(node, uid, pod))).await;
            }
            // The node stays up, so running pods are left alone.
            self.0.send_modify(HashMap::clear);
        }
    }

    async fn end_pod_again<N: KubeletHost>(&self, node: &N, runtime_uid: PodUid, pod: PodRef) {
        tracing::warn!(%pod, "the kubelet restarted the pod's containers; terminating them again");
        if let Err(error) = node.stop(&runtime_uid, &ContainerStop::at_once(RESTARTED_GRACE)).await
        {
            tracing::warn!(%pod, "cannot stop the pod's containers: {error}");
        }
        self.add(runtime_uid, pod);
    }
}
