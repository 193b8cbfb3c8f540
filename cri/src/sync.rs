//! Prepares what a pod needs before its containers are started: its volumes and its sandbox.

use std::sync::Arc;

use winddown_engine::unsupported::refused_or_ignored;
use winddown_engine::{stopping, sync};
use winddown_shared::{Pod, PodEventKind, RuntimeError, SyncedPod};

use super::pod::{self, PodEntry};
use super::{Context, blocking, failed, garbage, sandbox, shares, start, stop, support, volumes};

/// Makes one pass over the pod.
pub(super) async fn sync(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<SyncedPod, RuntimeError> {
    take(entry, pod)?;
    stop::started(entry, context.config.times.change).await?;
    stop::know_what_runs(context, entry).await?;
    prepare(context, entry, pod).await?;
    if has_lost_its_sandbox(entry) {
        ensure_sandbox(context, entry, pod).await?;
    }
    let again_in = sync::pass(context, entry, pod).await?;
    garbage::prune(context, entry);
    let ignored = entry.lock().own.ignored.clone();
    Ok(SyncedPod { status: context.status(entry), again_in, ignored })
}

/// Records the pod's current object.
fn take(entry: &PodEntry, pod: &Pod) -> Result<(), RuntimeError> {
    let mut state = entry.lock();
    if !state.pod.as_ref().is_some_and(|known| known.is_same_object(pod)) {
        let unsupported = support::check_supported(pod);
        state.own.ignored = refused_or_ignored(unsupported, pod::has_started(&state))?;
        state.own.prepared = false;
    }
    state.want(pod);
    Ok(())
}

/// Creates directories and volumes, once per run of the agent and per change of the pod.
async fn prepare(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<(), RuntimeError> {
    if entry.lock().own.prepared {
        return Ok(());
    }
    let turn = Arc::clone(&entry.lock().own.volumes);
    let turn = turn.lock_owned().await;
    let (config, owned) = (context.config.clone(), pod.clone());
    blocking(move || {
        let _turn = turn;
        volumes::prepare(&config, &owned)
    })
    .await?;
    entry.lock().own.prepared = true;
    Ok(())
}

/// Whether containers run without their sandbox, and so without their network and namespaces.
fn has_lost_its_sandbox(entry: &PodEntry) -> bool {
    let state = entry.lock();
    state.own.sandbox().is_none() && state.any_running()
}

/// Ensures that there is a sandbox to start containers in. Returns false if the pod is being stopped.
///
/// The creation continues if the future is dropped. It counts as a start, so that a stop knows what
/// exists.
pub(super) async fn ensure_sandbox(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<bool, RuntimeError> {
    if entry.lock().own.sandbox().is_some() {
        return Ok(true);
    }
    if !entry.lock().own.all.is_empty() {
        context.pods.record_event(entry, None, PodEventKind::SandboxChanged);
    }
    // Containers in a sandbox that is no longer ready are of no use.
    stop::end_all(context, entry, stopping::grace_of(pod)).await?;
    let Some(starting) = pod::Starting::begin(entry) else { return Ok(false) };
    let work = {
        let (context, entry, pod) = (Arc::clone(context), Arc::clone(entry), pod.clone());
        async move {
            let _starting = starting;
            let _turn = context.turn().await;
            if entry.lock().stopping {
                return Ok(false);
            }
            tokio::select! {
                made = sandbox::make(&context, &entry, &pod) => made?,
                () = start::given_up(&context, &entry) => return Ok(false),
            }
            shares::give(&context, &entry).await;
            let (config, ips) = (context.config.clone(), entry.lock().ips.clone());
            blocking(move || volumes::write_hosts(&config, &pod, &ips)).await?;
            Ok(true)
        }
    };
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(failed(format!("making the sandbox of pod {}: {error}", pod.label()))),
    }
}
