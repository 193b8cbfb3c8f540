//! Brings a pod's containers to what the plan says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use winddown_engine::plan::{self, ContainerRule};
use winddown_engine::stopping;
use winddown_engine::unsupported::refused_or_ignored;
use winddown_shared::{Grace, Pod, RuntimeError, SyncedPod, error_chain};

use super::pod::{self, PodEntry};
use super::{
    Context, blocking, failed, garbage, list, probe, sandbox, shares, start, stop, support, volumes,
};

/// One pass: starts what may start, until nothing more can be started without waiting.
pub(super) async fn sync(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<SyncedPod, RuntimeError> {
    take(entry, pod)?;
    settle(context, entry).await?;
    prepare(context, entry, pod).await?;
    let rules = plan::rules(pod);
    // Adopted containers have no prober yet.
    for rule in &rules {
        let is_adopted = entry.lock().container(&rule.name).is_some_and(|c| c.is_adopted());
        if is_adopted {
            probe::begin(context, entry, pod, &rule.name, true);
        }
    }
    if has_lost_its_sandbox(entry) {
        ensure_sandbox(context, entry, pod).await?;
    }
    let again_in = pass(context, entry, pod, &rules).await?;
    garbage::prune(context, entry);
    let ignored = entry.lock().own.ignored.clone();
    Ok(SyncedPod { status: context.status(entry), again_in, ignored })
}

/// Notes the pod as it is now.
fn take(entry: &PodEntry, pod: &Pod) -> Result<(), RuntimeError> {
    let mut state = entry.lock();
    if !state.pod.as_ref().is_some_and(|known| known.is_same_object(pod)) {
        let unsupported = support::check_supported(pod);
        state.own.ignored = refused_or_ignored(pod, unsupported, pod::has_started(&state))?;
        state.take_pod(pod);
        state.own.prepared = false;
    }
    state.stopping = false;
    state.stop = None;
    Ok(())
}

/// Waits for starts that an earlier call began, and asks the runtime what there is if that is not
/// known.
async fn settle(context: &Arc<Context>, entry: &Arc<PodEntry>) -> Result<(), RuntimeError> {
    let after = context.config.times.change;
    if timeout(after, winddown_engine::pod::started(entry)).await.is_err() {
        let what = format!("waiting for a start under way of pod {}", entry.uid());
        return Err(RuntimeError::Timeout { what, after });
    }
    if entry.lock().own.unsure {
        list::list_pod(context, entry).await?;
    }
    let strays = entry.lock().own.strays.clone();
    if !strays.is_empty() {
        stop::end_strays(context, entry, &strays).await?;
    }
    Ok(())
}

/// Makes directories and volumes, once for each agent's life and for each change of the pod.
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

/// Something runs and has lost its network and its namespaces.
fn has_lost_its_sandbox(entry: &PodEntry) -> bool {
    let state = entry.lock();
    state.own.sandbox().is_none() && state.any_running()
}

async fn pass(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    rules: &[ContainerRule],
) -> Result<Option<Duration>, RuntimeError> {
    let mut tried = vec![false; rules.len()];
    loop {
        let now = Instant::now();
        let next = {
            let state = entry.lock();
            plan::plan(rules, &state.seen(rules, now))
        };
        for &i in &next.stop {
            tell_outdated(entry, pod, &rules[i].name);
            end_failing(context, entry, pod, &rules[i].name);
        }
        let mut again_in = next.again_in;
        let mut sooner = |wait: Duration| again_in = Some(again_in.map_or(wait, |w| w.min(wait)));
        let mut fresh = Vec::new();
        for &i in &next.start {
            match entry.lock().trouble_until(i, now) {
                Some(wait) => sooner(wait),
                // One that ended again within this pass gets its turn in the next.
                None if tried[i] => sooner(Duration::ZERO),
                None => fresh.push(i),
            }
        }
        if fresh.is_empty() {
            return Ok(again_in);
        }
        for &i in &fresh {
            tried[i] = true;
        }
        if !ensure_sandbox(context, entry, pod).await? {
            return Ok(None);
        }
        let starts = fresh.iter().map(|&i| start::start(context, entry, pod, &rules[i].name));
        // All are awaited also when one fails: a container does not suffer for another.
        join_all(starts).await.into_iter().collect::<Result<(), RuntimeError>>()?;
    }
}

/// Sees to it that there is a sandbox to start containers in. False if the pod is being stopped.
///
/// The making goes on when the future is dropped, counted as a start, so that a stop knows what there
/// is.
async fn ensure_sandbox(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
) -> Result<bool, RuntimeError> {
    if entry.lock().own.sandbox().is_some() {
        return Ok(true);
    }
    // What runs in one that is not ready any more is of no use.
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

/// Says once of a run why it is ended, if that is its image.
fn tell_outdated(entry: &PodEntry, pod: &Pod, name: &str) {
    let mut state = entry.lock();
    let Some(container) = state.container(name).filter(|c| c.is_outdated()) else { return };
    if container.run.as_ref().is_some_and(|run| !run.ending) {
        let pod = pod.label();
        tracing::info!(%pod, "Container {name} definition changed, will be restarted (pod {pod})");
    }
}

/// Ends a container that is to be restarted, with its pod's grace, without holding up the pod.
fn end_failing(context: &Arc<Context>, entry: &Arc<PodEntry>, pod: &Pod, name: &Arc<str>) {
    let grace = Grace::fixed(stopping::grace_of(pod));
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let name = Arc::clone(name);
    tokio::spawn(async move {
        if let Err(error) = stop::stop_to_restart(&context, &entry, &name, grace).await {
            tracing::warn!(pod = %pod::title(&entry), container = %name, error = error_chain(&error), "cannot end a failing container");
            // It still fails: the next pass tries again.
            entry.announce();
        }
    });
}
