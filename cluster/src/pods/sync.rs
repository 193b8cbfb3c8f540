//! Carries out what a pod needs next.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::time::Instant;
use winddown_api_client::equality;
use winddown_api_client::node_pods::PodApi;
use winddown_shared::status::is_terminal;
use winddown_shared::{Pod, PodUid, Rejection, error_chain, instant_after};

use super::config::Whose;
use super::controller_status::{self, WaitReason};
use super::judgement::Judgement;
use super::known::{ApiPresence, GivenPod, KnownPod};
use super::next_step::{PodAction, PodView, next_step};
use super::parts::Parts;
use super::queue::ItemOutcome;
use super::seams::{Prepare, PrepareError, StatusSide};
use crate::status::StatusUpdate;

/// More steps in a row than any pod needs; after these the queue takes over.
const MAX_STEPS: usize = 6;

/// How soon a pod that is held back is retried.
const HELD_BACK: Duration = Duration::from_secs(2);

/// Handles one pod until nothing is left to do now.
pub(crate) async fn look<A: PodApi, T: StatusSide, R: Prepare>(
    parts: Arc<Parts<A, T, R>>,
    uid: PodUid,
) -> ItemOutcome {
    let mut outcome = ItemOutcome::At(Instant::now());
    for _ in 0..MAX_STEPS {
        if let Some(end) = parts.step(&uid).await {
            outcome = end;
            break;
        }
    }
    // Of one that waits or runs, the room is kept.
    if let Some(node) = &parts.config.admission
        && parts.known.mark(&uid, |known| known.is_waiting() || known.runs()) != Some(true)
    {
        node.admitted.forget(&uid);
    }
    if parts.known.mark(&uid, |known| known.is_waiting()) != Some(true) {
        parts.node.statuses.waits_no_more(&uid);
    }
    parts.unsettled.send_if_modified(|pods| pods.remove(&uid).is_some());
    outcome
}

