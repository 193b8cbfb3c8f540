//! What others may ask. Every answer comes from the records at once; none waits for a step.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::PodWorkers;
use super::record::{Lifecycle, Record};
use crate::syncer::PodSyncer;
use crate::{KillReason, Pod, PodUid};

/// One pod as the workers see it now.
#[derive(Clone, Debug)]
pub struct PodSnapshot {
    /// The pod, if a real one is known.
    pub pod: Option<Pod>,
    /// Its UID.
    pub uid: PodUid,
    /// Where it stands.
    pub lifecycle: Lifecycle,
    /// Who asked for its end, if it was requested.
    pub ending_by: Option<KillReason>,
    /// Its end is one of those after which it starts again here ([`StatusOverride::stays`](crate::StatusOverride::stays)).
    pub stays: bool,
    /// How long it has been ending.
    pub ending_for: Option<Duration>,
    /// The grace that applies, if it is ending.
    pub grace: Option<Duration>,
    /// Failures in a row of the current step.
    pub failures: u32,
}

impl<S: PodSyncer> PodWorkers<S> {
    /// Every pod that is known, in no order.
    pub fn snapshot(&self) -> Vec<PodSnapshot> {
        let now = Instant::now();
        let state = self.inner.lock();
        state
            .records
            .iter()
            .map(|(uid, record)| PodSnapshot {
                pod: record.pod().cloned(),
                uid: uid.clone(),
                lifecycle: record.lifecycle,
                ending_by: record.ending.as_ref().and_then(|e| e.reason),
                stays: record.stays(),
                ending_for: record.ending.as_ref().map(|e| now.duration_since(e.since)),
                grace: record.ending.as_ref().and_then(|e| e.grace),
                failures: record.failures,
            })
            .collect()
    }

    /// How many pods have a step under way or about to begin.
    pub fn busy(&self) -> usize {
        self.inner.tasks.len()
    }

    /// Where a pod stands; `None` for an unknown UID.
    pub fn lifecycle(&self, uid: &PodUid) -> Option<Lifecycle> {
        self.inner.lock().records.get(uid).map(|r| r.lifecycle)
    }

    /// Whether the pod's end was asked for or came by itself. Unknown UIDs: no.
    pub fn is_termination_requested(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, false, Record::is_ending)
    }

    /// Whether no container of the pod runs or will run. Unknown UIDs: no.
    pub fn is_known_terminated(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, false, |r| r.lifecycle >= Lifecycle::Terminated)
    }

    /// Whether the pod has ended, or is to, and starts again when its node is back. Unknown UIDs: no.
    pub fn stays(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, false, Record::stays)
    }

    /// Whether containers of the pod may run. Unknown UIDs: yes until the desired set was seen once,
    /// no after that.
    pub fn could_have_running_containers(&self, uid: &PodUid) -> bool {
        self.ask(uid, true, false, Record::may_run)
    }

    /// Whether nothing is left to do for the pod. Unknown UIDs: yes once the desired set was seen.
    pub fn should_be_finished(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, true, |r| r.lifecycle == Lifecycle::Finished && !r.may_run())
    }

    /// Whether the pod's containers are being stopped or are stopped. Unknown UIDs: yes once the
    /// desired set was seen.
    pub fn should_be_terminating(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, true, |r| {
            r.lifecycle >= Lifecycle::Terminated
                || r.ending.as_ref().is_some_and(|e| e.acknowledged)
        })
    }

    /// Whether what the runtime holds for the pod may be removed. Unknown UIDs: yes once the desired
    /// set was seen.
    pub fn should_runtime_be_removed(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, true, |r| !r.may_run())
    }

    /// Whether the pod's logs and exit records may be removed: its containers are stopped, and it
    /// was evicted or has left its source. Unknown UIDs: yes once the desired set was seen.
    pub fn should_content_be_removed(&self, uid: &PodUid) -> bool {
        self.ask(uid, false, true, |r| !r.may_run() && (r.evicted || r.deleted))
    }

    /// Whether the static pod that runs under this full name is ending.
    pub fn is_static_pod_terminating(&self, full_name: &Arc<str>) -> bool {
        let state = self.inner.lock();
        let holder = state.names.holder(full_name).and_then(|uid| state.records.get(uid));
        holder.is_some_and(|r| r.lifecycle == Lifecycle::Terminating)
    }

    /// Whether a UID that is ending, or has ended, is wanted anew.
    pub fn has_restart_requests(&self) -> bool {
        self.inner.lock().records.values().any(|r| r.restart_requested)
    }

    /// Answers from the record, or for an unknown UID as it is before and after the first
    /// [`sync_known_pods`](PodWorkers::sync_known_pods).
    fn ask(
        &self,
        uid: &PodUid,
        unknown_before: bool,
        unknown_after: bool,
        answer: impl FnOnce(&Record) -> bool,
    ) -> bool {
        let state = self.inner.lock();
        match state.records.get(uid) {
            Some(record) => answer(record),
            None if state.known_pods_synced => unknown_after,
            None => unknown_before,
        }
    }
}
