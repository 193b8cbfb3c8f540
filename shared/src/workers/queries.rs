//! Queries. Every answer comes from the records at once; none waits for a step.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::PodWorkers;
use super::record::{Lifecycle, Record};
use crate::workers::syncer::PodSyncer;
use crate::{KillReason, Pod, PodUid};

/// A pod as the workers see it at one moment.
#[derive(Clone, Debug)]
pub struct PodSnapshot {
    /// The pod, unless only the runtime knows it.
    pub pod: Option<Pod>,
    /// Its UID.
    pub uid: PodUid,
    /// The stage of its life.
    pub lifecycle: Lifecycle,
    /// The requester of its termination, if it was requested.
    pub prior_reason: Option<KillReason>,
    /// Whether it starts again on this node after this termination
    /// ([`StatusOverride::restarts_on_node`](crate::StatusOverride::restarts_on_node)).
    pub restarts_on_node: bool,
    /// What is left of its grace period; `None` unless it is terminating on request.
    pub grace_left: Option<Duration>,
    /// Consecutive failures of the current step.
    pub failures: u32,
}

impl<S: PodSyncer> PodWorkers<S> {
    /// Every known pod, in no particular order.
    pub fn snapshot(&self) -> Vec<PodSnapshot> {
        let now = Instant::now();
        let snapshot = |(uid, record): (&PodUid, &Record)| PodSnapshot {
            pod: record.pod().cloned(),
            uid: uid.clone(),
            lifecycle: record.lifecycle,
            prior_reason: record.ending.as_ref().and_then(|e| e.reason),
            restarts_on_node: record.restarts_on_node(),
            grace_left: record.grace_left(now),
            failures: record.queue.failures,
        };
        self.inner.state.lock().records.iter().map(snapshot).collect()
    }

    /// The number of pods with a step in flight or about to begin.
    pub fn busy(&self) -> usize {
        self.inner.tasks.receiver_count()
    }

    /// The lifecycle stage of a pod; `None` for an unknown UID.
    pub fn lifecycle(&self, uid: &PodUid) -> Option<Lifecycle> {
        self.inner.state.lock().records.get(uid).map(|r| r.lifecycle)
    }

    /// Whether the pod is terminating or has terminated, on request or by itself. Unknown UIDs: no.
    pub fn is_termination_requested(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, Record::is_ending)
    }

    /// Whether no container of the pod runs or will run. Unknown UIDs: no.
    pub fn is_known_terminated(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, |r| r.lifecycle >= Lifecycle::Terminated)
    }

    /// Whether the pod terminates now but starts again when its node is back. Unknown UIDs: no.
    pub fn restarts_on_node(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, Record::restarts_on_node)
    }

    /// Whether containers of the pod run, also of one that only the runtime knows; `None` until that was listed.
    pub fn runs(&self, uid: &PodUid) -> Option<bool> {
        self.inner.state.lock().runs(uid)
    }

    /// Whether the pod's logs and exit records may be removed: its containers have stopped, and it
    /// was evicted or has left its source. Unknown UIDs: yes once the desired set has been seen.
    pub fn should_content_be_removed(&self, uid: &PodUid) -> bool {
        self.ask(uid, true, |r| !r.may_run() && (r.evicted || r.deleted))
    }

    /// Whether the static pod that holds this full name is terminating.
    pub fn is_static_pod_terminating(&self, full_name: &Arc<str>) -> bool {
        let state = self.inner.state.lock();
        let holder = state.names.holder(full_name).and_then(|uid| state.records.get(uid));
        holder.is_some_and(|r| r.lifecycle == Lifecycle::Terminating)
    }

    /// Whether any UID that is terminating, or has terminated, is to start again.
    pub fn has_restart_requests(&self) -> bool {
        self.inner.state.lock().records.values().any(|r| r.restart_requested)
    }

    /// Answers from the record, or, for an unknown UID, with `unknown` once the desired set has been seen
    /// ([`sync_known_pods`](PodWorkers::sync_known_pods)), and no before.
    fn ask(&self, uid: &PodUid, unknown: bool, answer: impl FnOnce(&Record) -> bool) -> bool {
        let state = self.inner.state.lock();
        state.records.get(uid).map_or(state.known_pods_synced && unknown, answer)
    }
}
