//! The pods of this node, by UID: what the API says about each, and what the node should run of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_api_client::equality::{self, is_terminal};
use winddown_shared::{
    DesiredPods, Mutex, Pod, PodUid, PodUidMap, Rejection, WallTime, instant_after, seconds_up,
};

use super::deletion::DeletionGrace;

#[cfg(test)]
mod tests;

/// Everything that is known about the pods that the API has or that run here. All parts of the
/// controller share it, and the node reads from it what it should run. No lock is held beyond a call.
#[derive(Debug)]
pub(crate) struct KnownPods {
    inner: Mutex<KnownPodsState>,
    wanted: watch::Sender<Option<Arc<DesiredPods>>>,
}

#[derive(Debug, Default)]
struct KnownPodsState {
    pods: PodUidMap<KnownPod>,
    /// A name has more than one UID if one pod was replaced by another.
    by_name: HashMap<(Arc<str>, Arc<str>), Vec<PodUid>>,
    /// Whether no pod that runs here and came from the API is missing.
    complete: bool,
}

/// What is known about one pod.
#[derive(Clone, Debug)]
pub(crate) struct KnownPod {
    /// The API's last object, or what runs here if the API was never seen to have one.
    pub(crate) pod: Pod,
    /// Whether the API has it.
    pub(crate) presence: ApiPresence,
    /// Whether the API had it while this controller ran.
    pub(crate) was_seen: bool,
    /// When its grace period ends, if it has to terminate.
    pub(crate) deadline: Option<Instant>,
    /// What the node was given of it, if anything.
    pub(crate) given: Option<GivenPod>,
    /// The deadline that the node was given last.
    pub(crate) sent_deadline: Option<Instant>,
    /// Whether it cannot be resolved as it is.
    pub(crate) refused: bool,
    /// Why the node refuses it, if it was given as it is in the API.
    rejection: Option<Rejection>,
    /// The last status that the controller itself submitted.
    pub(crate) submitted: Option<Arc<api::PodStatus>>,
    /// Whether that status was the final one.
    pub(crate) final_submitted: bool,
    /// Whether the API has accepted the final deletion; only finalizers keep the object.
    pub(crate) removed: bool,
    /// The last failure that was reported, so that it is not reported again.
    pub(crate) failure: Option<String>,
    /// Whether it is unwanted but left alone, which was reported.
    pub(crate) left_alone: bool,
}

/// A pod as it was given to the node.
#[derive(Clone, Debug)]
pub(crate) struct GivenPod {
    /// The resolved pod, as it runs here. With a deletion timestamp it has to terminate.
    pub(crate) pod: Pod,
    /// Its final status, once nothing of it runs any more.
    pub(crate) last: Option<Arc<api::PodStatus>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiPresence {
    /// The API has it.
    Present,
    /// A list did not have it. That alone proves nothing: it must be looked up.
    Absent {
        /// How often a lookup has not found it.
        confirmed: u32,
        /// How often that is needed.
        needed: u32,
    },
    /// The API does not have it, according to the watch or to lookups.
    Gone,
}

/// What an object from the API changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectChange {
    /// The pod was not known.
    New,
    /// Something changed that requires an action.
    Matters,
    /// Nothing of that kind changed.
    Nothing,
}

// === impl KnownPods ===

impl KnownPods {
    /// Starts with the pods that an earlier agent of this boot gave to the node; `complete` if those are all.
    pub(crate) fn of_earlier(pods: Vec<Pod>, complete: bool) -> Self {
        let mut inner = KnownPodsState { complete, ..KnownPodsState::default() };
        for pod in pods {
            let absent = ApiPresence::Absent { confirmed: 0, needed: 1 };
            let given = Some(GivenPod::of_earlier(pod.clone()));
            // What is left of it, whatever the API grants.
            let left = DeletionGrace::granted(&pod);
            let deadline = left.map(|left| instant_after(Instant::now(), left));
            inner.insert(KnownPod { given, deadline, ..KnownPod::new(pod, absent) });
        }
        let wanted = watch::Sender::new(Some(Arc::new(inner.wanted())));
        Self { inner: Mutex::new(inner), wanted }
    }

