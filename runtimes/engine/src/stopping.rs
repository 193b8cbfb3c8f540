//! Stops a pod, for all runtimes.
//!
//! The preStop hooks of all containers start at once. Then the containers are sent their stop signals: regular and init
//! containers together; sidecars one after the other in reverse order, each when the containers that may need it have
//! exited. All of this is within the grace period, which may be shortened at any time; when it is over, all remaining
//! containers are killed.
//!
//! A container that still waits, a sidecar for its turn or one for its hook, is sent its stop signal at the
//! last call (see `last_call.rs`), so that it is not killed without a stop signal.
//!
//! Before all that, the pod's termination notice is written; the stop waits for it for 100 ms at most.
//!
//! Running containers are stopped without waiting for anything first, not even for a start in progress.

mod last_call;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use winddown_shared::display::quoted;
use winddown_shared::{
    ContainerExit, ContainerKind, EndCause, Grace, Pod, PodEventKind, PodStopped, ProbeKind,
    RuntimeError, StoppedContainer, WallTime, error_chain,
};

use crate::action::Action;
use crate::action_error::ActionError;
use crate::container_plan;
use crate::disk_notes::RunNote;
use crate::driver::{self, Driver, StopTarget, act};
use crate::entry::StateEntry;
use crate::pod::{self, EnginePodState, RunScope};
use crate::stopping::last_call::LastCall;

/// The exit code of a container that was killed with SIGKILL.
pub const KILLED: i32 = 137;

/// Stops all containers of a pod; resolves when none runs.
///
/// # Errors
/// A container still runs, or it is unknown whether it does.
pub async fn stop<D: Driver>(
    driver: &Arc<D>,
    entry: &driver::Entry<D>,
    pod: Option<&Pod>,
    grace: Grace,
) -> Result<PodStopped, RuntimeError> {
    {
        let mut state = entry.lock();
        state.stopping = true;
        state.ending = Some(grace.clone());
        if let Some(pod) = pod {
            state.take_pod(pod);
        }
    }
    entry.bump();
    let of_first_signal = grace.clone().at_least(Grace::SHORTEST);
    let last_call = LastCall::of(&of_first_signal);
    let notices = driver.termination_notices();
    notices.tell(entry).await;
    let seen = begin(driver, entry);
    let end_all = async |targets: Vec<StopTarget>, of_first_signal: Grace| {
        let ends = targets.into_iter().map(|target| {
            let grace = if target.is_asked { &grace } else { &of_first_signal };
            end_one(driver, entry, target, grace.clone(), last_call)
        });
        // All are awaited even if one fails: its error must not cut short the grace period of another.
        join_all(ends).await.into_iter().collect::<Result<(), RuntimeError>>()
    };
    // Containers that are only starting are stopped when they are known.
    let late = async {
        driver.settle(entry).await?;
        let mut late = begin(driver, entry);
        late.retain(|target| !seen.iter().any(|seen| seen.id == target.id));
        // They have that time from now, however long the settling took.
        end_all(late, of_first_signal.clone().at_least(Grace::SHORTEST)).await
    };
    let (early, late) = tokio::select! {
        ended = async { tokio::join!(end_all(seen.clone(), of_first_signal.clone()), late) } => ended,
        never = notices.follow(entry, grace.clone()) => match never {},
    };
    early.and(late)?;
    Ok(finish(&mut entry.lock()))
}

/// Stops all containers of a pod that lost its sandbox and starts over, in their order. Resolves when none runs.
///
/// # Errors
/// A container still runs, or it is unknown whether it does.
pub async fn stop_to_start_over<D: Driver>(
    driver: &Arc<D>,
    entry: &driver::Entry<D>,
    grace: Duration,
) -> Result<(), RuntimeError> {
    let running: Vec<_> =
        targets(&entry.lock()).into_iter().map(|one| (one.name, one.id)).collect();
    let ends = running.iter().map(async |(name, id)| {
        let (why, grace) = (EndCause::Pod, Grace::fixed(grace));
        stop_one_to_restart(driver, entry, name, (why, true), grace).await?;
        // It may have been about to be restarted.
        pod::ended(entry, name, id).await;
        Ok(())
    });
    join_all(ends).await.into_iter().collect()
}

