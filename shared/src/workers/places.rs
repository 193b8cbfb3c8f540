//! The pods that occupy a place on the node, and those that are about to leave.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Record;
use super::{PodWorkers, default_deadline};
use crate::admission::OccupiedPlaces;
use crate::workers::syncer::PodSyncer;
use crate::{Pod, PodUid};

impl<S: PodSyncer> PodWorkers<S> {
    /// Those that run and are in no source stay.
    pub(crate) fn places(&self) -> OccupiedPlaces {
        let now = Instant::now();
        let mut places = OccupiedPlaces::default();
        let state = self.inner.state.lock();
        places.staying.extend(state.unrecorded().map(Pod::of_runtime));
        for record in state.records.values().filter(|r| r.may_run()) {
            let left_over = || record.observed.runtime_pod.as_deref().map(Pod::of_runtime);
            let Some(pod) = record.pod().cloned().or_else(left_over) else { continue };
            match end_by(record) {
                None => places.non_terminating.push(pod),
                Some(until) if until > now => places.leaving.push((pod, until)),
                Some(_) => places.stuck.push(pod),
            }
        }
        places
    }

    /// A counter that is incremented when a pod has terminated, or is known to have, so that waiters check again.
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