    /// The pods that the node should run, as they change.
    pub(crate) fn wanted(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        self.wanted.subscribe()
    }

    /// Records that the API was listed and the node was given what it wants. Returns whether that is new.
    pub(crate) fn all_known(&self) -> bool {
        let mut inner = self.inner.lock();
        let is_news = !std::mem::replace(&mut inner.complete, true);
        if is_news {
            self.publish(&inner);
        }
        is_news
    }

    /// What is known about one pod.
    pub(crate) fn get(&self, uid: &PodUid) -> Option<KnownPod> {
        self.inner.lock().pods.get(uid).cloned()
    }

    /// Records that the API has this object.
    pub(crate) fn applied(&self, pod: &Pod, now: Instant) -> ObjectChange {
        let mut inner = self.inner.lock();
        let Some(known) = inner.pods.get_mut(pod.uid()) else {
            let mut known = KnownPod::new(pod.clone(), ApiPresence::Present);
            known.was_seen = true;
            known.note_end(now);
            inner.insert(known);
            return ObjectChange::New;
        };
        known.take(pod, now)
    }

    /// Records that a lookup found a pod that a list did not have. Returns whether that is new: the
    /// watch may have reported more since, above all that the pod is gone.
    pub(crate) fn found(&self, pod: &Pod, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        let Some(known) = inner.pods.get_mut(pod.uid()) else { return false };
        let is_news = matches!(known.presence, ApiPresence::Absent { .. });
        if is_news {
            known.take(pod, now);
        }
        is_news
    }

    /// Records that the API's object is gone; `last` is its last state, if the watch sent one.
    pub(crate) fn gone(&self, uid: &PodUid, last: Option<&Pod>, now: Instant) {
        let mut inner = self.inner.lock();
        let Some(known) = inner.pods.get_mut(uid) else { return };
        if let Some(last) = last {
            known.pod = last.clone();
        }
        known.is_gone(now);
    }

    /// Handles a complete list. Returns the pods that it lacks and that are thought to exist; each
    /// must be looked up, `confirmations` times if the list was empty.
    pub(crate) fn listed(&self, listed: &PodUidMap<()>, confirmations: u32) -> Vec<PodUid> {
        let mut inner = self.inner.lock();
        let needed = if listed.is_empty() { confirmations.max(1) } else { 1 };
        let missing = inner.pods.iter_mut().filter(|(uid, known)| {
            known.presence != ApiPresence::Gone && !listed.contains_key(*uid)
        });
        missing
            .map(|(uid, known)| {
                match &mut known.presence {
                    ApiPresence::Absent { confirmed: 0, needed: known } => {
                        *known = needed.max(*known);
                    }
                    ApiPresence::Absent { .. } | ApiPresence::Gone => {}
                    ApiPresence::Present => {
                        known.presence = ApiPresence::Absent { confirmed: 0, needed };
                    }
                }
                uid.clone()
            })
            .collect()
    }

    /// Records that a lookup did not find a pod. Returns whether it is now certain that the pod is gone.
    pub(crate) fn not_found(&self, uid: &PodUid, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        let Some(known) = inner.pods.get_mut(uid) else { return true };
        let ApiPresence::Absent { confirmed, needed } = &mut known.presence else {
            return known.presence == ApiPresence::Gone;
        };
        *confirmed += 1;
        if confirmed < needed {
            return false;
        }
        known.is_gone(now);
        true
    }

    /// Records what has been done about a pod.
    pub(crate) fn mark<T>(&self, uid: &PodUid, mark: impl FnOnce(&mut KnownPod) -> T) -> Option<T> {
        self.inner.lock().pods.get_mut(uid).map(mark)
    }

