//! The node's pods, as last reported by the API server; until it has listed them, as the container runtime has them.

mod entry;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, sleep_until};
use winddown_shared::{
    DesiredPods, FoundPod, Mutex, Pod, PodRuntimeStatus, PodUid, PodUidMap, RuntimeError,
    RuntimePod, error_chain,
};

use self::entry::KnownEntry;
use super::facts;
use super::local_node::NodeError;
use super::mirror::{self, ClaimVerdict};

/// How many changed UIDs a slow receiver may fall behind before it has to check all pods.
const CHANGES_CAPACITY: usize = 1024;
/// The error before the API server or the container runtime has listed the pods.
pub(super) const UNLISTED: &str = "the API server has not listed this node's pods yet";
/// The problem while only the container runtime has.
pub(super) const ONLY_FOUND: &str = "the API server has not listed this node's pods since the agent \
                                     started: they are known from the container runtime alone";
/// The problem while it does not show them any more.
const AS_LAST_KNOWN: &str = "the API server does not show this node's pods: they are as last known";

/// How long after the API server has accepted a pod's end, or has begun to list its pods again, a kubelet may take to learn
/// of that end, and starts nothing then.
pub(super) const KUBELET_LEARNS: Duration = Duration::from_secs(2);

/// While it lives, winddown stops the containers of this pod, and the kubelet knows that.
pub(super) struct OwnStop<'a> {
    known: &'a PodIndex,
    uid: &'a PodUid,
}

impl Drop for OwnStop<'_> {
    fn drop(&mut self) {
        self.known.set_stops(self.uid, false);
    }
}

/// How long a kubelet takes to report a pod that was stopped, unless it has too much to do.
const KUBELET_REPORTS: Duration = Duration::from_secs(2);

/// The known pods, and the subscribers to their changes.
#[derive(Debug)]
pub(super) struct PodIndex {
    pods: Mutex<PodUidMap<KnownEntry>>,
    changes: broadcast::Sender<PodUid>,
    desired: watch::Sender<Option<Arc<DesiredPods>>>,
    /// Whether the API server has listed the pods.
    listed: watch::Sender<bool>,
    is_listing: AtomicBool,
    /// Why the container runtime has not, when it was last asked.
    not_found: Mutex<Option<NodeError>>,
    /// What the API server says when it refuses to show the pods, if it does.
    refused: Mutex<Option<String>>,
    /// Notified when containers run that did not run before.
    pub(super) started: Notify,
    /// Held while publishing: an older set must not follow a newer one.
    publishing: Mutex<()>,
    own: Option<PodUid>,
    node: String,
    /// Notified when a pod claims to be a mirror pod.
    pub(super) claimed: Notify,
}

#[derive(Clone, Debug)]
pub(super) struct CurrentPod {
    /// The newest object.
    pub(super) pod: Pod,
    /// Whether the API server no longer has the pod.
    pub(super) gone: bool,
}

// === impl PodIndex ===

