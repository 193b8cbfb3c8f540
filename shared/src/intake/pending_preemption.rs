//! Critical pods that do not fit yet.
//!
//! Such a pod is *held*: it is tried again whenever room may have become free, and starts then. The
//! room that is being made for it is reserved: a pod that comes later does not get it, unless it
//! may preempt the held one. Held pods are tried in order of priority, the highest first, and among
//! equals in the order in which they came. No other pods wait for them.
//!
//! A terminating pod counts as future room for as long as its kill may take (see
//! [`KillRequest::deadline`](crate::KillRequest::deadline)), whichever controller requested it. If
//! it has not terminated by then, it is no longer counted: others are chosen, and its own room is
//! used when it comes. A pod never starts next to one whose room it needs.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{AdmissionState, Intake, Outlook};
use crate::status::PodPhase;
use crate::{
    Event, OtherPods, Pod, PodSyncer, PodUid, PodUidMap, PodWorkers, Recorder, Rejection, Runtime,
    UpdateKind, VictimPlan, doubled,
};

/// `status.reason` of a pod that starts as soon as others have terminated for it; its phase is `Pending`.
pub const WAITING_FOR_PREEMPTION: &str = "WaitingForPreemption";

/// Delay before held pods are tried again when nothing is known to be terminating; it doubles every time.
const FIRST_ASK_DELAY: Duration = Duration::from_millis(100);

/// Upper limit of that delay.
const MAX_ASK_DELAY: Duration = Duration::from_secs(10);

/// The held pods and the pods they wait for.
pub(super) struct PendingPreemption {
    /// The held pods, in the order in which they are tried.
    order: Vec<PodUid>,
    /// Changes when any pod has terminated, even without a request.
    ended: watch::Receiver<u64>,
    /// Waits for terminations; each returns whether the pod has terminated.
    ends: JoinSet<(PodUid, bool)>,
    /// The pods in `ends`.
    awaited: PodUidMap<()>,
    /// Pods that are terminating because a held one needs their room, and what is told when they have.
    victims: HashMap<PodUid, Event>,
    /// Consecutive attempts while nothing was known to be terminating.
    idle_rounds: u32,
}

// === impl PendingPreemption ===

impl PendingPreemption {
    /// Creates an empty set. `ended` changes with every pod that terminates.
    pub(super) fn new(ended: watch::Receiver<u64>) -> Self {
        Self {
            order: Vec::new(),
            ended,
            ends: JoinSet::new(),
            awaited: PodUidMap::default(),
            victims: HashMap::new(),
            idle_rounds: 0,
        }
    }

    /// Resolves when room may have become free; never while no pod is held. Cancel-safe.
    pub(super) async fn room_may_have_come(&mut self) -> Vec<Event> {
        let is_anybody_held = !self.order.is_empty();
        let idle = doubled(FIRST_ASK_DELAY, MAX_ASK_DELAY, self.idle_rounds);
        let first = tokio::select! {
            biased;
            Some(first) = self.ends.join_next() => first,
            // A job that completes, or a pod that another controller terminates: no wait in `ends`
            // covers it, but its room is as good.
            Ok(()) = self.ended.changed(), if is_anybody_held => return Vec::new(),
            () = tokio::time::sleep(idle), if is_anybody_held && self.ends.is_empty() => {
                self.idle_rounds = self.idle_rounds.saturating_add(1);
                return Vec::new();
            }
            else => std::future::pending().await,
        };
        self.idle_rounds = 0;
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(ended) = next {
            match ended {
                Ok((uid, stopped)) => {
                    self.awaited.remove(&uid);
                    told.extend(if stopped { self.victims.remove(&uid) } else { None });
                }
                // Only the shutdown of the whole agent aborts a wait.
                Err(_) => self.awaited.clear(),
            }
            next = self.ends.try_join_next();
        }
        told
    }

