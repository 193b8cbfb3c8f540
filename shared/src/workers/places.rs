//! Who holds a place on the node, and who is about to give it back.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Record;
use super::{PodWorkers, default_deadline};
use crate::syncer::PodSyncer;
use crate::{Pod, PodUid};

/// The pods that hold a place on the node, in no order.
#[derive(Debug, Default)]
pub(crate) struct Occupants {
    /// They were not asked to end.
    pub(crate) staying: Vec<Pod>,
    /// They are ending, and their time is not over: their places can be counted on.
    pub(crate) leaving: Vec<Leaving>,
    /// They should have ended by now. When they will is unknown.
    pub(crate) stuck: Vec<Pod>,
}

/// A pod that is ending.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) pod: Pod,
    /// A wait for its end need not be longer than this.
    pub(crate) until: Instant,
}

impl<S: PodSyncer> PodWorkers<S> {
    pub(crate) fn places(&self) -> Occupants {
        let now = Instant::now();
        let mut occupants = Occupants::default();
        for record in self.inner.lock().records.values().filter(|r| r.may_run()) {
            let Some(pod) = record.pod().cloned() else { continue };
            match end_by(record) {
                None => occupants.staying.push(pod),
                Some(until) if until > now => occupants.leaving.push(Leaving { pod, until }),
                Some(_) => occupants.stuck.push(pod),
            }
        }
        occupants
    }

    /// Goes up when a pod has come to its end, so that waiters check again.
    /// [`is_known_terminated`](Self::is_known_terminated) says which.
    pub fn ends(&self) -> watch::Receiver<u64> {
        self.inner.ends.subscribe()
    }

    /// Resolves when no container of the pod runs; never once the workers are gone. At once for a
    /// pod that is unknown or was not asked to end. Cancel-safe.
    pub(crate) async fn until_stopped(&self, uid: &PodUid) {
        let waiter = {
            let state = self.inner.lock();
            let record = state.records.get(uid).filter(|r| r.may_run());
            record.and_then(|r| Some(r.ending.as_ref()?.done.waiter()))
        };
        let Some(waiter) = waiter else { return };
        if self.inner.root.is_cancelled() || waiter.wait().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// The time a kill of the pod may take; `None` while it is not ending.
fn end_by(record: &Record) -> Option<Instant> {
    let ending = record.ending.as_ref()?;
    let own = || record.pod().and_then(Pod::own_grace);
    let grace = ending.grace.or_else(own).unwrap_or(Duration::ZERO);
    Some(default_deadline(ending.since, grace))
}
