//! Stops a pod.
//!
//! preStop hooks of all containers begin at once. Then the runtime is asked to end: regular (and init)
//! containers together; sidecars one after the other in reverse order, each when those that may need
//! it are gone. All of it is inside the grace, which may shrink at any moment: then the runtime is told
//! the shorter time at once, and when the grace is over it is told to kill.
//!
//! A sidecar whose turn does not come is asked a little before the end (the last quarter of the grace,
//! at most 2 s), so that it is not killed without having been asked.
//!
//! Between the call and the first `StopContainer` the runtime is asked nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use winddown_engine::plan;
use winddown_engine::stopping::{self, KILLED, was_killed};
use winddown_shared::{ContainerKind, Grace, Pod, PodStopped, RuntimeError, StoppedContainer};

use super::action::{self, Action};
use super::pod::{self, PodEntry, PodState};
use super::{Context, list};

mod container;

/// Ends all containers; resolves when none runs.
pub(super) async fn stop(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: Option<&Pod>,
    grace: Grace,
) -> Result<PodStopped, RuntimeError> {
    {
        let mut state = entry.lock();
        state.stopping = true;
        if let Some(pod) = pod {
            state.take_pod(pod);
        }
        state.stop.get_or_insert_default();
    }
    entry.bump();
    let ends = end_targets(context, entry, &grace, false);
    // What runs is asked at once; what is only just starting is asked when it can be seen.
    let late = async {
        starts_settled(context, entry).await?;
        if entry.lock().own.unsure {
            list::list_pod(context, entry).await?;
        }
        let strays = entry.lock().own.strays.clone();
        end_strays(context, entry, &strays).await?;
        end_targets(context, entry, &grace, true).await
    };
    let (first, second) = tokio::join!(ends, late);
    first.and(second)?;
    Ok(finish(&mut entry.lock()))
}

/// Ends one container that is to be started again.
pub(super) async fn stop_to_restart(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    name: &str,
    grace: Grace,
) -> Result<(), RuntimeError> {
    let target = {
        let mut state = entry.lock();
        let mut targets = targets(context, &state);
        targets.retain(|t| &*t.name == name);
        let Some(mut target) = targets.pop() else { return Ok(()) };
        let Some(run) = state.run(name, &target.id) else { return Ok(()) };
        // One that was to be killed and runs is not on its way out.
        let is_asked = run.signalled_at.is_some() && !run.forced;
        if is_asked || std::mem::replace(&mut run.ending, true) {
            return Ok(());
        }
        target.waits_for_others = false;
        target
    };
    let ended = end_one(context, entry, target, grace, Duration::ZERO).await;
    if ended.is_err()
        && let Some(run) = entry.lock().container(name).and_then(|c| c.run.as_mut())
    {
        // The next pass tries again.
        run.ending = false;
    }
    ended
}

/// Ends everything of a pod that is not being stopped: it lost its sandbox.
pub(super) async fn end_all(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    grace: Duration,
) -> Result<(), RuntimeError> {
    let names: Vec<Arc<str>> = {
        let state = entry.lock();
        let running = state.containers.iter().filter(|c| c.is_running());
        running.map(|c| Arc::clone(&c.name)).collect()
    };
    let ends = names.iter().map(|name| async {
        stop_to_restart(context, entry, name, Grace::fixed(grace)).await?;
        let id = entry.lock().container(name).and_then(|c| Some(Arc::clone(&c.run.as_ref()?.id)));
        if let Some(id) = id {
            pod::ended(entry, name, &id).await;
        }
        Ok(())
    });
    join_all(ends).await.into_iter().collect()
}

/// Ends containers that are no longer needed, without grace.
pub(super) async fn end_strays(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    strays: &[Arc<str>],
) -> Result<(), RuntimeError> {
    for id in strays {
        match context.client.stop_container(id, Duration::ZERO).await {
            Err(error) if !error.is_not_found() => {
                return Err(error.during(format!("ending container {id} of pod {}", entry.uid())));
            }
            _ => entry.lock().own.strays.retain(|known| known != id),
        }
    }
    Ok(())
}

