//! Stops again the containers that a kubelet restarts: one that is not held, or that was started by hand.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use winddown_shared::{LateRemark, PodRef, PodUid};

use super::local_node::{ContainerStop, KubeletHost};
use super::runtime_poller::RuntimePoller;

/// The grace period of restarted containers; short, because they should have stopped already.
const RESTARTED_GRACE: Duration = Duration::from_secs(1);
/// What a report says that is written meanwhile.
const BEING_STOPPED: &str = "it was being stopped again";

/// The pods that were stopped while the node goes down, by the UID that the runtime knows.
#[derive(Debug, Default)]
pub(super) struct RestartGuard {
    pods: watch::Sender<HashMap<PodUid, Guarded>>,
    /// Notified when a kubelet restarts a pod a second time whose end it should have known.
    pub(super) unaware: Notify,
}

#[derive(Clone, Debug)]
struct Guarded {
    pod: PodRef,
    /// Whether the kubelet should know of its end.
    is_known: bool,
    /// When it was last stopped.
    at: Instant,
    /// How often it has been stopped again.
    again: usize,
    /// Says that in the report.
    remark: LateRemark,
}

impl RestartGuard {
    /// Records that the pod was just stopped. `is_known`: whether the kubelet should know of its end. `remark` takes what
    /// becomes of it.
    pub(super) fn add(&self, runtime_uid: PodUid, pod: PodRef, is_known: bool, remark: LateRemark) {
        let guarded = Guarded { pod, is_known, at: Instant::now(), again: 0, remark };
        self.pods.send_modify(|all| drop(all.insert(runtime_uid, guarded)));
    }

    /// While the node goes down, stops whatever runs of a recorded pod. Never returns.
    pub(super) async fn end_again<N: KubeletHost>(
        &self,
        node: &N,
        poller: &RuntimePoller,
        mut going_down: watch::Receiver<bool>,
    ) {
        let mut ended = self.pods.subscribe();
        loop {
            // Without recorded pods the runtime is not polled. The sender lives as long as `self`.
            let _ = ended.wait_for(|ended| !ended.is_empty()).await;
            let mut snapshots = poller.subscribe();
            // One that takes its time keeps no other waiting.
            let (mut stops, mut busy) = (FuturesUnordered::new(), HashSet::new());
            while *going_down.borrow() {
                tokio::select! {
                    _ = snapshots.changed() => {}
                    Some(uid) = stops.next() => {
                        busy.remove(&uid);
                        continue;
                    }
                    changed = going_down.changed() => if changed.is_err() { return },
                }
                let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
                let runs_again: Vec<_> = {
                    let ended = self.pods.borrow();
                    let again = ended.iter().filter(|(uid, guarded)| {
                        guarded.at < snapshot.begun
                            && snapshot.of(uid).is_ok_and(|now| !now.running.is_empty())
                    });
                    again.map(|(uid, guarded)| (uid.clone(), guarded.clone())).collect()
                };
                for (uid, guarded) in runs_again {
                    if busy.insert(uid.clone()) {
                        stops.push(self.end_pod_again(node, uid, guarded));
                    }
                }
            }
            // The node stays up, so running pods are left alone.
            self.pods.send_modify(HashMap::clear);
        }
    }

    /// Returns the pod's UID when its stop is over.
    async fn end_pod_again<N: KubeletHost>(
        &self,
        node: &N,
        runtime_uid: PodUid,
        mut guarded: Guarded,
    ) -> PodUid {
        let pod = &guarded.pod;
        tracing::warn!(%pod, "the kubelet restarted the pod's containers; terminating them again");
        guarded.remark.set(remark(guarded.again, Some(BEING_STOPPED)));
        // What it starts once may have been under way when it learnt of the end.
        if guarded.is_known && guarded.again > 0 {
            self.unaware.notify_one();
        }
        let stopped = node.stop(&runtime_uid, &ContainerStop::at_once(RESTARTED_GRACE)).await;
        let failed =
            stopped.err().map(|error| format!("its containers cannot be stopped: {error}"));
        if let Some(why) = &failed {
            tracing::warn!(%pod, "{why}");
        }
        guarded.again += usize::from(failed.is_none());
        guarded.remark.set(remark(guarded.again, failed.as_deref()));
        let exits = node.exits(&runtime_uid).await.unwrap_or_default();
        if exits.iter().any(|exit| exit.forced) {
            guarded.remark.set_killed();
        }
        guarded.at = Instant::now();
        // The node may stay up meanwhile.
        self.pods.send_modify(|all| {
            all.entry(runtime_uid.clone()).and_modify(|entry| *entry = guarded);
        });
        runtime_uid
    }
}

/// The remark on a pod that a kubelet has restarted, and that was stopped again so often. `open`: what is to be said of a
/// restart since.
fn remark(again: usize, open: Option<&str>) -> String {
    let stopped = match again {
        0 => String::new(),
        1 => ", and it was stopped again".to_owned(),
        times => format!(" {times} times, and it was stopped each time"),
    };
    let open = open.map(|said| format!("; {said}")).unwrap_or_default();
    format!("the kubelet restarted it{stopped}{open}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_how_often_a_pod_was_restarted_and_stopped_again() {
        for (again, open, wanted) in [
            (0, Some(BEING_STOPPED), "the kubelet restarted it; it was being stopped again"),
            (1, None, "the kubelet restarted it, and it was stopped again"),
            (3, None, "the kubelet restarted it 3 times, and it was stopped each time"),
            (
                2,
                Some(BEING_STOPPED),
                "the kubelet restarted it 2 times, and it was stopped each time; it was being stopped again",
            ),
        ] {
            assert_eq!(remark(again, open), wanted);
        }
    }
}