/// Stops one container that has to be restarted. Does nothing if that is in progress, or if a stop of its pod already
/// sent it the stop signal. A signal that an earlier agent sent, or an attempt that failed, is followed up.
///
/// # Errors
/// The container still runs, or it is unknown whether it does. The next call tries again.
pub async fn stop_to_restart<D: Driver>(
    driver: &Arc<D>,
    entry: &driver::Entry<D>,
    name: &str,
    why: EndCause,
    grace: Grace,
) -> Result<(), RuntimeError> {
    stop_one_to_restart(driver, entry, name, (why, false), grace).await
}

/// Stops one container; `in_order`: a sidecar waits for its turn.
async fn stop_one_to_restart<D: Driver>(
    driver: &Arc<D>,
    entry: &driver::Entry<D>,
    name: &str,
    (why, in_order): (EndCause, bool),
    grace: Grace,
) -> Result<(), RuntimeError> {
    let (target, failure) = {
        let mut state = entry.lock();
        let mut targets = targets(&state);
        targets.retain(|t| &*t.name == name);
        let Some(mut target) = targets.pop() else { return Ok(()) };
        let stopping = state.stopping;
        let Some(run) = state.run(name, &target.id) else { return Ok(()) };
        // A run that survived SIGKILL is not about to exit.
        let is_asked = stopping && run.stop_request.is_some() && !run.forced;
        if is_asked || std::mem::replace(&mut run.ending, true) {
            return Ok(());
        }
        run.cut_short |= why != EndCause::PostStart;
        target.waits_for_others &= in_order;
        (target, run.probe_state.failure())
    };
    if why != EndCause::Pod {
        let (pod, text) = (pod::title(entry), why.text(name));
        match failure.and_then(|(_, output)| output) {
            Some(output) => tracing::info!(%pod, "{text} (pod {pod}): {}", quoted(&output)),
            None => tracing::info!(%pod, "{text} (pod {pod})"),
        }
    }
    driver.pods().record_event(entry, Some(name), PodEventKind::Killing(why));
    let grace = if target.is_asked { grace } else { grace.at_least(Grace::SHORTEST) };
    let (id, last_call) = (Arc::clone(&target.id), LastCall::of(&grace));
    let ended = end_one(driver, entry, target, grace, last_call).await;
    if ended.is_err()
        && let Some(run) = entry.lock().run(name, &id)
    {
        run.ending = false;
    }
    ended
}

/// Records and reports the running containers.
fn begin<D: Driver>(driver: &Arc<D>, entry: &driver::Entry<D>) -> Vec<StopTarget> {
    let (targets, new) = {
        let mut state = entry.lock();
        let targets = targets(&state);
        let record = state.stop.get_or_insert_default();
        let new = targets.iter().map(|target| &target.name).filter(|name| record.add(name));
        let new: Vec<_> = new.cloned().collect();
        (targets, new)
    };
    for name in new {
        driver.pods().record_event(entry, Some(&name), PodEventKind::Killing(EndCause::Pod));
    }
    targets
}

/// All running containers.
fn targets<B: RunScope>(state: &EnginePodState<B>) -> Vec<StopTarget> {
    let running = state.containers.iter().filter(|c| c.is_running());
    let target = |container: &pod::Container<B>| {
        let run = container.run.as_ref()?;
        let pre_stop = state.spec_of(container).and_then(|spec| {
            let hook = spec.lifecycle.as_ref()?.pre_stop.as_ref()?;
            Action::of_handler(hook, &spec)
        });
        Some(StopTarget {
            name: Arc::clone(&container.name),
            id: Arc::clone(&run.id),
            attempt: run.attempt,
            waits_for_others: container.kind == ContainerKind::Sidecar,
            // Signalled before (an earlier stop was abandoned, or the agent restarted): its hook has already run.
            pre_stop: pre_stop.filter(|_| run.stop_request.is_none() && !run.pre_stop.is_over),
            is_asked: run.stop_request.is_some(),
        })
    };
    running.filter_map(target).collect()
}

