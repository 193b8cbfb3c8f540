//! The pods that occupy a place on the node, and those that are about to leave.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Record;
use super::{PodWorkers, default_deadline};
use crate::workers::syncer::PodSyncer;
use crate::{Pod, PodUid};

/// The pods that occupy a place on the node, in no particular order.
#[derive(Debug, Default)]
pub(crate) struct Occupants {
    /// Pods that were not requested to terminate.
    pub(crate) non_terminating: Vec<Pod>,
    /// Pods that are terminating within their time, and when that is over: their places will become free.
    pub(crate) leaving: Vec<(Pod, Instant)>,
    /// Pods that should have terminated by now. When they will is unknown.
    pub(crate) stuck: Vec<Pod>,
    /// Pods that run and are in no source. They are no choice for others, and do not leave by themselves.
    pub(crate) without_source: Vec<Pod>,
}

impl<S: PodSyncer> PodWorkers<S> {
    pub(crate) fn places(&self) -> Occupants {
        let now = Instant::now();
        let mut occupants = Occupants::default();
        let state = self.inner.state.lock();
        occupants.without_source.extend(state.unrecorded().map(Pod::of_runtime));
        for record in state.records.values().filter(|r| r.may_run()) {
            let left_over = || record.observed.runtime_pod.as_deref().map(Pod::of_runtime);
            let Some(pod) = record.pod().cloned().or_else(left_over) else { continue };
            match end_by(record) {
                None => occupants.non_terminating.push(pod),
                Some(until) if until > now => occupants.leaving.push((pod, until)),
                Some(_) => occupants.stuck.push(pod),
            }
        }
        occupants
    }

    /// A counter that is incremented when a pod has terminated, so that waiters check again.
    /// [`is_known_terminated`](Self::is_known_terminated) tells which pods have.
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.inner.ends.subscribe()
    }

    /// Resolves when no container of the pod runs, and never once the workers are gone or the runtime refuses to
    /// stop the pod. Resolves at once for a pod that is unknown or not terminating. Cancel-safe.
    pub(crate) async fn until_stopped(&self, uid: &PodUid) {
        let waiter = {
            let state = self.inner.state.lock();
            let record = state.records.get(uid).filter(|r| r.may_run());
            record.and_then(|r| Some(r.ending.as_ref()?.done.waiter()))
        };
        let Some(waiter) = waiter else { return };
        if self.inner.root.is_cancelled() || waiter.wait().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The default deadline for a kill of the pod; `None` while it is not terminating.
fn end_by(record: &Record) -> Option<Instant> {
    let ending = record.ending.as_ref()?;
    let own = || record.pod().and_then(Pod::termination_grace_period);
    let grace = ending.grace.or_else(own).unwrap_or(Duration::ZERO);
    Some(default_deadline(ending.grace_since, grace))
}