    /// Waits for the termination of all terminating pods. The wait for a pod that is within its
    /// time ends with that time, so that an overrun is noticed.
    fn watch<S: PodSyncer>(&mut self, workers: &PodWorkers<S>) {
        let places = workers.places();
        let leaving = places.leaving.into_iter().map(|(pod, until)| (pod, Some(until)));
        let stuck = places.stuck.into_iter().map(|pod| (pod, None));
        for (pod, until) in leaving.chain(stuck) {
            if self.awaited.insert(pod.uid().clone(), ()).is_some() {
                continue;
            }
            let (workers, uid) = (workers.clone(), pod.uid().clone());
            self.ends.spawn(async move {
                let stopped = workers.until_stopped(&uid);
                let has_stopped = match until {
                    Some(until) => tokio::time::timeout_at(until, stopped).await.is_ok(),
                    None => stopped.map(|()| true).await,
                };
                (uid, has_stopped)
            });
        }
    }

    fn insert(&mut self, pod: &Pod, priority_of: impl Fn(&PodUid) -> Option<i32>) {
        if self.order.contains(pod.uid()) {
            return;
        }
        let rank = Reverse(pod.priority_or_zero());
        let place =
            self.order.partition_point(|uid| Reverse(priority_of(uid).unwrap_or(i32::MIN)) <= rank);
        self.order.insert(place, pod.uid().clone());
    }
}

/// Sort key for the order of admission: critical pods first, then by priority, then the older first. Static pods have no
/// creation time, and come before the others.
pub(super) fn importance(pod: &Pod) -> impl Ord + use<> {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (Reverse((pod.is_critical(), pod.priority_or_zero())), created)
}

// === impl Intake ===

impl<R: Runtime> Intake<R> {
    /// Runs admission for a pod, and returns the result.
    pub(super) fn admit(&mut self, pod: &Pod, others: &mut OtherPods) -> AdmissionState {
        if let Some(waits) = self.wait_for_decision(pod) {
            return waits;
        }
        let lock = self.victim_lock.clone();
        match lock.choose(|| self.decide(pod, others)) {
            Outlook::Starts => self.admitted(pod, others),
            Outlook::Refused(rejection) => self.refuse(pod, rejection),
            Outlook::Waits(message) => self.hold(pod, message, others),
            Outlook::Preempts(plan) => {
                self.note_victims(pod, &plan);
                self.hold(pod, plan.message, others)
            }
        }
    }

    /// Decides about a pod, and has terminated what has to make room for it. Only one controller at a time does this.
    fn decide(&self, pod: &Pod, others: &OtherPods) -> Outlook {
        let outlook = self.workers.outlook(&self.admission, pod, others);
        if let Outlook::Preempts(plan) = &outlook {
            // Before the kill requests, so that the cause precedes the effect in every log.
            self.recorder.record(&Event::PreemptionStarted {
                pod: pod.pod_ref().clone(),
                victims: plan.victims.iter().map(|v| v.pod.pod_ref().clone()).collect(),
                signal: plan.signal.clone(),
                message: Arc::clone(&plan.message),
            });
            for victim in &plan.victims {
                self.workers.request_kill(victim.pod.clone(), &victim.request);
            }
        }
        outlook
    }

    /// Tries the held pods again. Those that are still held afterwards have reserved their room in `others`.
    pub(super) fn retry_held(&mut self, others: &mut OtherPods) {
        // Before the first check, so that any termination from here on is noticed.
        self.pending_preemption.ended.mark_unchanged();
        for uid in std::mem::take(&mut self.pending_preemption.order) {
            let Some(desired) = self.desired.get(&uid) else { continue };
            let AdmissionState::PendingPreemption { again } = desired.state else { continue };
            let pod = desired.pod.clone();
            self.retry(&pod, again, others);
        }
        if self.pending_preemption.order.is_empty() && self.pending_preemption.ends.is_empty() {
            self.pending_preemption.victims.clear();
        }
    }