    /// Gives a pod, or a change of it, to the node. Returns false for a new pod that is no longer
    /// wanted: it may have been deleted while it was resolved.
    pub(crate) fn give(&self, uid: &PodUid, pod: Pod) -> bool {
        let mut inner = self.inner.lock();
        let known = inner.pods.get_mut(uid);
        let Some(known) = known.filter(|known| known.given.is_some() || known.is_wanted()) else {
            return false;
        };
        known.given = Some(GivenPod { pod, last: None });
        known.failure = None;
        self.publish(&inner);
        true
    }

    /// Gives the node a pod that it refuses, for this reason.
    pub(crate) fn give_refused(&self, uid: &PodUid, pod: Pod, why: Rejection) {
        // First: the node may ask as soon as it has the pod.
        self.mark(uid, |known| known.rejection = Some(why));
        self.give(uid, pod);
    }

    /// Why the node refuses the pod, if it was given as it is in the API.
    pub(crate) fn rejection(&self, uid: &PodUid) -> Option<Rejection> {
        self.inner.lock().pods.get(uid)?.rejection.clone()
    }

    /// Gives the node a pod that has terminated, with the final status that the API has. Returns false if the API does not
    /// have the pod any more.
    pub(crate) fn give_terminated(&self, uid: &PodUid, pod: Pod) -> bool {
        let mut inner = self.inner.lock();
        let known = inner.pods.get_mut(uid);
        let Some(known) = known.filter(|known| known.presence != ApiPresence::Gone) else {
            return false;
        };
        known.given = Some(GivenPod::of_earlier(pod));
        known.final_submitted = true;
        self.publish(&inner);
        true
    }

    /// Records that a pod runs that has to terminate. The node is given it when it has to terminate it.
    pub(crate) fn take_over(&self, uid: &PodUid, running: Pod) {
        let mut object = running.object().clone();
        object.metadata.deletion_timestamp = None;
        object.metadata.deletion_grace_period_seconds = None;
        let pod = Pod::new(object).unwrap_or(running);
        self.mark(uid, |known| {
            known.given.get_or_insert(GivenPod { pod, last: None }).last.clone()
        });
    }

    /// Makes the node terminate a pod by its deadline, or earlier than it was told before. Returns
    /// the pod as the node gets it; `None` if that is nothing new.
    pub(crate) fn end(&self, uid: &PodUid, now: Instant, wall: WallTime) -> Option<Pod> {
        let mut inner = self.inner.lock();
        let known = inner.pods.get_mut(uid)?;
        let deadline = *known.deadline.get_or_insert(now);
        known.sent_deadline = Some(deadline);
        let given = known.given.as_mut().filter(|given| given.last.is_none())?;
        let grace = seconds(deadline.saturating_duration_since(now));
        let told = given.pod.metadata.deletion_grace_period_seconds;
        if told.filter(|_| given.is_ending()).is_some_and(|told| told <= grace) {
            return None;
        }
        let mut object = given.pod.object().clone();
        let end = wall.checked_add(Duration::from_secs(grace.unsigned_abs()));
        object.metadata.deletion_timestamp = Some(Time(end.unwrap_or(WallTime::MAX)));
        object.metadata.deletion_grace_period_seconds = Some(grace);
        given.pod = Pod::new(object).ok()?;
        let ending = given.pod.clone();
        self.publish(&inner);
        Some(ending)
    }

    /// Records that nothing of the pod runs any more, and its final status. Neither this agent nor
    /// the next starts it again. Returns the pod as the node has it from now on, and as the next agent should find it:
    /// without its variables, which may be secret or large. One that the node refused has none but those of its object.
    pub(crate) fn ended(&self, uid: &PodUid, status: Arc<api::PodStatus>) -> Option<Pod> {
        let mut inner = self.inner.lock();
        let known = inner.pods.get_mut(uid)?;
        let was_refused = known.rejection.is_some();
        let given = known.given.as_mut()?;
        let mut object = given.pod.object().clone();
        object.status = Some(api::PodStatus::clone(&status));
        given.last = Some(status);
        if let Some(spec) = object.spec.as_mut() {
            let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
            containers.for_each(|one| one.env = None);
            spec.ephemeral_containers.iter_mut().flatten().for_each(|one| one.env = None);
        }
        let ended = Pod::new(object).ok()?;
        if !was_refused {
            given.pod = ended.clone();
            self.publish(&inner);
        }
        Some(ended)
    }

