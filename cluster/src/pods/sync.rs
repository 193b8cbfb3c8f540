//! Carries out what a pod needs next.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Pod, PodUid, error_chain};

use super::controller_status::{self, Waits};
use super::equality;
use super::known::{ApiPresence, Known};
use super::parts::{CallError, Parts};
use super::plan::{PodAction, PodView, next_step};
use super::progress::StopAsked;
use super::queue::Outcome;
use super::seams::{PodEvent, Prepare, PrepareError, StatusSide};
use crate::provider::{Notify, ProvidedPod, ProviderError};
use crate::status::StatusUpdate;
use winddown_api_client::node_pods::PodApi;

/// More steps in a row than any pod needs; the queue takes over then.
const STEPS: usize = 6;

/// Looks at one pod and does what it needs until nothing is left to do now.
pub(crate) async fn look<A, P, S, R>(parts: Arc<Parts<A, P, S, R>>, uid: PodUid) -> Outcome
where
    A: PodApi,
    P: Notify,
    S: StatusSide,
    R: Prepare,
{
    let mut outcome = Outcome::At(Instant::now());
    for _ in 0..STEPS {
        if let Some(end) = parts.step(&uid).await {
            outcome = end;
            break;
        }
    }
    parts.unsettled.send_if_modified(|pods| pods.remove(&uid).is_some());
    outcome
}

impl<A: PodApi, P: Notify, S: StatusSide, R: Prepare> Parts<A, P, S, R> {
    /// One step; `None`: look again.
    async fn step(&self, uid: &PodUid) -> Option<Outcome> {
        let Some(known) = self.known.get(uid) else { return Some(Outcome::Done) };
        let provided = match self.provided(uid).await {
            Ok(provided) => provided,
            Err(error) => return Some(Outcome::Failed { after: error.retry_after() }),
        };
        // Said by one queue alone, so that an older status never comes after a newer one.
        let is_news = |p: &ProvidedPod| known.progress.is_news(&p.status, p.ended);
        if known.presence == ApiPresence::Present && provided.as_ref().is_some_and(is_news) {
            self.queues.status.wake(uid);
        }
        let step = next_step(PodView {
            known: &known,
            provider: provided.as_ref(),
            has_predecessor: self.known.has_predecessor(&known.pod),
            is_replaced: self.known.has_successor(&known.pod),
            last_word: known.progress.last_said || self.statuses.last_word(uid).is_some(),
            orphans: self.config.orphans,
            now: Instant::now(),
            api_time: self.api_time(),
            kill_slack: self.config.kill_slack,
            kill_every: self.config.kill_every,
        });
        tracing::trace!(pod = %known.pod.label(), ?step, "next step");
        match step {
            PodAction::Nothing => Some(Outcome::Done),
            PodAction::Until(at) => Some(Outcome::At(at)),
            PodAction::Create => Some(self.create(&known.pod).await),
            PodAction::Update => Some(self.update(&known.pod, provided.as_ref()?).await),
            PodAction::Stop { grace, kill } => {
                self.stop(&known, provided.as_ref(), grace, kill).await
            }
            PodAction::Lost => {
                self.say_lost(&known);
                None
            }
            PodAction::Remove => {
                self.queues.removal.wake(uid);
                Some(Outcome::Done)
            }
            PodAction::LookUp => self.look_up(&known).await,
            PodAction::LeaveAlone => {
                self.leave_alone(&known);
                Some(Outcome::Done)
            }
            PodAction::Forget => self.forget(uid).await.then_some(Outcome::Done),
            PodAction::RequestDeletion { grace } => {
                Some(self.request_deletion(&known, grace).await)
            }
        }
    }

    async fn create(&self, pod: &Pod) -> Outcome {
        let uid = pod.uid();
        let prepared = match self.prepare.prepare(pod).await {
            Ok(prepared) => prepared,
            Err(error) => return self.not_prepared(pod, &error),
        };
        self.known.mark(uid, |progress| progress.create_open = true);
        match self.call(self.provider.create_pod(&prepared)).await {
            Ok(()) => {
                self.known.mark(uid, |progress| {
                    progress.create_open = false;
                    progress.created = true;
                    progress.failure = None;
                });
                self.events.pod_event(pod.label(), PodEvent::ProviderCreateSuccess);
                self.queues.status.wake(uid);
                Outcome::Done
            }
            Err(error) => {
                let text = error_chain(&error);
                self.say_waiting(pod, Waits::Provider, &text);
                self.failed(pod, &error, |error| PodEvent::ProviderCreateFailed { error })
            }
        }
    }

    async fn update(&self, pod: &Pod, provided: &ProvidedPod) -> Outcome {
        let count = |pod: &Pod| pod.spec.as_ref()?.ephemeral_containers.as_ref().map(Vec::len);
        let mut changed = equality::with_changes(&provided.pod, pod);
        if count(pod) > count(&provided.pod) {
            // New containers refer to things that have not been looked up yet.
            match self.prepare.prepare(pod).await {
                Ok(prepared) => {
                    let new = prepared.spec.as_ref().and_then(|s| s.ephemeral_containers.clone());
                    changed.spec.get_or_insert_default().ephemeral_containers = new;
                }
                Err(error) => return self.not_prepared(pod, &error),
            }
        }
        let Ok(changed) = Pod::new(changed) else { return Outcome::Done };
        match self.call(self.provider.update_pod(&changed)).await {
            Ok(()) => {
                self.known.mark(pod.uid(), |progress| progress.failure = None);
                // Volumes can show labels and annotations.
                self.prepare.adopt(pod);
                self.events.pod_event(pod.label(), PodEvent::ProviderUpdateSuccess);
                self.queues.status.wake(pod.uid());
                Outcome::Done
            }
            // It went meanwhile; the next look decides.
            Err(CallError::Provider(ProviderError::NotFound)) => Outcome::At(Instant::now()),
            Err(error) => {
                self.failed(pod, &error, |error| PodEvent::ProviderUpdateFailed { error })
            }
        }
    }

