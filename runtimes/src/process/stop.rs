//! Stops a pod.
//!
//! preStop hooks of all containers begin at once. Then SIGTERM: regular (and init) containers
//! together; sidecars one after the other in reverse order, each when those that may need it are gone.
//! All of it is inside the grace, which may shrink at any moment; when it is over, SIGKILL goes to
//! everything that is left.
//!
//! A sidecar whose turn does not come gets its SIGTERM a little before the end (the last quarter of
//! the grace, at most 2 s), so that it is not killed without having been asked.
//!
//! Between the call and the first SIGTERM there is no system call but the signals.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::time::{Instant, timeout};
use winddown_shared::{
    ContainerKind, Grace, Pod, PodStopped, PodUid, RuntimeError, StoppedContainer,
};

use super::hook::{self, Handler};
use super::order::Command;
use super::pod::{PodEntry, PodState};
use super::procfs::{self, Process};
use super::{Context, failed, launch, paths};
use crate::stopping::{self, Containers};

/// How long a start under way may hold up a stop before its supervisor is killed.
const START_PATIENCE: Duration = Duration::from_millis(500);

/// Ends all containers; resolves when none runs.
pub(crate) async fn stop(
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
    }
    // What runs is asked at once; what is only just starting is asked when it can be seen.
    begin(context, &mut entry.lock());
    starts_settled(context, entry).await?;
    let targets = begin(context, &mut entry.lock());
    let last_call = stopping::last_call(&grace);
    let ends =
        targets.into_iter().map(|target| end_one(context, entry, target, grace.clone(), last_call));
    join_all(ends).await.into_iter().collect::<Result<(), RuntimeError>>()?;
    Ok(finish(&mut entry.lock()))
}

/// Ends one container that is to be started again.
pub(crate) async fn stop_to_restart(
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
        let Some(run) = state.run(name, target.attempt) else { return Ok(()) };
        if run.signalled_at.is_some() || std::mem::replace(&mut run.ending, true) {
            return Ok(());
        }
        target.waits_for_others = false;
        if target.pre_stop.is_none() {
            signal(&mut state, &target);
        }
        target
    };
    end_one(context, entry, target, grace, Duration::ZERO).await
}

/// A container to end.
struct Target {
    name: Arc<str>,
    attempt: u32,
    /// A sidecar: its turn comes when those that may need it are gone.
    waits_for_others: bool,
    pre_stop: Option<(Handler, Option<Command>)>,
    signal: Signal,
    cgroup: Option<PathBuf>,
    supervisor: Arc<Process>,
}

/// Resolves when no start is under way. A supervisor that does not answer is killed.
async fn starts_settled(context: &Context, entry: &PodEntry) -> Result<(), RuntimeError> {
    let after = context.config.kill_timeout;
    let deadline = Instant::now() + after;
    let settled = || entry.wait_for(|state| (state.starting == 0).then_some(()));
    while timeout(START_PATIENCE, settled()).await.is_err() {
        if Instant::now() >= deadline {
            let what = format!("waiting for a start under way of pod {}", entry.uid());
            return Err(RuntimeError::Timeout { what, after });
        }
        for supervisor in &entry.lock().launching {
            let _ = supervisor.signal(Signal::KILL);
        }
    }
    Ok(())
}

/// Notes what runs, and asks at once what need not wait for a hook or for its turn.
fn begin(context: &Context, state: &mut PodState) -> Vec<Target> {
    let targets = targets(context, state);
    let record = state.stop.get_or_insert_default();
    for target in &targets {
        record.add(&target.name);
    }
    for target in &targets {
        if !target.waits_for_others && target.pre_stop.is_none() {
            signal(state, target);
        }
    }
    targets
}

fn targets(context: &Context, state: &PodState) -> Vec<Target> {
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
                name: Arc::clone(&container.name),
                attempt: run.attempt,
                waits_for_others: container.kind == ContainerKind::Sidecar,
                // Asked before (an earlier stop was abandoned): it has had its hook.
                pre_stop: pre_stop.filter(|_| run.signalled_at.is_none()),
                signal: launch::stop_signal(spec),
                cgroup: run.cgroup.clone(),
                supervisor: Arc::clone(run.supervisor.as_ref()?),
            })
        })
        .collect()
}

/// Asks a container to end, once.
fn signal(state: &mut PodState, target: &Target) {
    let Some(run) = state.run(&target.name, target.attempt) else { return };
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
    if let Some(main) = &run.main {
        // An error means that it cannot be asked; it will be killed.
        let _ = main.signal(target.signal);
    }
    let now = Instant::now();
    run.signalled_at = Some(now);
    if let Some(record) = &mut state.stop {
        record.signalled_at.get_or_insert(now);
    }
}

