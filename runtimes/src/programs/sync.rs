//! Brings a pod's containers to what the plan says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use winddown_engine::{plan, status, stopping};
use winddown_shared::{Grace, Pod, RuntimeError, SyncedPod, error_chain};

use super::hook::{self, Handler};
use super::pod::{PodEntry, Starting};
use super::{Context, Driver, launch, probe, start, stop};

/// One pass: starts what may start, until nothing more can be started without waiting.
pub(super) async fn sync<D: Driver>(
    context: &Arc<Context<D>>,
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
    // Adopted containers have no prober yet.
    for rule in &rules {
        let is_adopted = entry.lock().container(&rule.name).is_some_and(|c| c.is_adopted());
        if is_adopted {
            probe::begin(context, entry, pod, &rule.name, true)?;
        }
    }
    let mut tried = vec![false; rules.len()];
    let again_in = loop {
        let next = plan::plan(&rules, &entry.lock().seen(&rules, Instant::now()));
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
        join_all(starts).await.into_iter().collect::<Result<(), RuntimeError>>()?;
    };
    let status = status::status(&entry.lock(), D::SCHEME);
    Ok(SyncedPod { status, again_in, ..SyncedPod::default() })
}

async fn start_one<D: Driver>(
    context: &Arc<Context<D>>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let Some(starting) = Starting::begin(entry) else { return Ok(()) };
    start::start(context, starting, pod, name).await?;
    let Some(found) = plan::find(pod, name) else { return Ok(()) };
    let post_start = found.container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    let config = &context.config;
    let well = match post_start.and_then(|h| Handler::of(h, found.container, &config.node)) {
        Some(handler) => {
            let command = launch::command(config, pod, &found)?;
            let outcome = hook::run(context, (pod, name), &handler, &command, None).await;
            if let Err(error) = &outcome {
                tracing::warn!(pod = %pod.label(), container = %name, error = error_chain(&error), "the postStart hook failed");
            }
            outcome.is_ok()
        }
        None => true,
    };
    probe::begin(context, entry, pod, name, well)
}

/// Ends a container that is to be restarted, with its pod's grace, without holding up the pod.
fn end_failing<D: Driver>(
    context: &Arc<Context<D>>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
) {
    let grace = Grace::fixed(stopping::grace_of(pod));
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let name = Arc::clone(name);
    tokio::spawn(async move {
        if let Err(error) = stop::stop_to_restart(&context, &entry, &name, grace).await {
            tracing::warn!(uid = %entry.uid(), container = %name, error = error_chain(&error), "cannot end a failing container");
            // It still fails: the next pass tries again.
            entry.announce();
        }
    });
}