impl<A: PodApi, T: StatusSide, R: Prepare> Parts<A, T, R> {
    /// Carries out one step. `None` means that the pod must be checked again.
    async fn step(&self, uid: &PodUid) -> Option<ItemOutcome> {
        self.note_end(uid).await;
        let Some(known) = self.known.get(uid) else { return Some(ItemOutcome::Done) };
        let namesakes = self.known.namesakes(&known.pod);
        let left = self.active_time_left(&known);
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            self.queues.sync.wake_at(uid, instant_after(Instant::now(), left));
        }
        let step = next_step(PodView {
            known: &known,
            has_predecessor: namesakes.first().is_some_and(|first| first != uid),
            is_replaced: namesakes.last().is_some_and(|last| last != uid),
            final_status: known.final_submitted || self.statuses.final_status(uid).is_some(),
            is_over_here: self.node.statuses.get(uid).is_some_and(|s| is_terminal(&s)),
            runs: self.node.runs(uid),
            is_overdue: left == Some(Duration::ZERO),
            orphans: self.config.orphans,
        });
        tracing::trace!(pod = %known.pod.pod_ref(), ?step, "next step");
        match step {
            PodAction::Nothing => Some(ItemOutcome::Done),
            PodAction::Give => Some(self.give(&known).await),
            PodAction::Change => Some(self.change(&known.pod, known.given.as_ref()?).await),
            PodAction::End => {
                if let Some(ending) = self.known.end(uid, Instant::now(), self.api_time()) {
                    self.record(ending).await;
                }
                None
            }
            PodAction::TakeOver => {
                self.known.take_over(uid, lean(known.pod.object().clone(), &known.pod));
                None
            }
            PodAction::GiveTerminated => {
                self.give_terminated(&known.pod).await;
                None
            }
            PodAction::Wait => Some(ItemOutcome::At(Instant::now() + HELD_BACK)),
            PodAction::Conclude => self.conclude(&known).await,
            PodAction::Overdue => {
                self.overdue(&known).await;
                None
            }
            PodAction::Remove => {
                self.queues.removal.wake(uid);
                Some(ItemOutcome::Done)
            }
            PodAction::LookUp => self.look_up(&known).await,
            PodAction::LeaveAlone => {
                self.leave_alone(&known);
                Some(ItemOutcome::Done)
            }
            PodAction::Forget => self.forget(uid).await.then_some(ItemOutcome::Done),
        }
    }

    /// Records the end of a pod that the node reports as terminated. It is not started again.
    async fn note_end(&self, uid: &PodUid) {
        let Some(KnownPod { given: Some(given), pod, presence, .. }) = self.known.get(uid) else {
            return;
        };
        let last = match given.last {
            Some(last) => last,
            None if self.node.has_ended(uid) => {
                let said = self.node.statuses.get(uid).filter(|status| is_terminal(status));
                // The pod never got a final status of its own.
                let last = said.unwrap_or_else(|| {
                    Arc::new(controller_status::lost(&pod, given.is_ending(), self.api_time()))
                });
                if let Some(ended) = self.known.ended(uid, last.clone()) {
                    self.record(ended).await;
                }
                self.prepare.forget(uid).await;
                last
            }
            None => return,
        };
        // Nothing is sent for a pod that may be gone before it has been looked up.
        if presence == ApiPresence::Present {
            self.submit(&given.pod, last, true);
        }
    }

    /// Reports how a pod ended that may not run again: by its containers, or, if the runtime has none of it any more, as
    /// an unobserved end.
    async fn conclude(&self, known: &KnownPod) -> Option<ItemOutcome> {
        let pod = &known.pod;
        let status = match self.node.remains(pod.uid()).await {
            Ok(left) if left.containers.is_empty() => {
                controller_status::lost(pod, known.is_deleting(), self.api_time())
            }
            Ok(left) => controller_status::ended(pod, &left, self.api_time()),
            Err(error) => {
                tracing::debug!(pod = %pod.pod_ref(), error = error_chain(&error), "a pod's end is not known yet");
                return Some(ItemOutcome::At(Instant::now() + HELD_BACK));
            }
        };
        self.submit(pod, Arc::new(status), true);
        None
    }

    /// The rest of the time that a pod may be active which waits; the node counts that of the others.
    fn active_time_left(&self, known: &KnownPod) -> Option<Duration> {
        if !known.is_waiting() {
            return None;
        }
        let started = known.started().map(|at| at.0);
        self.deadlines.left(&known.pod, started, self.api_time(), Instant::now())
    }

    /// Fails a pod that has waited for longer than it may be active. It was never given to the node.
    async fn overdue(&self, known: &KnownPod) {
        let status = controller_status::overdue(&known.pod, self.api_time());
        tracing::info!(pod = %known.pod.pod_ref(), "the pod waited for longer than its activeDeadlineSeconds");
        self.submit(&known.pod, Arc::new(status), true);
        self.prepare.forget(known.pod.uid()).await;
    }

    async fn give(&self, known: &KnownPod) -> ItemOutcome {
        let pod = &known.pod;
        let judged = match &self.config.admission {
            Some(node) => (node.judge)(pod.clone()).await,
            None => Judgement::Resolve,
        };
        match judged {
            Judgement::Resolve => {}
            Judgement::HoldBack(why) => {
                self.submit_waiting(pod, WaitReason::Node, why);
                return ItemOutcome::At(Instant::now() + HELD_BACK);
            }
            // Nothing of it runs here, so that the next agent need not know it.
            Judgement::Refused(why) => {
                self.known.give_refused(pod.uid(), lean(pod.object().clone(), pod), why);
                return ItemOutcome::At(Instant::now());
            }
        }
        let Ok(turn) = self.preparing.acquire().await else { return ItemOutcome::Done };
        if self.known.mark(pod.uid(), |known| known.is_waiting()) != Some(true) {
            // It was deleted while it waited for its turn.
            return ItemOutcome::At(Instant::now());
        }
        let prepared = self.resolve(pod).await;
        drop(turn);
        match prepared {
            Ok(prepared) => {
                let mut object = prepared.object().clone();
                if let Some(started) = known.started() {
                    object.status.get_or_insert_default().start_time = Some(started.clone());
                }
                let prepared = lean(object, pod);
                // Recorded first: an unknown pod that runs would be stopped after a restart.
                if let Err(no_room) = self.keep.keep(prepared.clone()).await {
                    self.prepare.forget(pod.uid()).await;
                    return self.not_prepared(pod, &no_room);
                }
                if !self.known.give(pod.uid(), prepared) {
                    self.keep.remove(pod.uid()).await;
                }
                // It may have changed by now.
                ItemOutcome::At(Instant::now())
            }
            Err(error) => self.not_prepared(pod, &error),
        }
    }

    /// Resolves what a pod refers to, if its runtime can run it then. What runs may have been started by another agent.
    async fn resolve(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        let prepared = self.prepare.prepare(pod).await?;
        let node = self.config.admission.as_ref();
        let runs = self.node.runs(pod.uid());
        let node = node.filter(|_| runs != Some(true));
        let Some(Err(unsupported)) = node.map(|node| (node.supports)(&prepared)) else {
            return Ok(prepared);
        };
        self.prepare.forget(pod.uid()).await;
        match runs {
            Some(_) => Err(unsupported),
            None => Err(PrepareError::Unavailable {
                what: "whether the pod runs is not known yet".to_owned(),
                after: Some(HELD_BACK),
            }),
        }
    }

    /// Gives a pod to the node that had terminated before the node was given it. Its volumes are not needed any more.
    async fn give_terminated(&self, pod: &Pod) {
        // Recorded first: the next agent would remove what is left of an unknown pod while the API is unavailable.
        self.record(pod.clone()).await;
        if !self.known.give_terminated(pod.uid(), pod.clone()) {
            self.keep.remove(pod.uid()).await;
        }
        self.prepare.forget(pod.uid()).await;
    }

    async fn change(&self, pod: &Pod, given: &GivenPod) -> ItemOutcome {
        let count = |pod: &Pod| pod.spec.as_ref()?.ephemeral_containers.as_ref().map(Vec::len);
        let mut resolved = pod.clone();
        if count(pod) > count(&given.pod) {
            // New containers may refer to objects that have not been resolved yet.
            match self.prepare.prepare(pod).await {
                Ok(prepared) => resolved = prepared,
                Err(error) => return self.not_prepared(pod, &error),
            }
        }
        let mut changed = lean(equality::with_changes(&given.pod, &resolved), &given.pod);
        let mut not_resized = None;
        if let Some(resized) = equality::resized(&changed, pod) {
            let resized = lean(resized, &changed);
            match self.config.admission.as_ref().map_or(Ok(()), |node| (node.resize)(&resized)) {
                Ok(()) => changed = resized,
                Err(why) => not_resized = Some(self.not_resized(pod, &why)),
            }
        }
        if let Err(no_room) = self.keep.keep(changed.clone()).await {
            return self.not_prepared(pod, &no_room);
        }
        self.known.give(pod.uid(), changed);
        self.prepare.refresh(pod);
        if not_resized.is_none() {
            return ItemOutcome::Done;
        }
        self.known.mark(pod.uid(), |known| known.failure = not_resized);
        ItemOutcome::Failed { after: None }
    }

    /// Reports once that a pod keeps what it was admitted with until what it asks for now fits.
    fn not_resized(&self, pod: &Pod, why: &Rejection) -> String {
        let label = pod.pod_ref();
        let text =
            format!("pod {label} keeps the resources that it has, and is not resized: {why}");
        if self.known.mark(pod.uid(), |known| known.fail(&text)) == Some(true) {
            tracing::warn!(pod = %label, "{text}");
        }
        text
    }

    /// Records what becomes of a pod that the node has. Without room for that, the next agent asks the API server.
    async fn record(&self, pod: Pod) {
        let label = pod.pod_ref().clone();
        if let Err(no_room) = self.keep.keep(pod).await {
            tracing::debug!(pod = %label, error = error_chain(&no_room), "a pod's new state is not recorded");
        }
    }

    /// Forgets a pod. Returns false if it has come back meanwhile.
    async fn forget(&self, uid: &PodUid) -> bool {
        let Some(successors) = self.known.forget(uid) else { return false };
        self.keep.remove(uid).await;
        self.prepare.forget(uid).await;
        self.statuses.gone(uid);
        self.queues.removal.forget(uid);
        self.deadlines.forget(uid);
        for successor in successors {
            self.queues.sync.wake_fresh(&successor);
        }
        true
    }

    /// Looks up one pod that a list did not have. A list can be wrong (a selector, a filter, an old
    /// copy), and a stopped pod cannot be started again; so no pod is stopped before a lookup by
    /// name has not found it. A missing answer proves nothing.
    async fn look_up(&self, known: &KnownPod) -> Option<ItemOutcome> {
        let label = known.pod.pod_ref();
        let found = match self.request("read the pod", label, self.api.get(label)).await {
            Ok(found) => found.and_then(|object| self.config.received(object).ok()),
            Err(refused) => {
                return Some(ItemOutcome::Failed { after: refused.refusal.retry_after() });
            }
        };
        match found {
            Some((Whose::Ours, pod)) if pod.uid() == &label.uid => {
                if self.known.found(&pod, Instant::now()) {
                    self.statuses.api_saw(&pod);
                }
            }
            // Another pod has its name, or it is no longer this controller's: one lookup proves that.
            Some(_) => self.gone(&label.uid, None),
            None if self.known.not_found(&label.uid, Instant::now()) => {
                tracing::info!(pod = %label, "the API server no longer has the pod");
                self.statuses.gone(&label.uid);
            }
            None => return Some(ItemOutcome::At(Instant::now() + self.config.confirm_every)),
        }
        None
    }

    fn leave_alone(&self, known: &KnownPod) {
        let first =
            self.known.mark(known.pod.uid(), |k| !std::mem::replace(&mut k.left_alone, true));
        if first == Some(true) && self.config.orphans == super::OrphanPolicy::Report {
            tracing::warn!(
                pod = %known.pod.pod_ref(),
                "the API server does not have this running pod; leaving it alone"
            );
        }
    }

    fn not_prepared(&self, pod: &Pod, error: &PrepareError) -> ItemOutcome {
        let text = error_chain(error);
        if self.known.mark(pod.uid(), |known| known.fail(&text)) == Some(true) {
            let label = pod.pod_ref();
            tracing::warn!(pod = %label, error = text, "pod {label} cannot be prepared yet: {text}");
        }
        let waits = match error {
            PrepareError::Unavailable { .. }
            | PrepareError::Missing { is_for_volume: true, .. } => WaitReason::Creating,
            PrepareError::Missing { .. } | PrepareError::Invalid { .. } => WaitReason::Config,
        };
        self.submit_waiting(pod, waits, &text);
        match error {
            PrepareError::Invalid { .. } => {
                self.known.mark(pod.uid(), |known| known.refused = true);
                ItemOutcome::Done
            }
            PrepareError::Unavailable { after, .. } => ItemOutcome::Failed { after: *after },
            PrepareError::Missing { .. } => ItemOutcome::Failed { after: None },
        }
    }

    fn submit_waiting(&self, pod: &Pod, why: WaitReason, message: &str) {
        if let Some(mut status) = controller_status::waiting(pod, why, message, self.api_time()) {
            // The API may not have the first such status yet, and its time counts.
            let started = self.known.get(pod.uid()).and_then(|known| known.started().cloned());
            status.start_time = started.or(status.start_time);
            let status = Arc::new(status);
            self.node.statuses.waits(pod.clone(), Arc::clone(&status));
            self.submit(pod, status, false);
        }
    }

    fn submit(&self, pod: &Pod, status: Arc<api::PodStatus>, last: bool) {
        if self.known.mark(pod.uid(), |known| known.note_status(&status, last)) == Some(true) {
            let generation = pod.metadata.generation;
            if last {
                self.node.statuses.waits_no_more(pod.uid());
            }
            let pod = pod.pod_ref().clone();
            self.statuses.submit(StatusUpdate { pod, status, last, generation });
        }
    }
}

/// Removes what only the API server needs: the pod is kept in memory for as long as it runs.
fn lean(mut object: api::Pod, otherwise: &Pod) -> Pod {
    // A pod is as old as the API says, also after a boot.
    let start_time = object.status.and_then(|status| status.start_time);
    object.status =
        start_time.map(|at| api::PodStatus { start_time: Some(at), ..api::PodStatus::default() });
    // It had a name and a UID before, so this cannot fail.
    Pod::new(object).unwrap_or_else(|_| otherwise.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_the_api_server_needs_is_not_kept_in_memory() {
        let object = json!({"metadata": {
            "name": "web", "namespace": "default", "uid": "u1",
        }, "status": {"phase": "Running", "startTime": "2026-01-02T03:04:05Z"}});
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let lean = lean(pod.object().clone(), &pod);
        let status = lean.status.as_ref().unwrap();
        assert!(status.start_time.is_some() && status.phase.is_none(), "{status:?}");
    }
}
