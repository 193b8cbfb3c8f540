//! Pods that the node cannot do without and that do not fit yet.
//!
//! Such a pod is *held*: it is asked about again whenever room may have come, and starts then. The
//! room that is being made for it is promised to it: a pod that comes later does not get it, unless
//! it may preempt the held one. PendingPreemption pods are asked by priority, the highest first,
//! and among equals in the order in which they came. No other pods wait for them.
//!
//! A pod that is ending counts as room to come for as long as its kill may take (see
//! [`KillRequest::deadline`](crate::KillRequest::deadline)), and so does everything that other
//! controllers end. One that has not ended by then is not counted on any more: others are chosen, and
//! its own room is welcome when it comes. At no time does a pod start beside one whose room it needs.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Intake, Standing};
use crate::admission::Places;
use crate::status::Phase;
use crate::workers::Occupants;
use crate::{
    Event, Others, Pod, PodLabel, PodSyncer, PodUid, PodUidMap, PodWorkers, Rejection,
    ResourceName, Runtime, UpdateKind, Verdict, VictimPlan,
};

/// `status.reason` of a pod that starts as soon as others have ended for it; its phase is `Pending`.
pub const WAITING_FOR_PREEMPTION: &str = "WaitingForPreemption";

/// When nothing is known to be ending, held pods are asked again after this long, then twice as
/// long, …
const ASK_FIRST: Duration = Duration::from_millis(100);

/// … up to this.
const ASK_MOST: Duration = Duration::from_secs(10);

/// So many of the pods that are waited for are named.
const NAMED: usize = 3;

/// The held pods and what they wait for.
pub(super) struct PendingPreemption {
    /// In the order in which they are asked.
    order: Vec<PodUid>,
    /// Some pod has ended, also without a request.
    ended: watch::Receiver<u64>,
    /// Ends that are waited for; each says whether it has come.
    ends: JoinSet<(PodUid, bool)>,
    /// Of whom.
    awaited: PodUidMap<()>,
    /// Pods that end because a held one needs their room.
    victims: HashMap<PodUid, Chosen>,
    /// How often in a row they were asked although nothing was known to be ending.
    idle_rounds: u32,
}

struct Chosen {
    pod: PodLabel,
    by: PodLabel,
    signal: Option<ResourceName>,
    message: Arc<str>,
}

/// What came of the search for room.
enum Search {
    /// There is room now.
    Found,
    /// It comes with pods that are ending anyway.
    Coming,
    /// It comes with pods that were asked to end for it.
    Made(VictimPlan),
    None(Rejection),
}

// === impl PendingPreemption ===

impl PendingPreemption {
    /// No pod is held. `ended` changes with every pod that ends.
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

