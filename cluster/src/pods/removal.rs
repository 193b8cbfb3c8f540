//! The end of a pod in the API.

use std::sync::Arc;
use std::time::Duration;

use winddown_api_client::node_pods::PodApi;
use winddown_shared::PodUid;

use super::known::ApiPresence;
use super::parts::Parts;
use super::queue::Outcome;
use super::seams::StatusSide;

/// Removes the object of a pod that has ended, once the API knows its last word.
///
/// It does not wait for the end of the grace: what has ended needs none
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/982>). Named by its UID, so that a pod that
/// was made anew under the same name is never meant.
pub(crate) async fn remove<A: PodApi, T: StatusSide, R>(
    parts: Arc<Parts<A, T, R>>,
    uid: PodUid,
) -> Outcome {
    tokio::select! {
        () = parts.statuses.delivered(&uid) => {}
        () = parts.cancel.cancelled() => return Outcome::Done,
    }
    let Ok(_permit) = parts.removals.acquire().await else { return Outcome::Done };
    // It may be gone by now: its final status may be sent long after it was said.
    let due = parts.known.get(&uid).filter(|known| {
        known.presence == ApiPresence::Present && known.is_deleting() && !known.removed
    });
    let Some(known) = due else { return Outcome::Done };
    let label = known.pod.label();
    match parts.request("delete the pod", parts.api.delete(label, Duration::ZERO)).await {
        Ok(()) => {
            parts.api_outage.worked();
            parts.known.mark(&uid, |known| known.removed = true);
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
