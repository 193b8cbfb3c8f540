//! Hands on what the provider says of its pods.

use std::sync::Arc;

use winddown_shared::PodUid;

use super::known::ApiPresence;
use super::parts::Parts;
use super::queue::Outcome;
use super::seams::{Prepare, StatusSide};
use crate::provider::Notify;
use winddown_api_client::node_pods::PodApi;

/// Asks the provider for a pod's status and hands it on.
pub(crate) async fn report<A, P, S, R>(parts: Arc<Parts<A, P, S, R>>, uid: PodUid) -> Outcome
where
    A: PodApi,
    P: Notify,
    S: StatusSide,
    R: Prepare,
{
    // Asked about again when the API has it.
    let Some(known) = parts.known.get(&uid) else { return Outcome::Done };
    let provided = match parts.provided(&uid).await {
        Ok(provided) => provided,
        Err(error) => return Outcome::Failed { after: error.retry_after() },
    };
    let Some(provided) = provided else {
        parts.queues.sync.wake(&uid);
        return Outcome::Done;
    };
    let wants_to_go = provided.pod.metadata.deletion_timestamp.is_some();
    let is_next = match known.presence {
        ApiPresence::Present => {
            parts.say(&known.pod, &provided);
            if known.is_deleting() { provided.ended } else { wants_to_go }
        }
        ApiPresence::Gone => provided.ended,
        // Nothing is done about it before it was looked up.
        ApiPresence::Absent { .. } => false,
    };
    if is_next {
        parts.queues.sync.wake(&uid);
    }
    Outcome::Done
}