    /// The pods that the node has to terminate and has not reported as terminated.
    pub(crate) fn ending(&self) -> Vec<PodUid> {
        let inner = self.inner.lock();
        let ends = |known: &KnownPod| {
            known.given.as_ref().is_some_and(|given| given.is_ending() && given.last.is_none())
        };
        inner.pods.iter().filter(|(_, known)| ends(known)).map(|(uid, _)| uid.clone()).collect()
    }

    /// Forgets a pod that is gone, so that the node does not have it any more. Returns the other
    /// pods with its name; `None` if the pod is not gone.
    pub(crate) fn forget(&self, uid: &PodUid) -> Option<Vec<PodUid>> {
        let mut inner = self.inner.lock();
        if inner.pods.get(uid).is_some_and(|known| known.presence != ApiPresence::Gone) {
            return None;
        }
        let Some(known) = inner.pods.remove(uid) else { return Some(Vec::new()) };
        self.publish(&inner);
        let name = (known.pod.namespace().clone(), known.pod.name().clone());
        let Some(uids) = inner.by_name.get_mut(&name) else { return Some(Vec::new()) };
        uids.retain(|other| other != uid);
        if uids.is_empty() {
            inner.by_name.remove(&name);
            return Some(Vec::new());
        }
        Some(uids.clone())
    }

    /// The pods with this one's name, in the order in which they came. Those before it may still run here.
    pub(crate) fn namesakes(&self, pod: &Pod) -> Vec<PodUid> {
        let name = (pod.namespace().clone(), pod.name().clone());
        self.inner.lock().by_name.get(&name).cloned().unwrap_or_default()
    }

    /// The pods that a list did not have.
    pub(crate) fn absent(&self) -> PodUidMap<()> {
        let inner = self.inner.lock();
        let absent = inner
            .pods
            .iter()
            .filter(|(_, known)| matches!(known.presence, ApiPresence::Absent { .. }));
        absent.map(|(uid, _)| (uid.clone(), ())).collect()
    }

    /// Called under the lock, so that a later state never comes before an earlier one.
    fn publish(&self, inner: &KnownPodsState) {
        self.wanted.send_replace(Some(Arc::new(inner.wanted())));
    }
}

// === impl KnownPodsState ===

impl KnownPodsState {
    fn insert(&mut self, known: KnownPod) {
        let name = (known.pod.namespace().clone(), known.pod.name().clone());
        let uid = known.pod.uid().clone();
        self.by_name.entry(name).or_default().push(uid.clone());
        self.pods.insert(uid, known);
    }

    fn wanted(&self) -> DesiredPods {
        let (complete, awaited) = (self.complete, !self.complete);
        let mut all = DesiredPods { complete, awaited, ..DesiredPods::default() };
        for (uid, known) in &self.pods {
            match &known.given {
                Some(given) => all.pods.push(given.pod.clone()),
                // How one ended that is deleted is read from what is left of it.
                None if known.presence != ApiPresence::Gone => all.waiting.push(uid.clone()),
                None => {}
            }
        }
        all
    }
}

// === impl KnownPod ===

impl KnownPod {
    fn new(pod: Pod, presence: ApiPresence) -> Self {
        Self {
            pod,
            presence,
            was_seen: false,
            deadline: None,
            given: None,
            sent_deadline: None,
            refused: false,
            rejection: None,
            submitted: None,
            final_submitted: false,
            removed: false,
            failure: None,
            left_alone: false,
        }
    }