    /// Resolves when room may have come. Cancel-safe. Never, while no pod is held.
    pub(super) async fn room_may_have_come(&mut self) -> Vec<Event> {
        let is_anybody_held = !self.order.is_empty();
        let idle = ASK_FIRST.saturating_mul(1 << self.idle_rounds.min(10)).min(ASK_MOST);
        let first = tokio::select! {
            biased;
            Some(first) = self.ends.join_next() => first,
            // A job that completes, a pod that another controller ends: no wait covers its end in
            // particular, and its room is as good.
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
                    let chosen = if stopped { self.victims.remove(&uid) } else { None };
                    told.extend(chosen.map(|Chosen { pod, by, signal, message }| {
                        Event::PodPreempted { pod, by, signal, message }
                    }));
                }
                // Only the end of the whole agent aborts a wait.
                Err(_) => self.awaited.clear(),
            }
            next = self.ends.try_join_next();
        }
        told
    }

    /// Waits for the ends of all pods that are ending: of those whose time is not over until then
    /// only, so that it is noticed when it is over.
    fn watch<S: PodSyncer>(&mut self, workers: &PodWorkers<S>) {
        let occupants = workers.places();
        let leaving = occupants.leaving.into_iter().map(|l| (l.pod, Some(l.until)));
        let stuck = occupants.stuck.into_iter().map(|pod| (pod, None));
        for (pod, until) in leaving.chain(stuck) {
            if self.awaited.insert(pod.uid().clone(), ()).is_some() {
                continue;
            }
            let (workers, uid) = (workers.clone(), pod.uid().clone());
            self.ends.spawn(async move {
                let stopped = wait_for_end(&workers, &uid, until).await;
                (uid, stopped)
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

async fn wait_for_end<S: PodSyncer>(
    workers: &PodWorkers<S>,
    uid: &PodUid,
    until: Option<Instant>,
) -> bool {
    let stopped = workers.until_stopped(uid);
    match until {
        Some(until) => tokio::time::timeout_at(until, stopped).await.is_ok(),
        None => {
            stopped.await;
            true
        }
    }
}

/// Sorts pods by who is asked first: critical ones, then by priority.
pub(super) fn importance(pod: &Pod) -> Reverse<(bool, i32)> {
    Reverse((pod.is_critical(), pod.priority_or_zero()))
}

// === impl Intake ===

impl<R: Runtime> Intake<R> {
    /// The pods that are on the node, for a pass.
    pub(super) fn others(&self) -> Others {
        self.after_the_ends(|occupants| {
            let leaving = occupants.leaving.into_iter().map(|leaving| leaving.pod);
            leaving.chain(occupants.stuck).collect()
        })
    }

    /// Asks whether a pod may start, and says what becomes of it.
    pub(super) fn ask(&mut self, pod: &Pod, others: &mut Others) -> Standing {
        let Err(rejection) = self.admission.admit(pod, others) else {
            return self.admitted(pod, others);
        };
        // Others are refused, as by the kubelet: their creator can place them elsewhere.
        if !pod.is_critical() {
            return self.refuse(pod, rejection);
        }
        match self.search(pod, others) {
            Search::Found => self.admitted(pod, others),
            Search::None(rejection) => self.refuse(pod, rejection),
            Search::Coming => self.hold(pod, self.what_ends(), others),
            Search::Made(plan) => {
                self.note_victims(pod, &plan);
                self.hold(pod, plan.message, others)
            }
        }
    }

    /// Asks the held pods again. Those that are held still have their promise among `others` then.
    pub(super) fn ask_held(&mut self, others: &mut Others) {
        // Before the first check: any end from here on is news.
        self.pending_preemption.ended.mark_unchanged();
        for uid in std::mem::take(&mut self.pending_preemption.order) {
            let Some(desired) = self.desired.get(&uid) else { continue };
            let Standing::PendingPreemption { again } = desired.standing else { continue };
            let pod = desired.pod.clone();
            self.ask_anew(&pod, again, others);
        }
        if self.pending_preemption.order.is_empty() && self.pending_preemption.ends.is_empty() {
            self.pending_preemption.victims.clear();
        }
    }

    /// Asks about a pod that was not let in before; `again`: it ran under the same UID before that.
    pub(super) fn ask_anew(&mut self, pod: &Pod, again: bool, others: &mut Others) {
        let mut standing = self.ask(pod, others);
        match &mut standing {
            Standing::Admitted => {
                // What was said of the wait must not stay.
                self.statuses.remove(pod.uid());
                self.start(pod, again);
            }
            Standing::PendingPreemption { again: kept } => *kept = again,
            Standing::WaitingForTurn | Standing::Refused(_) => {}
        }
        if let Some(desired) = self.desired.get_mut(pod.uid()) {
            desired.standing = standing;
        }
    }

    /// Starts a pod that was admitted; `again`: it ran before under the same UID.
    pub(super) fn start(&self, pod: &Pod, again: bool) {
        if again {
            self.recorder.record(&Event::PodRestarted {
                pod: pod.label().clone(),
                is_static: pod.is_static(),
            });
        }
        self.workers.update(UpdateKind::Create, pod.clone(), None);
    }

    /// Looks for room as it will be when all that is ending in time has ended, and asks pods to end
    /// where that is not enough. One controller at a time does this.
    fn search(&self, pod: &Pod, others: &Others) -> Search {
        self.victim_lock.choose(|| {
            let in_time = self.after_the_ends(|occupants| occupants.stuck);
            match self.admission.decide(pod, &in_time.with_reservations_of(others)) {
                Verdict::Admitted if self.workers.places().leaving.is_empty() => Search::Found,
                Verdict::Admitted => Search::Coming,
                Verdict::Waiting(plan) => {
                    // Before the victims are asked: the cause comes first in every account of it.
                    self.recorder.record(&Event::PreemptionStarted {
                        pod: pod.label().clone(),
                        victims: plan.victims.iter().map(|v| v.pod.label().clone()).collect(),
                        signal: plan.signal.clone(),
                        message: Arc::clone(&plan.message),
                    });
                    for victim in &plan.victims {
                        self.workers.request_kill(victim.pod.clone(), &victim.request);
                    }
                    Search::Made(plan)
                }
                Verdict::Refused(rejection) => {
                    // What has not ended in time is all that is left to hope for.
                    let at_last = self.after_the_ends(|_| Vec::new()).with_reservations_of(others);
                    match self.admission.decide(pod, &at_last) {
                        Verdict::Refused(_) => Search::None(rejection),
                        Verdict::Admitted | Verdict::Waiting(_) => Search::Coming,
                    }
                }
            }
        })
    }

    /// The pods on the node when those that are ending have left it, but for those that `stay`.
    fn after_the_ends(&self, stay: fn(Occupants) -> Vec<Pod>) -> Others {
        let workers = self.workers.clone();
        Others::of(move || {
            let mut occupants = workers.places();
            let staying = std::mem::take(&mut occupants.staying);
            Places { staying, ending: stay(occupants) }
        })
    }

    /// Names the pods that are ending, a few of them.
    fn what_ends(&self) -> Arc<str> {
        let occupants = self.workers.places();
        let leaving = occupants.leaving.iter().map(|leaving| &leaving.pod);
        let mut names: Vec<String> =
            leaving.chain(&occupants.stuck).map(|pod| pod.label().to_string()).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(NAMED);
        names.truncate(NAMED);
        let names = names.join(", ");
        match more {
            0 => format!("waiting for pods that are ending: {names}").into(),
            more => format!("waiting for pods that are ending: {names} and {more} more").into(),
        }
    }

    fn note_victims(&mut self, pod: &Pod, plan: &VictimPlan) {
        for victim in plan.victims.iter().map(|victim| &victim.pod) {
            if victim.is_static() {
                self.rejected_static.note(victim, true);
            }
            let victim = victim.label().clone();
            let (by, signal) = (pod.label().clone(), plan.signal.clone());
            let message = Arc::clone(&plan.message);
            let chosen = Chosen { pod: victim, by, signal, message };
            self.pending_preemption.victims.insert(chosen.pod.uid.clone(), chosen);
        }
    }

    fn admitted(&mut self, pod: &Pod, others: &mut Others) -> Standing {
        self.rejected_static.forget(pod.uid());
        self.recorder.record(&Event::PodAdmitted { pod: pod.label().clone() });
        others.add(pod);
        Standing::Admitted
    }

    fn refuse(&mut self, pod: &Pod, rejection: Rejection) -> Standing {
        // Told once, however often it is asked about again.
        let told = self.desired.get(pod.uid()).is_some_and(|desired| {
            matches!(&desired.standing, Standing::Refused(told) if told.reason == rejection.reason)
        });
        if !told {
            self.recorder.record(&Event::PodRejected {
                pod: pod.label().clone(),
                reason: rejection.reason.clone(),
                message: rejection.message.clone(),
            });
        }
        if pod.is_static() {
            self.rejected_static.note(pod, rejection.retryable);
        }
        self.statuses.reject(pod.clone(), &rejection);
        Standing::Refused(rejection)
    }

    fn hold(&mut self, pod: &Pod, message: Arc<str>, others: &mut Others) -> Standing {
        self.rejected_static.forget(pod.uid());
        others.reserve(pod);
        self.pending_preemption.watch(&self.workers);
        self.pending_preemption
            .insert(pod, |uid| Some(self.desired.get(uid)?.pod.priority_or_zero()));
        let said = self.statuses.get(pod.uid());
        self.say_pending(pod, WAITING_FOR_PREEMPTION, &message);
        if said.is_none_or(|said| said.reason.as_deref() != Some(WAITING_FOR_PREEMPTION)) {
            self.recorder.record(&Event::PodHeld { pod: pod.label().clone(), message });
        }
        Standing::PendingPreemption { again: false }
    }

    /// Shows why a pod has not been let in yet.
    pub(super) fn say_pending(&self, pod: &Pod, reason: &str, message: &str) {
        let status = api::PodStatus {
            phase: Some(Phase::Pending.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            qos_class: Some(pod.qos().as_str().to_owned()),
            ..api::PodStatus::default()
        };
        self.statuses.set(pod.clone(), status);
    }
}
