//! Removes terminated pods from the API.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use winddown_api_client::node_pods::PodApi;
use winddown_shared::PodUid;

use super::known::ApiPresence;
use super::parts::Parts;
use super::queue::ItemOutcome;
use super::seams::StatusSide;

/// Removes the object of a terminated pod, once the API has its final status and the node holds nothing of it: another
/// node may use its volumes then.
///
/// Does not wait for the end of the grace period, which a terminated pod does not need
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/982>). Names the UID, so that a new
/// pod with the same name is never removed.
pub(crate) async fn remove<A: PodApi, T: StatusSide, R>(
    parts: Arc<Parts<A, T, R>>,
    uid: PodUid,
) -> ItemOutcome {
    tokio::select! {
        _ = join(parts.statuses.delivered(&uid), parts.node.freed(&uid)) => {}
        () = parts.cancel.cancelled() => return ItemOutcome::Done,
    }
    let Ok(_permit) = parts.removals.acquire().await else { return ItemOutcome::Done };
    // It may be gone by now: its final status may be delivered long after it was submitted.
    let due = parts.known.get(&uid).filter(|known| {
        known.presence == ApiPresence::Present && known.is_deleting() && !known.removed
    });
    let Some(known) = due else { return ItemOutcome::Done };
    let label = known.pod.pod_ref();
    match parts.request("delete the pod", label, parts.api.delete(label, Duration::ZERO)).await {
        Ok(()) => {
            parts.known.mark(&uid, |known| known.removed = true);
            tracing::debug!(pod = %label, "removed from the API");
            ItemOutcome::Done
        }
        Err(refused) if refused.refusal.is_gone() => {
            parts.gone(&uid, None);
            ItemOutcome::Done
        }
        Err(refused) => ItemOutcome::Failed { after: refused.refusal.retry_after() },
    }
}