fn attempt_dir(context: &Context, uid: &PodUid, target: &Target) -> PathBuf {
    paths::container(&context.config, uid, &target.name).join(target.attempt.to_string())
}

async fn end_one(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    mut target: Target,
    mut grace: Grace,
    last_call: Duration,
) -> Result<(), RuntimeError> {
    let hook = target.pre_stop.take();
    let ended = entry.ended(&target.name, target.attempt);
    tokio::pin!(ended);
    let ask = async {
        if let Some((handler, command)) = hook {
            // Dropping the hook kills what it runs.
            let run = |_| hook::run(context, &handler, command.unwrap_or_default());
            stopping::pre_stop(entry.uid(), &target.name, grace.clone(), run).await;
        }
        if target.waits_for_others {
            stopping::turn(entry, &target.name, grace.clone(), last_call).await;
        }
        signal(&mut entry.lock(), &target);
        context.asked.take(attempt_dir(context, entry.uid(), &target));
        grace.over().await;
    };
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = ask => {}
    }
    kill(entry, &target);
    let patience = context.config.kill_timeout;
    if timeout(patience / 4, &mut ended).await.is_ok() {
        return Ok(());
    }
    for _ in 0..3 {
        let left = kill_by_search(context, entry, &target).await;
        if timeout(patience / 4, &mut ended).await.is_ok() {
            return Ok(());
        }
        if left.is_empty() {
            // Only the supervisor is left, and it hangs (a dead disk): the container is gone.
            let _ = target.supervisor.signal(Signal::KILL);
        }
    }
    Err(survivors(context, entry, &target).await)
}

/// SIGKILL to the container's main process, and with a cgroup to all of it. Its supervisor, which
/// sees the end of the main process, kills everything else.
fn kill(entry: &PodEntry, target: &Target) {
    let mut state = entry.lock();
    let Some(run) = state.run(&target.name, target.attempt) else { return };
    if run.end.is_some() {
        return;
    }
    run.forced = true;
    if let Some(main) = &run.main {
        let _ = main.signal(Signal::KILL);
    }
    drop(state);
    if let Some(cgroup) = &target.cgroup {
        let _ = std::fs::write(cgroup.join("cgroup.kill"), b"1");
    }
}

/// Finds and kills what is left by all other means: the supervisor may be stopped or hung. The
/// supervisor itself is spared. Returns the pids that are still there.
async fn kill_by_search(context: &Arc<Context>, entry: &PodEntry, target: &Target) -> Vec<i32> {
    let (context, uid, name) = (Arc::clone(context), entry.uid().clone(), Arc::clone(&target.name));
    let supervisor = Arc::clone(&target.supervisor);
    let search = move || {
        let _ = supervisor.signal(Signal::CONT);
        for pid in remaining(&context, &supervisor, uid.as_str(), &name) {
            if let Ok(Some(process)) = Process::open_any(pid) {
                let _ = process.signal(Signal::KILL);
            }
        }
        remaining(&context, &supervisor, uid.as_str(), &name)
    };
    tokio::task::spawn_blocking(search).await.unwrap_or_default()
}

fn remaining(context: &Context, supervisor: &Process, uid: &str, name: &str) -> Vec<i32> {
    let proc_root = &context.config.proc_root;
    let mut left = procfs::descendants(proc_root, supervisor.pid());
    left.extend(procfs::marked(proc_root, uid, name));
    left.sort_unstable();
    left.dedup();
    left
}

async fn survivors(context: &Arc<Context>, entry: &PodEntry, target: &Target) -> RuntimeError {
    let (context, uid, name) = (Arc::clone(context), entry.uid().clone(), Arc::clone(&target.name));
    let supervisor = Arc::clone(&target.supervisor);
    let describe = move || {
        let mut left = remaining(&context, &supervisor, uid.as_str(), &name);
        if left.is_empty() {
            left.push(supervisor.pid());
        }
        let named = left.iter().map(|&pid| match procfs::stat(&context.config.proc_root, pid) {
            Ok(Some(stat)) => format!("{pid} (state {})", stat.state),
            _ => pid.to_string(),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        failed(format!("container {name} of pod {uid} survives SIGKILL: process {named}"))
    };
    let fallback = || failed(format!("container {} survives SIGKILL", target.name));
    tokio::task::spawn_blocking(describe).await.unwrap_or_else(|_| fallback())
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

impl Containers for PodState {
    fn containers(&self) -> impl Iterator<Item = (&str, ContainerKind, bool)> {
        self.containers.iter().map(|c| (&*c.name, c.kind, c.is_running()))
    }
}