    fn take(&mut self, pod: &Pod, now: Instant) -> ObjectChange {
        let matters = !self.was_seen
            || self.presence != ApiPresence::Present
            || equality::matters(&self.pod, pod)
            || self.is_over_unexpectedly(pod);
        self.pod = pod.clone();
        self.presence = ApiPresence::Present;
        self.was_seen = true;
        // A backup of the server's data that was restored has it as it was before.
        self.removed &= pod.metadata.deletion_grace_period_seconds == Some(0);
        self.note_end(now);
        if matters {
            // What was refused may be accepted now.
            (self.refused, self.failure) = (false, None);
            ObjectChange::Matters
        } else {
            ObjectChange::Nothing
        }
    }

    /// Whether the node was given the pod and has not reported its end.
    pub(crate) fn runs(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.last.is_none())
    }

    /// Whether the pod became Failed or Succeeded although it runs, because of another client, or although the node was
    /// not given it.
    fn is_over_unexpectedly(&self, pod: &Pod) -> bool {
        let is_over = is_terminal(pod) && !is_terminal(&self.pod);
        is_over && !self.is_deleting() && (self.runs() || self.given.is_none())
    }

    /// Whether the API may have the pod, and neither deletes it nor considers it terminated.
    fn is_wanted(&self) -> bool {
        let may_exist = self.presence != ApiPresence::Gone;
        may_exist && !self.is_deleting() && !is_terminal(&self.pod)
    }

    /// Whether the node is to be given the pod and has not got it yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.given.is_none() && self.is_wanted()
    }

    /// When this node first reported the pod, perhaps in an earlier boot.
    pub(crate) fn started(&self) -> Option<&Time> {
        let statuses = [self.pod.status.as_ref(), self.submitted.as_deref()];
        statuses.into_iter().flatten().find_map(|status| status.start_time.as_ref())
    }

    /// Whether the API is deleting it.
    pub(crate) fn is_deleting(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    fn is_gone(&mut self, now: Instant) {
        self.presence = ApiPresence::Gone;
        self.grant(DeletionGrace::after_removal(&self.pod), now);
    }

    fn note_end(&mut self, now: Instant) {
        if let Some(grace) = DeletionGrace::granted(&self.pod) {
            self.grant(grace, now);
        } else if is_terminal(&self.pod) && self.deadline.is_none() {
            self.grant(DeletionGrace::own(&self.pod), now);
        }
    }

    /// Counts the grace from when this node hears of it, which may be long after the deletion: until then the pod was not
    /// asked to terminate.
    fn grant(&mut self, grace: Duration, now: Instant) {
        let deadline = instant_after(now, grace);
        self.deadline = Some(self.deadline.map_or(deadline, |known| known.min(deadline)));
    }

    /// Whether to submit this status: it is new, and no final one was submitted.
    pub(crate) fn note_status(&mut self, status: &Arc<api::PodStatus>, last: bool) -> bool {
        let is_news = !self.final_submitted && (last || self.submitted.as_ref() != Some(status));
        if is_news {
            self.final_submitted = last;
            self.submitted = Some(status.clone());
        }
        is_news
    }

    /// Whether to report a failure, because it differs from the last one.
    pub(crate) fn fail(&mut self, error: &str) -> bool {
        self.failure.replace(error.to_owned()).as_deref() != Some(error)
    }
}

// === impl GivenPod ===

impl GivenPod {
    /// A pod that an earlier agent gave to the node. With a terminal status it has terminated.
    fn of_earlier(pod: Pod) -> Self {
        let last = pod.status.clone().filter(|_| equality::is_terminal(&pod)).map(Arc::new);
        Self { pod, last }
    }

    /// Whether it has to terminate.
    pub(crate) fn is_ending(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }
}

/// Whole seconds, rounded up, so that no pod gets less than requested.
fn seconds(grace: Duration) -> i64 {
    i64::try_from(seconds_up(grace)).unwrap_or(i64::MAX)
}
