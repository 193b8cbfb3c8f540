//! The end of a pod in the API.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::PodUid;

use super::known::ApiPresence;
use super::parts::Parts;
use super::queue::Outcome;
use super::seams::{Prepare, StatusSide};
use crate::provider::Notify;
use winddown_api_client::node_pods::PodApi;

/// Removes the object of a pod that has ended, once the API knows its last word.
///
/// It does not wait for the end of the grace: what has ended needs none
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/982>). Named by its UID, so that a pod that
/// was made anew under the same name is never meant.
pub(crate) async fn remove<A, P, S, R>(parts: Arc<Parts<A, P, S, R>>, uid: PodUid) -> Outcome
where
    A: PodApi,
    P: Notify,
    S: StatusSide,
    R: Prepare,
{
    let is_due = |parts: &Parts<A, P, S, R>| {
        parts.known.get(&uid).filter(|known| {
            known.presence == ApiPresence::Present && known.is_deleting() && !known.progress.removed
        })
    };
    let Some(known) = is_due(&parts) else { return Outcome::Done };
    match parts.provided(&uid).await {
        Ok(Some(provided)) if provided.ended => parts.say(&known.pod, &provided),
        Ok(None) => {}
        Ok(Some(_)) if known.progress.unknown_to_stop => {}
        Ok(Some(_)) => {
            parts.queues.sync.wake(&uid);
            return Outcome::Done;
        }
        Err(error) => return Outcome::Failed { after: error.retry_after() },
    }
    tokio::select! {
        () = parts.statuses.told(&uid) => {}
        () = parts.cancel.cancelled() => return Outcome::Done,
    }
    let Ok(_permit) = parts.removals.acquire().await else { return Outcome::Done };
    // It may be gone by now: its last word can be told long after it was said.
    let Some(known) = is_due(&parts) else { return Outcome::Done };
    let label = known.pod.label();
    match parts.request("delete the pod", parts.api.delete(label, Duration::ZERO)).await {
        Ok(()) => {
            parts.api_outage.worked();
            parts.known.mark(&uid, |progress| progress.removed = true);
            tracing::debug!(pod = %label, "removed from the API");
            Outcome::Done
        }
        Err(refused) if refused.refusal.is_gone() => {
            parts.api_outage.worked();
            parts.gone(&uid, None);
            Outcome::Done
        }
        Err(refused) => {
            parts.api_outage.failed(&refused);
            Outcome::Failed { after: refused.refusal.retry_after() }
        }
    }
}
