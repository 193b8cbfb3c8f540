//! Stops a pod.
//!
//! In the order of the other runtimes: preStop hooks at once; then SIGTERM to the main processes of regular
//! (and init) containers together, and of sidecars in turn; SIGKILL to all of a unit when the grace, which
//! may shrink at any moment, is over. The signals go through the service manager, which knows the unit's
//! processes; where it does not answer, the main process is signalled directly.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::time::{Instant, timeout};
use winddown_shared::{
    ContainerKind, Grace, Pod, PodStopped, PodUid, RuntimeError, StoppedContainer, error_chain,
};

use super::attempt::Attempt;
use super::units::{ServiceUnits, UnitError, Whom};
use super::{Context, adopt, hook};
use crate::process::hook::Handler;
use crate::process::order::Command;
use crate::process::pod::{PodEntry, PodState};
use crate::process::procfs::Process;
use crate::process::{caused, failed, launch};
use crate::stopping;

/// Ends all containers; resolves when none runs.
pub(crate) async fn stop<U: ServiceUnits>(
    context: &Arc<Context<U>>,
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
    }
    let last_call = stopping::last_call(&grace);
    // What runs is asked at once; what is only just starting is asked when it can be seen.
    let seen = begin(context, entry.uid(), &mut entry.lock());
    let end_all = async |targets: Vec<Target>| {
        let ends = targets
            .into_iter()
            .map(|target| end_one(context, entry, target, grace.clone(), last_call));
        join_all(ends).await.into_iter().collect::<Result<(), RuntimeError>>()
    };
    let late = async {
        starts_settled(context, entry).await?;
        adopt::look_again(context, entry).await?;
        let mut late = begin(context, entry.uid(), &mut entry.lock());
        late.retain(|target| !seen.iter().any(|seen| seen.attempt.unit == target.attempt.unit));
        end_all(late).await
    };
    let (early, late) = tokio::join!(end_all(seen.clone()), late);
    early.and(late)?;
    Ok(finish(&mut entry.lock()))
}

/// Ends one container that is to be started again.
pub(crate) async fn stop_to_restart<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    name: &str,
    grace: Grace,
) -> Result<(), RuntimeError> {
    let target = {
        let mut state = entry.lock();
        let mut targets = targets(context, entry.uid(), &state);
        targets.retain(|t| &*t.attempt.container == name);
        let Some(mut target) = targets.pop() else { return Ok(()) };
        let Some(run) = state.run(name, target.attempt.number) else { return Ok(()) };
        if run.signalled_at.is_some() || std::mem::replace(&mut run.ending, true) {
            return Ok(());
        }
        target.waits_for_others = false;
        target
    };
    end_one(context, entry, target, grace, Duration::ZERO).await
}

/// A container to end.
#[derive(Clone)]
struct Target {
    attempt: Attempt,
    /// A sidecar: its turn comes when those that may need it are gone.
    waits_for_others: bool,
    pre_stop: Option<(Handler, Option<Command>)>,
    signal: Signal,
}

/// Resolves when no start is under way.
async fn starts_settled<U>(context: &Context<U>, entry: &PodEntry) -> Result<(), RuntimeError> {
    let after = context.config.start_timeout + context.config.kill_timeout;
    let settled = entry.wait_for(|state| (state.starting == 0).then_some(()));
    timeout(after, settled).await.map_err(|_| {
        let what = format!("waiting for a start under way of pod {}", entry.uid());
        RuntimeError::Timeout { what, after }
    })
}

/// Notes what runs.
fn begin<U>(context: &Context<U>, uid: &PodUid, state: &mut PodState) -> Vec<Target> {
    let targets = targets(context, uid, state);
    let record = state.stop.get_or_insert_default();
    for target in &targets {
        record.add(&target.attempt.container);
    }
    targets
}

fn targets<U>(context: &Context<U>, uid: &PodUid, state: &PodState) -> Vec<Target> {
    let pod = state.pod.as_ref();
    let running = state.containers.iter().filter(|c| c.is_running());
    running
        .filter_map(|container| {
            let run = container.run.as_ref()?;
            let found = pod.and_then(|pod| launch::find(pod, &container.name));
            let spec = found.as_ref().map(|(spec, _)| *spec);
            let handler = spec.and_then(|c| {
                let pre_stop = c.lifecycle.as_ref()?.pre_stop.as_ref()?;
                Handler::of(pre_stop, c, &context.config.node)
            });
            let pre_stop = handler.map(|handler| {
                let command = pod.zip(found.as_ref()).and_then(|(pod, (spec, field))| {
                    launch::command(&context.config, pod, spec, field).ok()
                });
                (handler, command)
            });
            Some(Target {
                attempt: Attempt::new(&context.config, uid, &container.name, run.attempt),
                waits_for_others: container.kind == ContainerKind::Sidecar,
                // Asked before (an earlier stop was abandoned): it has had its hook.
                pre_stop: pre_stop.filter(|_| run.signalled_at.is_none()),
                signal: launch::stop_signal(spec),
            })
        })
        .collect()
}