impl PodIndex {
    pub(super) fn new(own: Option<PodUid>, node: String) -> Self {
        Self {
            pods: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_CAPACITY),
            desired: watch::Sender::new(None),
            listed: watch::Sender::new(false),
            is_listing: AtomicBool::new(false),
            not_found: Mutex::default(),
            refused: Mutex::default(),
            started: Notify::new(),
            publishing: Mutex::new(()),
            own,
            node,
            claimed: Notify::new(),
        }
    }

    /// Records an object of the API server. Returns whether the desired pods may have changed, or a stopped one runs
    /// again.
    pub(super) fn applied(&self, mut object: api::Pod) -> bool {
        let claim = mirror::take_claim(&mut object, &self.node);
        let mut pods = self.pods.lock();
        let claim = claim.map(|claim| {
            let uid = object.metadata.uid.as_deref().map(PodUid::new);
            let known = uid.and_then(|uid| pods.get(&uid)?.claim.clone());
            known.filter(|(known, _)| *known == claim).unwrap_or((claim, ClaimVerdict::Open))
        });
        if let Some((claim, verdict)) = &claim {
            object = mirror::answered(object, claim, *verdict);
        }
        let Some(pod) = self.planned(object) else { return false };
        let uid = pod.uid().clone();
        let matters = self.take(&mut pods, pod, false);
        if let Some(entry) = pods.get_mut(&uid) {
            entry.claim = claim;
            if entry.is_open() {
                self.claimed.notify_one();
            }
        }
        drop(pods);
        self.notify(uid);
        matters
    }

    /// Whether the pod says that it is a mirror pod, and the container runtime has not been asked, or knows no such pod.
    pub(super) fn is_open(&self, uid: &PodUid) -> bool {
        self.pods.lock().get(uid).is_some_and(KnownEntry::is_open)
    }

    /// Whether there is any such pod.
    pub(super) fn has_open(&self) -> bool {
        self.pods.lock().values().any(KnownEntry::is_open)
    }

    /// Answers the claims of pods by the pods that the container runtime has. Returns whether the desired pods may have
    /// changed.
    pub(super) fn judge(&self, found: &[FoundPod], node_uid: Option<&str>) -> bool {
        let mut pods = self.pods.lock();
        let mut answered = Vec::new();
        for entry in pods.values_mut().filter(|entry| entry.is_open()) {
            let Some((claim, _)) = entry.claim.clone() else { continue };
            let verdict = claim.judge(&entry.newest, found, node_uid);
            if verdict == ClaimVerdict::Open {
                continue;
            }
            if verdict == ClaimVerdict::Pod {
                tracing::warn!(
                    pod = %entry.newest.pod_ref(),
                    "the pod says that it mirrors one of this node's manifests, but it does not: it is treated like \
                     the other pods of the API server"
                );
            }
            let answer =
                |pod: &Pod| self.planned(mirror::answered(pod.object().clone(), &claim, verdict));
            if let Some((newest, planned)) = answer(&entry.newest).zip(answer(&entry.planned)) {
                (entry.newest, entry.planned) = (newest, planned);
            }
            entry.claim = Some((claim, verdict));
            entry.notify();
            answered.push(entry.newest.uid().clone());
        }
        drop(pods);
        let matters = !answered.is_empty();
        answered.into_iter().for_each(|uid| self.notify(uid));
        matters
    }

    /// Records what the container runtime runs. Once the API server has listed the pods, these are only pods of manifests
    /// that have no mirror pod: their namespace does not exist, or the API server admits none. Returns whether that
    /// changed the desired pods.
    pub(super) fn found(&self, objects: Vec<api::Pod>) -> bool {
        let found = objects.into_iter().filter_map(|one| self.planned(one));
        let mut pods = self.pods.lock();
        let is_listed = self.is_listed();
        let counts = |pod: &Pod| {
            !is_listed || pod.is_mirror() && facts::runs(pod) && !is_claimed(&pods, pod.uid())
        };
        let found: Vec<Pod> = found.filter(counts).collect();
        let uids: HashSet<PodUid> = found.iter().map(|pod| pod.uid().clone()).collect();
        let (mut matters, mut changed) = (self.desired.borrow().is_none(), Vec::new());
        for pod in found {
            // What the API server says of a pod is more.
            let is_news = pods.get(pod.uid()).is_none_or(|entry| {
                entry.found && (entry.gone || entry.newest.object() != pod.object())
            });
            if is_news {
                changed.push(pod.uid().clone());
                matters |= self.take(&mut pods, pod, true);
            }
        }
        let left = pods.iter_mut().filter(|(_, entry)| entry.found && !entry.gone);
        for (uid, entry) in left.filter(|(uid, _)| !uids.contains(*uid)) {
            (entry.gone, matters) = (true, true);
            entry.notify();
            changed.push(uid.clone());
        }
        drop(pods);
        changed.into_iter().for_each(|uid| self.notify(uid));
        matters
    }

    /// Records why the container runtime has not listed its pods; `None` if it has. Returns whether that is new.
    pub(super) fn set_not_found(&self, why: Option<NodeError>) -> bool {
        let mut known = self.not_found.lock();
        let said = |why: &Option<NodeError>| why.as_ref().map(|why| Arc::clone(&why.why));
        let is_new = said(&known) != said(&why);
        *known = why;
        is_new
    }

    /// Whether the API server has listed the pods.
    pub(super) fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Whether the list in progress has any pod.
    pub(super) fn lists_any(&self) -> bool {
        self.pods.lock().values().any(|entry| entry.listed && !entry.found)
    }

    /// Resolves when the API server has listed the pods. Cancel-safe.
    pub(super) async fn until_listed(&self) {
        // The sender lives as long as `self`.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Whether what is known of the pod is from the container runtime alone.
    pub(super) fn is_found(&self, uid: &PodUid) -> bool {
        self.pods.lock().get(uid).is_some_and(|entry| entry.found)
    }

    /// Whether any pod is known from the container runtime alone.
    pub(super) fn has_found(&self) -> bool {
        self.pods.lock().values().any(|entry| entry.found && !entry.gone)
    }

    /// The pod of this object; `None` if it cannot be ended here.
    fn planned(&self, object: api::Pod) -> Option<Pod> {
        match Pod::new(facts::planned(object)) {
            Ok(pod) => Some(pod).filter(|pod| self.own.as_ref() != Some(pod.uid())),
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "a pod of this node has no identity; it is ignored"
                );
                None
            }
        }
    }

    /// Records the newest object of a pod. Returns whether the desired pods may have changed, or a stopped one runs
    /// again.
    fn take(&self, pods: &mut PodUidMap<KnownEntry>, pod: Pod, found: bool) -> bool {
        let Some(entry) = pods.get_mut(pod.uid()) else {
            self.started.notify_one();
            let mut entry = KnownEntry { found, ..KnownEntry::new(pod) };
            self.note_end(&mut entry, false);
            pods.insert(entry.newest.uid().clone(), entry);
            return true;
        };
        let was_ending = entry.is_ending();
        // A late event shows stopped containers as they were; a container started since has another ID.
        let runs_another = facts::runs_another(&entry.newest, &pod);
        let runs_again = entry.stopped.is_some() && runs_another;
        let is_first = entry.found && !found;
        let matters = entry.gone || is_first || runs_again || facts::matters(&entry.planned, &pod);
        if matters {
            entry.planned = pod.clone();
        }
        if runs_another {
            self.started.notify_one();
        }
        let stopped = entry.stopped.filter(|_| !runs_another);
        entry.free &= !runs_another;
        (entry.newest, entry.gone, entry.stopped, entry.listed) = (pod, false, stopped, true);
        entry.found = found;
        self.note_end(entry, was_ending);
        entry.notify();
        matters
    }

    /// Records whether a list shows that the pod is to end, of which nothing was known before.
    fn note_end(&self, entry: &mut KnownEntry, was_ending: bool) {
        if !was_ending && entry.is_ending() {
            // That a pod has completed, the API server has from its kubelet.
            let is_news = self.is_listing.load(Ordering::Relaxed)
                && (entry.gone || !facts::has_completed(&entry.newest));
            entry.end_listed = is_news.then(Instant::now);
        }
    }

    /// Records that the API server no longer has the pod. Returns whether that is new.
    pub(super) fn gone(&self, uid: &PodUid) -> bool {
        let mut pods = self.pods.lock();
        let Some(entry) = pods.get_mut(uid).filter(|entry| !entry.gone) else { return false };
        let was_ending = entry.is_ending();
        entry.gone = true;
        self.note_end(entry, was_ending);
        entry.notify();
        drop(pods);
        self.notify(uid.clone());
        true
    }

    pub(super) fn begin_list(&self) {
        self.is_listing.store(true, Ordering::Relaxed);
        self.pods.lock().values_mut().for_each(|entry| entry.listed = false);
    }

    /// Records that a list is complete: pods that it lacks are gone, but for pods of manifests without a mirror pod.
    pub(super) fn end_list(&self) {
        let missing: Vec<PodUid> = {
            let pods = self.pods.lock();
            self.listed.send_replace(true);
            let is_of_manifest = |uid: &PodUid, entry: &KnownEntry| {
                entry.found && entry.newest.is_mirror() && !is_claimed(&pods, uid)
            };
            let missing = pods
                .iter()
                .filter(|(uid, entry)| !entry.listed && !entry.gone && !is_of_manifest(uid, entry));
            missing.map(|(uid, _)| uid.clone()).collect()
        };
        for uid in missing {
            self.gone(&uid);
        }
        self.is_listing.store(false, Ordering::Relaxed);
    }

    pub(super) fn publish(&self) {
        // `pods` must not be locked meanwhile: readers of the desired pods may query one of them.
        let _turn = self.publishing.lock();
        let mut pods = self.pods.lock();
        // No caller knows of these, so none will call `forget` for them.
        pods.retain(|_, entry| entry.published || !entry.gone);
        pods.values_mut().for_each(|entry| entry.published = true);
        let here = pods.values().filter(|one| self.counts(one)).map(|one| one.planned.clone());
        // The container runtime does not say which pods the API server wants besides.
        let complete = self.is_listed();
        let desired = DesiredPods { complete, ..DesiredPods::all(here.collect()) };
        drop(pods);
        self.desired.send_replace(Some(Arc::new(desired)));
    }

    /// The pods that run on this node, or are to; `None` before the first list.
    pub(super) fn desired(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        self.desired.subscribe()
    }

    /// An error before the first list: only after it does an unknown pod not belong to this node.
    pub(super) fn listed(&self) -> Result<(), RuntimeError> {
        match *self.desired.borrow() {
            Some(_) => Ok(()),
            None => Err(RuntimeError::Failed { what: self.unlisted(), source: None }),
        }
    }

    /// Whether there are known pods that the API server does not refuse to show.
    pub(super) fn has_pods(&self) -> bool {
        let is_known = self.is_listed() || self.desired.borrow().is_some();
        is_known && !self.is_refused()
    }

    /// Why the pods are not known, not from the API server, or only as they were; `None` if it shows them.
    pub(super) fn trouble(&self) -> Option<String> {
        let refused = self.refused.lock().clone();
        let trouble = match (self.is_listed(), self.desired.borrow().is_some()) {
            (true, _) if refused.is_none() => return None,
            (true, _) => AS_LAST_KNOWN.to_owned(),
            (false, true) => ONLY_FOUND.to_owned(),
            (false, false) => self.unlisted(),
        };
        Some(match refused {
            Some(why) => format!("{trouble}; the API server answers: {why}"),
            None => trouble,
        })
    }

    /// Whether the API server refuses to show the pods.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.lock().is_some()
    }

    /// Records what the API server says when it refuses to show the pods; `None` once it shows them.
    pub(super) fn set_refused(&self, why: Option<String>) {
        *self.refused.lock() = why;
    }

    fn unlisted(&self) -> String {
        let not_found = self.not_found.lock();
        match &*not_found {
            None => UNLISTED.to_owned(),
            Some(why) => format!("{UNLISTED}, and the container runtime does not list them: {why}"),
        }
    }

    pub(super) fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.changes.subscribe()
    }

    pub(super) fn look(&self, uid: &PodUid) -> Option<CurrentPod> {
        let pods = self.pods.lock();
        pods.get(uid).map(|entry| CurrentPod { pod: entry.newest.clone(), gone: entry.gone })
    }

    /// Changes of this pod; `None` if it is unknown.
    pub(super) fn news(&self, uid: &PodUid) -> Option<watch::Receiver<()>> {
        let mut pods = self.pods.lock();
        let entry = pods.get_mut(uid)?;
        Some(entry.news.get_or_insert_with(|| watch::Sender::new(())).subscribe())
    }

    /// Records that the pod's containers were stopped and the API server does not know it yet.
    pub(super) fn stopped(&self, uid: &PodUid) {
        if let Some(entry) = self.pods.lock().get_mut(uid) {
            entry.stopped.get_or_insert_with(Instant::now);
        }
        self.notify(uid.clone());
    }

    /// Whether the kubelet runs the pod, and is not asked to stop it.
    pub(super) fn runs_on(&self, uid: &PodUid) -> bool {
        self.pods.lock().get(uid).is_some_and(KnownEntry::runs_on)
    }

    /// From when on a kubelet knows, as far as that can be told, that the pod is to end, has completed, or is gone, so that
    /// it starts nothing of it; `None` while the API server does not say so. One that watches the API server as this agent
    /// does has been told at the same time; one whose watch has broken lists somewhat later.
    pub(super) fn end_known_at(&self, uid: &PodUid) -> Option<Instant> {
        let pods = self.pods.lock();
        let Some(entry) = pods.get(uid) else { return Some(Instant::now()) };
        let listed = entry.end_listed.map(|at| at + KUBELET_LEARNS);
        entry.is_ending().then(|| listed.unwrap_or_else(Instant::now))
    }

    /// Records whether the pod's stop has begun, or a run of it.
    pub(super) fn set_stop_begun(&self, uid: &PodUid, begun: bool) {
        if let Some(entry) = self.pods.lock().get_mut(uid) {
            entry.stop_begun = begun;
        }
    }

    pub(super) fn is_stop_begun(&self, uid: &PodUid) -> bool {
        self.pods.lock().get(uid).is_some_and(|entry| entry.stop_begun)
    }

    /// Records, until the result is dropped, that winddown stops the pod's containers, and the kubelet knows that.
    pub(super) fn stops<'a>(&'a self, uid: &'a PodUid) -> OwnStop<'a> {
        self.set_stops(uid, true);
        self.notify(uid.clone());
        OwnStop { known: self, uid }
    }

    fn set_stops(&self, uid: &PodUid, stops: bool) {
        if let Some(entry) = self.pods.lock().get_mut(uid) {
            entry.stops = stops;
        }
    }

    /// Resolves when no pod runs but those of manifests, and those that winddown stops. Cancel-safe.
    pub(super) async fn kubelet_stops_none(&self) {
        let by_kubelet = |entry: &KnownEntry| entry.runs_for_api() && !entry.stops;
        self.until(|pods| !pods.values().any(by_kubelet)).await;
    }

    /// Resolves when no pod runs but those of manifests. Cancel-safe.
    pub(super) async fn only_manifests_run(&self) {
        self.until(|pods| !pods.values().any(KnownEntry::runs_for_api)).await;
    }

    /// Resolves when the kubelet has not told the API server for a while that a pod was stopped. Cancel-safe.
    pub(super) async fn kubelet_is_late(&self) {
        let mut changes = self.changes();
        loop {
            let first = self.pods.lock().values().filter_map(KnownEntry::unreported).min();
            tokio::select! {
                () = sleep_until(first.unwrap_or_else(Instant::now) + KUBELET_REPORTS), if first.is_some() => return,
                // If the receiver lags, the check is simply repeated. The sender lives as long as `self`.
                _ = changes.recv() => {}
            }
        }
    }

    /// Resolves when this pod runs no more, or is of a manifest. Cancel-safe.
    pub(super) async fn ended(&self, uid: &PodUid) {
        self.until(|pods| !pods.get(uid).is_some_and(KnownEntry::runs_for_api)).await;
    }

    async fn until(&self, is_so: impl Fn(&PodUidMap<KnownEntry>) -> bool) {
        let mut changes = self.changes();
        while !is_so(&self.pods.lock()) {
            // If the receiver lags, the check is simply repeated. The sender lives as long as `self`.
            let _ = changes.recv().await;
        }
    }

    /// Records that the kubelet was seen to hold nothing of the pod. That only lasts after the pod's end.
    pub(super) fn freed(&self, uid: &PodUid) {
        if let Some(entry) = self.pods.lock().get_mut(uid) {
            entry.free = entry.gone || entry.stopped.is_some();
        }
    }

    /// The pods that the kubelet stops and cleans up on behalf of the API server, including terminated ones; without
    /// those that are free.
    pub(super) fn not_free(&self) -> Vec<PodUid> {
        let pods = self.pods.lock();
        let others = pods.iter().filter(|(_, entry)| !entry.newest.is_mirror() && !entry.free);
        others.map(|(uid, _)| uid.clone()).collect()
    }

    /// Whether the API server has a mirror pod of the pod that the container runtime knows by this UID.
    pub(super) fn has_mirror_of(&self, runtime_uid: &PodUid) -> bool {
        let is_of = |pod: &Pod| pod.is_mirror() && facts::runtime_uid(pod) == *runtime_uid;
        self.pods.lock().values().any(|entry| !entry.gone && is_of(&entry.newest))
    }

    /// The status of the pod's containers.
    pub(super) fn status(&self, uid: &PodUid) -> Option<PodRuntimeStatus> {
        let (pod, ended) = {
            let pods = self.pods.lock();
            let entry = pods.get(uid)?;
            (entry.newest.clone(), entry.gone || entry.stopped.is_some())
        };
        Some(facts::status(&pod, ended))
    }

    pub(super) fn list(&self) -> Vec<RuntimePod> {
        let pods = self.pods.lock();
        let here = pods.values().filter(|entry| self.counts(entry));
        let runs = |entry: &KnownEntry| entry.stopped.is_none() && facts::runs(&entry.newest);
        here.map(|entry| RuntimePod::of(&entry.newest, runs(entry))).collect()
    }

    /// Whether it is a pod of this node, and none that mirrors the agent's own.
    fn counts(&self, entry: &KnownEntry) -> bool {
        !entry.gone && self.own.as_ref() != Some(&facts::runtime_uid(&entry.newest))
    }

    /// Removes a pod that is gone.
    pub(super) fn forget(&self, uid: &PodUid) {
        let mut pods = self.pods.lock();
        if pods.get(uid).is_some_and(|entry| entry.gone) {
            pods.remove(uid);
        }
    }

    fn notify(&self, uid: PodUid) {
        // Fails only if there are no receivers.
        let _ = self.changes.send(uid);
    }
}

/// Whether a pod of the API server says that it mirrors the pod that the container runtime knows by this UID, unless the
/// container runtime has denied that.
fn is_claimed(pods: &PodUidMap<KnownEntry>, runtime_uid: &PodUid) -> bool {
    let claims = |entry: &KnownEntry| match &entry.claim {
        Some((claim, verdict)) => *verdict != ClaimVerdict::Pod && claim.hash == *runtime_uid,
        None => false,
    };
    pods.values().any(|entry| !entry.gone && claims(entry))
}

#[cfg(test)]
mod tests;