/// Stops one container; it is sent the stop signal at the last call of the grace period at the latest.
async fn end_one<D: Driver>(
    driver: &Arc<D>,
    entry: &driver::Entry<D>,
    target: StopTarget,
    grace: Grace,
    last_call: LastCall,
) -> Result<(), RuntimeError> {
    let (name, id) = (&*target.name, &*target.id);
    let due = async {
        if let Some(hook) = &target.pre_stop {
            // Boxed: few containers have a hook, and every stop would have room for one.
            let ran = run_hook(driver, entry, (name, id), hook, (grace.clone(), last_call));
            Box::pin(ran).await;
        }
        if target.waits_for_others {
            turn(entry, name, grace.clone(), last_call).await;
        }
    };
    tokio::select! {
        () = pod::ended(entry, name, id) => return Ok(()),
        () = due => {}
    }
    if entry.lock().run(name, id).is_some_and(|run| run.cut_short) {
        // Not sooner: the next agent may find it well and let it go on.
        driver.note(entry, (name, target.attempt), RunNote::CutShort, true);
    }
    driver.end(entry, &target, last_call.grace_of_signal(grace)).await
}

/// Runs the preStop hook of a container's run (its name and its id). If it runs already, because the container was
/// being restarted when its pod was asked to stop, waits for that instead, until the last call.
async fn run_hook<D: Driver>(
    driver: &Arc<D>,
    entry: &driver::Entry<D>,
    (name, id): (&str, &str),
    hook: &Action,
    (grace, last_call): (Grace, LastCall),
) {
    let turn = Arc::new(());
    let is_first = entry.lock().run(name, id).is_some_and(|run| run.begin_hook(&turn));
    if !is_first {
        tokio::select! {
            () = pod::hook_over(entry, name, id) => {}
            () = last_call.wait(grace) => {}
        }
        return;
    }
    let run = async |time| {
        let done = act(driver, entry, (name, id), hook, time).await;
        if done.is_err() {
            driver.pods().record_event(entry, Some(name), PodEventKind::PreStopFailed);
        }
        done.map(drop)
    };
    let done = pre_stop(&pod::title(entry), name, grace, last_call, run).await;
    {
        let mut state = entry.lock();
        if let Some(run) = state.run(name, id) {
            run.pre_stop.is_over = true;
        }
        if let (Err(why), Some(record)) = (done, &mut state.stop) {
            record.hook_failed(name, &why);
        }
    }
    entry.bump();
}

/// Summarizes the stop from the record of all stops of this pod.
pub(crate) fn finish<B: RunScope>(state: &mut EnginePodState<B>) -> PodStopped {
    let mut record = state.stop.take().unwrap_or_default();
    let stopped = record.finish(|name| {
        let run = state.container(name)?.run.as_ref()?;
        let exit = run.end.as_ref().map(|end| (end.exit.exit_code, &*end.exit.reason));
        let (exit_code, reason) = exit.unwrap_or((KILLED, ContainerExit::UNKNOWN));
        // By any sender: an earlier agent's kill may take effect only now.
        let mut stopped = StoppedContainer::from_exit_code(Arc::clone(name), exit_code, reason);
        stopped.forced |= run.forced;
        Some(stopped)
    });
    state.stop = Some(record);
    stopped
}

/// The exit of a container whose end was not observed; `message` says so.
pub fn unknown_end(message: &str, started_at: Option<WallTime>, now: WallTime) -> ContainerExit {
    let mut exit = ContainerExit::new(KILLED);
    exit.reason = ContainerExit::UNKNOWN.into();
    message.clone_into(&mut exit.message);
    (exit.started_at, exit.finished_at) = (started_at, Some(now));
    exit
}

/// The grace period of a pod's containers.
pub fn grace_of(pod: &Pod) -> Duration {
    pod.termination_grace_period().unwrap_or(Grace::DEFAULT)
}

/// The grace period of a container that is restarted for this reason: its pod's, unless the failed probe has its own.
pub(crate) fn grace_of_restart(pod: &Pod, name: &str, why: EndCause) -> Duration {
    let found = container_plan::find(pod, name);
    let probe = found.as_ref().and_then(|found| match why {
        EndCause::Probe(ProbeKind::Liveness) => found.container.liveness_probe.as_ref(),
        EndCause::Probe(ProbeKind::Startup) => found.container.startup_probe.as_ref(),
        _ => None,
    });
    let own = probe.and_then(|probe| u64::try_from(probe.termination_grace_period_seconds?).ok());
    own.map_or_else(|| grace_of(pod), Duration::from_secs)
}

/// Resolves when a sidecar may be stopped: neither a regular or init container runs, nor a sidecar that started after
/// it; or at the last call. Cancel-safe.
async fn turn<B: RunScope>(
    entry: &StateEntry<EnginePodState<B>>,
    name: &str,
    grace: Grace,
    last_call: LastCall,
) {
    let is_free = |state: &EnginePodState<B>| {
        let all = state.containers.iter();
        !is_needed(name, all.map(|c| (&*c.name, c.kind, c.is_running())))
    };
    tokio::select! {
        () = entry.wait_for(|state| is_free(state).then_some(())) => {}
        () = last_call.wait(grace) => {}
    }
}