    async fn stop(
        &self,
        known: &Known,
        provided: Option<&ProvidedPod>,
        grace: Duration,
        kill: bool,
    ) -> Option<Outcome> {
        let pod = provided.map_or(&known.pod, |provided| &provided.pod);
        let result = self.call(self.provider.delete_pod(pod, grace)).await;
        let is_unknown = matches!(result, Err(CallError::Provider(ProviderError::NotFound)));
        match result {
            Err(error) if !is_unknown => {
                self.tell_failure(pod, &error, |error| PodEvent::ProviderDeleteFailed { error });
                Some(Outcome::FailedWaitedFor { after: error.retry_after() })
            }
            _ => {
                let now = Instant::now();
                let deadline = known.deadline.unwrap_or(now);
                let before = self.known.mark(pod.uid(), |progress| {
                    progress.create_open = false;
                    progress.failure = None;
                    progress.unknown_to_stop = is_unknown;
                    progress.stop.replace(StopAsked { deadline, at: now, kill })
                });
                match before.flatten() {
                    None => self.events.pod_event(pod.label(), PodEvent::ProviderDeleteSuccess),
                    Some(before) if kill && !before.kill => {
                        tracing::warn!(pod = %pod.label(), "the pod had its grace and has not ended");
                    }
                    Some(_) => {}
                }
                None
            }
        }
    }

    /// Whether it is forgotten: it may have come back meanwhile.
    async fn forget(&self, uid: &PodUid) -> bool {
        self.provider.forget_pod(uid).await;
        self.prepare.forget(uid).await;
        let Some(successors) = self.known.forget(uid) else { return false };
        self.statuses.gone(uid);
        self.queues.status.forget(uid);
        self.queues.removal.forget(uid);
        for successor in successors {
            self.queues.sync.wake_fresh(&successor);
        }
        true
    }

    /// The provider itself wants the pod to go: that is asked of the API, and the rest is as for any other
    /// deletion.
    async fn request_deletion(&self, known: &Known, grace: Duration) -> Outcome {
        let label = known.pod.label();
        match self.request("delete the pod", self.api.delete(label, grace)).await {
            // The watch brings what becomes of it.
            Ok(()) => Outcome::At(Instant::now() + self.config.kill_every),
            Err(refused) if refused.refusal.is_gone() => {
                self.gone(&label.uid, None);
                Outcome::At(Instant::now())
            }
            Err(refused) => {
                self.api_outage.failed(&refused);
                Outcome::FailedWaitedFor { after: refused.refusal.retry_after() }
            }
        }
    }

    fn leave_alone(&self, known: &Known) {
        let first =
            self.known.mark(known.pod.uid(), |m| !std::mem::replace(&mut m.left_alone, true));
        if first == Some(true) && self.config.orphans == super::OrphanPolicy::Report {
            tracing::warn!(
                pod = %known.pod.label(),
                "the pod runs here and the API server does not have it; it is left alone"
            );
        }
    }

    /// A call failed: it is told when it is news, and tried again, unless that is of no use.
    fn failed(&self, pod: &Pod, error: &CallError, event: fn(String) -> PodEvent) -> Outcome {
        self.tell_failure(pod, error, event);
        if let CallError::Provider(ProviderError::Invalid { .. }) = error {
            self.known.mark(pod.uid(), |progress| {
                progress.refused = true;
                progress.create_open = false;
            });
            return Outcome::Done;
        }
        Outcome::Failed { after: error.retry_after() }
    }

    fn tell_failure(&self, pod: &Pod, error: &CallError, event: fn(String) -> PodEvent) {
        let text = error_chain(error);
        if self.known.mark(pod.uid(), |progress| progress.fail(&text)) == Some(true) {
            let event = event(text);
            let reason = event.reason();
            tracing::warn!(pod = %pod.label(), reason, "{}", event.message());
            self.events.pod_event(pod.label(), event);
        }
    }

    fn not_prepared(&self, pod: &Pod, error: &PrepareError) -> Outcome {
        let text = error_chain(error);
        if self.known.mark(pod.uid(), |progress| progress.fail(&text)) == Some(true) {
            let label = pod.label();
            tracing::warn!(pod = %label, error = text, "pod {label} cannot be prepared yet: {text}");
        }
        self.say_waiting(pod, Waits::Config, &text);
        match error {
            PrepareError::Invalid { .. } => {
                self.known.mark(pod.uid(), |progress| progress.refused = true);
                Outcome::Done
            }
            PrepareError::Unavailable { after, .. } => Outcome::Failed { after: *after },
            PrepareError::Missing { .. } => Outcome::Failed { after: None },
        }
    }

    fn say_waiting(&self, pod: &Pod, why: Waits, message: &str) {
        if let Some(status) = controller_status::waiting(pod, why, message) {
            self.say_own(pod, status, false);
        }
    }

    fn say_lost(&self, known: &Known) {
        let status = controller_status::lost(&known.pod, known.is_deleting(), self.api_time());
        self.say_own(&known.pod, status, true);
    }

    fn say_own(&self, pod: &Pod, status: k8s_openapi::api::core::v1::PodStatus, last: bool) {
        let status = Arc::new(status);
        if self.known.mark(pod.uid(), |progress| progress.say(&status, last)) == Some(true) {
            let generation = pod.metadata.generation;
            let pod = pod.label().clone();
            self.statuses.submit(StatusUpdate { pod, status, last, generation });
        }
    }
}