/// Asks a container to end, once.
async fn signal<U: ServiceUnits>(context: &Context<U>, entry: &PodEntry, target: &Target) {
    let attempt = &target.attempt;
    {
        let mut state = entry.lock();
        let Some(run) = state.run(&attempt.container, attempt.number) else { return };
        if run.end.is_some() {
            return;
        }
        if let Some(asked) = run.signalled_at {
            // By an earlier stop, or by the agent before this one.
            if let Some(record) = &mut state.stop {
                record.signalled_at.get_or_insert(asked);
            }
            return;
        }
        let now = Instant::now();
        run.signalled_at = Some(now);
        if let Some(record) = &mut state.stop {
            record.signalled_at.get_or_insert(now);
        }
    }
    send(context, attempt, Whom::Main, target.signal).await;
    context.asked.take(attempt.dir.clone());
}

async fn end_one<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    mut target: Target,
    mut grace: Grace,
    last_call: Duration,
) -> Result<(), RuntimeError> {
    let pre_stop = target.pre_stop.take();
    let attempt = target.attempt.clone();
    let name = &attempt.container;
    let ended = entry.ended(name, attempt.number);
    tokio::pin!(ended);
    let ask = async {
        if let Some((handler, command)) = pre_stop {
            let place = (entry.uid(), &**name);
            // Dropping the hook ends what it runs.
            let run = async |left| {
                let pod = entry.lock().pod.clone();
                let command = command.unwrap_or_default();
                hook::run(context, place, pod.as_ref(), &handler, command, left).await
            };
            stopping::pre_stop(entry.uid(), name, grace.clone(), run).await;
        }
        if target.waits_for_others {
            stopping::turn(entry, name, grace.clone(), last_call).await;
        }
        signal(context, entry, &target).await;
        grace.over().await;
    };
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = ask => {}
    }
    if let Some(run) = entry.lock().run(name, attempt.number).filter(|run| run.end.is_none()) {
        run.forced = true;
    }
    let patience = context.config.kill_timeout / 4;
    for _ in 0..4 {
        send(context, &attempt, Whom::All, Signal::KILL).await;
        if timeout(patience, &mut ended).await.is_ok() {
            return Ok(());
        }
        // The word of its end may have been lost.
        match context.units.look(&attempt.unit).await {
            Ok(Some(view)) => context.board.see(&attempt.unit, view),
            Ok(None) => context.board.forget(&attempt.unit),
            Err(_) => {}
        }
    }
    Err(survives(context, &attempt).await)
}

/// Sends a signal through the service manager; to the main process alone where that does not answer.
async fn send<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &Attempt,
    whom: Whom,
    signal: Signal,
) {
    let Err(error) = context.units.signal(&attempt.unit, whom, signal.as_raw()).await else {
        return;
    };
    if matches!(error, UnitError::Silent { .. }) {
        tracing::warn!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
            "the container's main process is signalled without the service manager");
    }
    let pid = context.board.view(&attempt.unit).and_then(|view| view.main_pid);
    let proc_root = &context.config.proc_root;
    let Some(process) = pid.and_then(|pid| Process::open_any(pid).ok().flatten()) else { return };
    // Read after opening: a number that is another process's by now is not this unit's.
    if is_of_unit(proc_root, process.pid(), &attempt.unit) {
        let _ = process.signal(signal);
    }
}

fn is_of_unit(proc_root: &Path, pid: i32, unit: &str) -> bool {
    let cgroup = std::fs::read_to_string(proc_root.join(pid.to_string()).join("cgroup"));
    cgroup.is_ok_and(|text| text.lines().any(|line| line.split('/').any(|part| part == unit)))
}

async fn survives<U: ServiceUnits>(context: &Context<U>, attempt: &Attempt) -> RuntimeError {
    let Attempt { uid, container, unit, .. } = attempt;
    match context.units.look(unit).await {
        Err(error) => {
            caused(format!("whether container {container} of pod {uid} runs is not known"), error)
        }
        Ok(_) => {
            let what = format!("container {container} of pod {uid} survives SIGKILL");
            failed(format!("{what}: look at it with systemctl status '{unit}'"))
        }
    }
}

/// How it went, from what every stop of this pod noted.
fn finish(state: &mut PodState) -> PodStopped {
    let mut record = state.stop.take().unwrap_or_default();
    let stopped = record.finish(|name| {
        let run = state.container(name)?.run.as_ref()?;
        let exit_code = run.end.as_ref().map_or(137, |end| end.exit.exit_code);
        Some(StoppedContainer { name: Arc::clone(name), exit_code, forced: run.forced })
    });
    state.stop = Some(record);
    stopped
}