/// Whether a sidecar must not be stopped yet: a regular or init container runs, or a sidecar that comes after it.
/// `containers` are all containers of the pod in the spec's order: name, kind, whether it runs.
fn is_needed<'a>(
    name: &str,
    containers: impl IntoIterator<Item = (&'a str, ContainerKind, bool)>,
) -> bool {
    let mut is_later = false;
    containers.into_iter().any(|(other, kind, runs)| {
        if other == name {
            is_later = true;
            return false;
        }
        let counts = is_later || kind != ContainerKind::Sidecar;
        runs && counts && kind != ContainerKind::Ephemeral
    })
}

/// Runs a container's preStop hook until the last call: the container must get SIGTERM before SIGKILL, however long its
/// hook takes. `run` is given the time it has; its future is dropped when the grace period is shortened and the last
/// call comes earlier.
///
/// # Errors
/// The hook failed or did not end in time: why, for the report.
async fn pre_stop(
    pod: &str,
    container: &str,
    grace: Grace,
    last_call: LastCall,
    run: impl AsyncFnOnce(Duration) -> Result<(), ActionError>,
) -> Result<(), String> {
    let time = last_call.remaining(&grace);
    if time.is_zero() {
        return Err("no time was left for it".to_owned());
    }
    tokio::select! {
        biased;
        () = last_call.wait(grace.clone()) => {
            let taken = last_call.taken(&grace);
            tracing::warn!(%pod, container, taken, "the preStop hook did not finish in time");
            Err(format!("it took {taken}"))
        }
        outcome = run(time) => outcome.map_err(|error| {
            tracing::warn!(%pod, container, error = error_chain(&error), "the preStop hook failed");
            error.output()
        }),
    }
}

#[cfg(test)]
mod tests {
    use ContainerKind::{Init, Regular, Sidecar};
    use tokio::time::Instant;
    use winddown_shared::KillReason;

    use super::*;

    #[test]
    fn a_sidecar_is_needed_by_all_but_the_sidecars_before_it() {
        let needed = |running: &[&str]| {
            let all = [
                ("init", Init),
                ("early", Sidecar),
                ("proxy", Sidecar),
                ("late", Sidecar),
                ("main", Regular),
            ];
            is_needed("proxy", all.map(|(name, kind)| (name, kind, running.contains(&name))))
        };
        for (running, expected) in [
            (&["proxy"][..], false),
            (&["proxy", "early"], false),
            (&["proxy", "late"], true),
            (&["proxy", "main"], true),
            (&["proxy", "init"], true),
        ] {
            assert_eq!(needed(running), expected, "{running:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_is_over_when_it_is_done_or_at_the_last_call_of_the_grace_however_that_came() {
        let (pod, secs) = ("default/web", Duration::from_secs);
        let took = async |grace: Grace, length: Duration| {
            let grace = grace.with_reason(KillReason::Shutdown);
            let (began, last_call) = (Instant::now(), LastCall::of(&grace));
            let run = async |left| {
                tokio::time::sleep(length.min(left)).await;
                Err(ActionError::Timeout)
            };
            let failed = pre_stop(pod, "main", grace, last_call, run).await;
            assert!(failed.is_err(), "it is not known that its hook failed");
            began.elapsed()
        };
        assert_eq!(took(Grace::fixed(secs(30)), secs(3)).await, secs(3));
        // SIGTERM comes before SIGKILL.
        assert_eq!(took(Grace::fixed(secs(30)), secs(60)).await, secs(28));
        assert_eq!(took(Grace::fixed(secs(2)), secs(60)).await, Duration::from_millis(1500));
        let (sender, grace) = Grace::until(Instant::now() + secs(30));
        let shorter = async {
            tokio::time::sleep(secs(1)).await;
            sender.shorten_to(Instant::now() + secs(5));
        };
        let (took_shortened, ()) = tokio::join!(took(grace.clone(), secs(60)), shorter);
        assert_eq!(took_shortened, secs(4));
        tokio::time::sleep(secs(2)).await;
        assert_eq!(took(grace, secs(60)).await, Duration::ZERO, "nothing is left of it");
    }
}
