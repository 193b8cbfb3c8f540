//! Asks the runtime about all pods of this agent in one call, and about one pod after the other where the answer to that
//! does not fit into a message.
//!
//! Annotations are part of these answers, and pods choose them: 64 pods with as many as the API server allows are too
//! much for containerd.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use winddown_shared::{PodUid, RuntimeError, error_chain};

use super::client::{CallError, MAX_CONCURRENT_QUERIES};
use super::{CriContext, blocking, caused, dirs, health, labels};

/// Makes the call `ask`, whose argument are the labels of what the answer is to have, for everything that this agent
/// created. `what` says what for.
///
/// # Errors
/// The runtime did not answer, or had too much to say of a single pod.
pub(super) async fn ask_all<'a, T: Send + 'a>(
    context: &'a CriContext,
    what: &str,
    ask: impl Fn(HashMap<String, String>) -> BoxFuture<'a, Result<T, CallError>> + Send + Sync,
) -> Result<Vec<T>, RuntimeError> {
    let failed = |error: CallError| {
        health::note_unreachable(context, &error);
        error.during(what)
    };
    let error = match ask(labels::managed()).await {
        Err(error) if error.is_too_long() => error,
        answer => return answer.map(|answer| vec![answer]).map_err(failed),
    };
    if !context.listing.by_pod.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            error = error_chain(&error),
            "what the container runtime has of all pods does not fit into one answer: it is asked about one pod after \
             the other. A pod without a directory below {} is not seen. Pods with long annotations are the \
             cause",
            dirs::pods(&context.config).display()
        );
    }
    let uids = known(context).await?;
    let answers = uids.iter().map(|uid| ask(labels::of_pod(uid.as_str())));
    let answers: Vec<_> = answers.collect();
    stream::iter(answers).buffered(MAX_CONCURRENT_QUERIES).try_collect().await.map_err(failed)
}

/// The pods that this agent or an earlier one made something for: a pod's directory is there before its sandbox, and
/// goes after it.
async fn known(context: &CriContext) -> Result<HashSet<PodUid>, RuntimeError> {
    let config = context.config.clone();
    let what = format!("cannot read {}", dirs::pods(&config).display());
    let on_disk = blocking(move || dirs::uids(&config).map_err(|e| caused(what, e))).await?;
    let known = context.pods.all();
    Ok(known.iter().map(|entry| entry.uid().clone()).chain(on_disk).collect())
}