    /// Tries a desired pod that does not run; `again`: it ran before under the same UID.
    pub(super) fn retry(&mut self, pod: &Pod, again: bool, others: &mut OtherPods) {
        let mut state = self.admit(pod, others);
        match &mut state {
            AdmissionState::Admitted => {
                // The status of the wait must not stay.
                self.statuses.remove(pod.uid());
                self.start(pod, again);
            }
            AdmissionState::PendingPreemption { again: kept } => *kept = again,
            AdmissionState::WaitingForTurn | AdmissionState::Refused(_) => {}
        }
        if let Some(desired) = self.desired.get_mut(pod.uid()) {
            desired.state = state;
        }
    }

    /// Starts an admitted pod; `again`: it ran before under the same UID.
    pub(super) fn start(&self, pod: &Pod, again: bool) {
        if again && !self.runtime.has_completed(pod) {
            self.recorder.record(&Event::PodRestarted {
                pod: pod.pod_ref().clone(),
                is_static: pod.is_static(),
            });
        }
        self.workers.update(UpdateKind::Create, pod.clone(), None);
    }

    fn note_victims(&mut self, pod: &Pod, plan: &VictimPlan) {
        for victim in plan.victims.iter().map(|victim| &victim.pod) {
            if victim.is_static() {
                self.rejected_static.note(victim, true);
            }
            let (uid, victim) = (victim.uid().clone(), victim.pod_ref().clone());
            let (by, signal) = (pod.pod_ref().clone(), plan.signal.clone());
            let message = Arc::clone(&plan.message);
            let told = Event::PodPreempted { pod: victim, by, signal, message };
            self.pending_preemption.victims.insert(uid, told);
        }
    }

    fn admitted(&mut self, pod: &Pod, others: &mut OtherPods) -> AdmissionState {
        self.rejected_static.forget(pod.uid());
        self.recorder.record(&Event::PodAdmitted { pod: pod.pod_ref().clone() });
        others.add(pod);
        AdmissionState::Admitted
    }

    fn refuse(&mut self, pod: &Pod, rejection: Rejection) -> AdmissionState {
        // Recorded once, however often the pod is tried again.
        let told = self.desired.get(pod.uid()).is_some_and(|desired| {
            matches!(&desired.state, AdmissionState::Refused(told) if told.reason == rejection.reason)
        });
        if !told {
            self.recorder.record(&Event::PodRejected {
                pod: pod.pod_ref().clone(),
                reason: rejection.reason.clone(),
                message: rejection.message.clone(),
            });
        }
        if pod.is_static() {
            self.rejected_static.note(pod, rejection.retryable);
        }
        self.statuses.reject(pod.clone(), &rejection);
        AdmissionState::Refused(rejection)
    }

    fn hold(&mut self, pod: &Pod, message: Arc<str>, others: &mut OtherPods) -> AdmissionState {
        self.rejected_static.forget(pod.uid());
        others.reserve(pod);
        self.pending_preemption.watch(&self.workers);
        self.pending_preemption
            .insert(pod, |uid| Some(self.desired.get(uid)?.pod.priority_or_zero()));
        let said = self.statuses.get(pod.uid());
        self.say_pending(pod, WAITING_FOR_PREEMPTION, &message);
        if said.is_none_or(|said| said.reason.as_deref() != Some(WAITING_FOR_PREEMPTION)) {
            self.recorder.record(&Event::PodWaiting { pod: pod.pod_ref().clone(), message });
        }
        AdmissionState::PendingPreemption { again: false }
    }

    /// Sets the status of a pod that has not been admitted yet.
    pub(super) fn say_pending(&self, pod: &Pod, reason: &str, message: &str) {
        let status = api::PodStatus {
            phase: Some(PodPhase::Pending.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            qos_class: Some(pod.qos().as_str().to_owned()),
            ..api::PodStatus::default()
        };
        self.statuses.set(pod.clone(), status);
    }
}
