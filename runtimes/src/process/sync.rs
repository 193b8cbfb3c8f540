//! Brings a pod's containers to what the plan says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;
use winddown_shared::{Grace, Pod, RuntimeError, SyncedPod};

use super::hook::{self, Handler};
use super::pod::{PodEntry, Starting};
use super::{Context, launch, start, status, stop};
use crate::plan;

/// The grace of a pod that does not name one, as the API server sets it.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// One pass: starts what may start, until nothing more can be started without waiting.
pub(crate) async fn sync(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<SyncedPod, RuntimeError> {
    let rules = plan::rules(pod);
    {
        let mut state = entry.lock();
        state.stopping = false;
        state.stop = None;
        state.take_pod(pod);
    }
    let mut tried = vec![false; rules.len()];
    let again_in = loop {
        let next = plan::plan(&rules, &entry.lock().seen(rules.len(), Instant::now()));
        for &i in &next.stop {
            end_failing(context, entry, pod, &rules[i].name);
        }
        let fresh: Vec<usize> = next.start.iter().copied().filter(|&i| !tried[i]).collect();
        if fresh.is_empty() {
            // One that ended again within this pass gets its turn in the next.
            break if next.start.is_empty() { next.again_in } else { Some(Duration::ZERO) };
        }
        for &i in &fresh {
            tried[i] = true;
        }
        let starts = fresh.iter().map(|&i| start_one(context, entry, pod, &rules[i].name));
        // All are awaited also when one fails: a container does not suffer for another.
        try_join_all(join_all(starts).await.into_iter().map(std::future::ready)).await?;
    };
    Ok(SyncedPod { status: status::status(&entry.lock()), again_in })
}

async fn start_one(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let Some(starting) = Starting::begin(entry) else { return Ok(()) };
    start::start(context, starting, pod, name).await?;
    let Some((container, field)) = launch::find(pod, name) else { return Ok(()) };
    let post_start = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    let well = match post_start.and_then(Handler::of) {
        Some(handler) => {
            let command = launch::command(&context.config, pod, container, &field)?;
            hook::run(context, &handler, command).await.is_ok()
        }
        None => true,
    };
    let mut state = entry.lock();
    if let Some(run) = state.container(name).and_then(|c| c.run.as_mut()) {
        run.failing = !well;
        run.started = well;
        run.ready = well;
    }
    Ok(())
}

/// Ends a container that is to be restarted, with its pod's grace, without holding up the pod.
fn end_failing(context: &Arc<Context>, entry: &Arc<PodEntry>, pod: &Pod, name: &Arc<str>) {
    let grace = Grace::fixed(pod.own_grace().unwrap_or(DEFAULT_GRACE));
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let name = Arc::clone(name);
    tokio::spawn(async move {
        if let Err(error) = stop::stop_to_restart(&context, &entry, &name, grace).await {
            tracing::warn!(pod = %entry.uid(), container = %name, %error, "cannot end a failing container");
        }
    });
}