/// A container to end.
struct Target {
    name: Arc<str>,
    id: Arc<str>,
    /// A sidecar: its turn comes when those that may need it are gone.
    waits_for_others: bool,
    pre_stop: Option<Action>,
}

/// Resolves when no start is under way. Starts know that the pod stops and give up soon.
async fn starts_settled(context: &Context, entry: &PodEntry) -> Result<(), RuntimeError> {
    let after = context.config.times.start_patience + context.config.times.kill;
    timeout(after, winddown_engine::pod::started(entry)).await.map_err(|_| {
        let what = format!("waiting for a start under way of pod {}", entry.uid());
        RuntimeError::Timeout { what, after }
    })
}

/// Ends what runs; with `unasked_only`, what an earlier look did not see.
async fn end_targets(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    grace: &Grace,
    unasked_only: bool,
) -> Result<(), RuntimeError> {
    let targets = {
        let mut state = entry.lock();
        let mut targets = targets(context, &state);
        let record = state.stop.get_or_insert_default();
        if unasked_only {
            targets.retain(|target| !record.names.contains(&target.name));
        }
        for target in &targets {
            record.add(&target.name);
        }
        targets
    };
    let last_call = stopping::last_call(grace);
    let ends =
        targets.into_iter().map(|target| end_one(context, entry, target, grace.clone(), last_call));
    // All are awaited also when one fails: its error must not keep another from its grace.
    join_all(ends).await.into_iter().collect()
}

fn targets(context: &Context, state: &PodState) -> Vec<Target> {
    let pod = state.pod.as_ref();
    let running = state.containers.iter().filter(|c| c.is_running());
    running
        .filter_map(|container| {
            let run = container.run.as_ref()?;
            let spec = match pod.and_then(|pod| plan::find(pod, &container.name)) {
                Some(found) => Some(found.container),
                None => container.found_spec.as_deref(),
            };
            let pre_stop = spec.and_then(|spec| {
                let hook = spec.lifecycle.as_ref()?.pre_stop.as_ref()?;
                Action::of_handler(hook, spec, &action::address(context, pod, &state.ips))
            });
            Some(Target {
                name: Arc::clone(&container.name),
                id: Arc::clone(&run.id),
                waits_for_others: container.kind == ContainerKind::Sidecar,
                // Asked before (an earlier stop was abandoned): it has had its hook.
                pre_stop: pre_stop.filter(|_| run.signalled_at.is_none()),
            })
        })
        .collect()
}

async fn end_one(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    mut target: Target,
    grace: Grace,
    last_call: Duration,
) -> Result<(), RuntimeError> {
    let hook = target.pre_stop.take();
    let ready = async {
        if let Some(hook) = hook {
            let run = |remaining| hook.run(context, &target.id, remaining);
            let grace = grace.clone();
            stopping::pre_stop(entry.uid(), &target.name, grace, last_call, run).await;
        }
        if target.waits_for_others {
            stopping::turn(entry, &target.name, grace.clone(), last_call).await;
        }
    };
    tokio::select! {
        () = pod::ended(entry, &target.name, &target.id) => return Ok(()),
        () = ready => {}
    }
    container::end(context, entry, &target.name, &target.id, grace).await
}

/// How it went, from what every stop of this pod noted.
fn finish(state: &mut PodState) -> PodStopped {
    let mut record = state.stop.take().unwrap_or_default();
    let stopped = record.finish(|name| {
        let run = state.container(name)?.run.as_ref()?;
        let exit = run.end.as_ref().map(|end| &end.exit);
        let exit_code = exit.map_or(KILLED, |exit| exit.exit_code);
        // One that ended by itself while it was about to be killed was not.
        let forced = run.forced && exit_code == KILLED || exit.is_some_and(was_killed);
        Some(StoppedContainer { name: Arc::clone(name), exit_code, forced })
    });
    state.stop = Some(record);
    stopped
}
