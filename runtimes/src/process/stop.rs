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

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::time::{Instant, timeout};
use winddown_engine::stopping;
use winddown_shared::{Grace, Pod, PodStopped, PodUid, RuntimeError};
use winddown_shim::members;
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::Identity;

use super::{Context, failed};
use crate::programs::ending::{self, Target};
use crate::programs::paths;
use crate::programs::pod::{self, PodEntry, PodState};

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
    Ok(ending::finish(&mut entry.lock()))
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
    let targets = ending::targets(&context.config, state);
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

/// Asks a container to end, once.
fn signal(state: &mut PodState, target: &Target) {
    if !ending::ask_now(state, target) {
        return;
    }
    let run = state.run(&target.name, target.attempt);
    if let Some(main) = run.and_then(|run| run.main.as_ref()) {
        // An error means that it cannot be asked; it will be killed.
        let _ = main.signal(target.signal);
    }
}

fn attempt_dir(context: &Context, uid: &PodUid, target: &Target) -> PathBuf {
    paths::container(&context.config, uid, &target.name).join(target.attempt.to_string())
}

/// Ends one container; a sidecar that waits for its turn is asked `last_call` before the end at the latest.
pub(crate) async fn end_one(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    target: Target,
    mut grace: Grace,
    last_call: Duration,
) -> Result<(), RuntimeError> {
    let Some(held) = Held::of(entry, &target) else { return Ok(()) };
    let ended = pod::ended(entry, &target.name, target.attempt);
    tokio::pin!(ended);
    let ask = async {
        ending::due(context, entry, &target, &grace, last_call).await;
        signal(&mut entry.lock(), &target);
        context.asked.take(attempt_dir(context, entry.uid(), &target));
        grace.over().await;
    };
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = ask => {}
    }
    kill(entry, &target, &held);
    let patience = context.config.kill_timeout;
    if timeout(patience / 4, &mut ended).await.is_ok() {
        return Ok(());
    }
    for _ in 0..3 {
        let is_alone = kill_by_search(context, entry, &target.name, &held).await;
        if timeout(patience / 4, &mut ended).await.is_ok() {
            return Ok(());
        }
        if is_alone {
            // Only the supervisor is left, and it hangs (a dead disk): the container is gone.
            let _ = held.supervisor.signal(Signal::KILL);
        }
    }
    Err(survivors(context, entry, &target.name, &held).await)
}

/// What a container that runs is held by.
struct Held {
    supervisor: Arc<Process>,
    cgroups: Vec<PathBuf>,
}

impl Held {
    /// None if it has ended.
    fn of(entry: &PodEntry, target: &Target) -> Option<Self> {
        let mut state = entry.lock();
        let run = state.run(&target.name, target.attempt).filter(|run| run.end.is_none())?;
        let supervisor = Arc::clone(run.supervisor.as_ref()?);
        Some(Self { supervisor, cgroups: run.cgroups.clone() })
    }
}

/// SIGKILL to the container's main process, and with a cgroup to all of it. Its supervisor, which
/// sees the end of the main process, kills everything else.
fn kill(entry: &PodEntry, target: &Target, held: &Held) {
    {
        let mut state = entry.lock();
        if !ending::kill_now(&mut state, target) {
            return;
        }
        let run = state.run(&target.name, target.attempt);
        if let Some(main) = run.and_then(|run| run.main.as_ref()) {
            let _ = main.signal(Signal::KILL);
        }
    }
    members::kill(&held.cgroups);
}

/// Finds and kills what is left by all other means: the supervisor may be stopped or hung. The
/// supervisor itself is spared. True if nothing but that is left.
async fn kill_by_search(
    context: &Arc<Context>,
    entry: &PodEntry,
    name: &Arc<str>,
    held: &Held,
) -> bool {
    let (context, uid, name) = (Arc::clone(context), entry.uid().clone(), Arc::clone(name));
    let supervisor = Arc::clone(&held.supervisor);
    let search = move || {
        let _ = supervisor.signal(Signal::CONT);
        let remaining = || remaining(&context, &supervisor, uid.as_str(), &name);
        for seen in remaining().into_iter().flatten() {
            // Opened by what was seen: a pid that is used again meanwhile is another process's.
            if let Ok(Some(process)) = Process::open(&context.config.proc_root, seen) {
                let _ = process.signal(Signal::KILL);
            }
        }
        remaining().is_ok_and(|left| left.is_empty())
    };
    tokio::task::spawn_blocking(search).await.unwrap_or_default()
}

fn remaining(
    context: &Context,
    supervisor: &Process,
    uid: &str,
    name: &str,
) -> io::Result<Vec<Identity>> {
    let proc_root = &context.config.proc_root;
    let mut left = procfs::descendants(proc_root, supervisor.pid())?;
    left.extend(procfs::marked(proc_root, uid, name)?);
    left.sort_unstable();
    left.dedup();
    Ok(left)
}

async fn survivors(
    context: &Arc<Context>,
    entry: &PodEntry,
    container: &Arc<str>,
    held: &Held,
) -> RuntimeError {
    let (context, uid, name) = (Arc::clone(context), entry.uid().clone(), Arc::clone(container));
    let supervisor = Arc::clone(&held.supervisor);
    let describe = move || {
        let left = remaining(&context, &supervisor, uid.as_str(), &name).unwrap_or_default();
        let mut left: Vec<i32> = left.into_iter().map(|seen| seen.pid).collect();
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
    let fallback = || failed(format!("container {container} survives SIGKILL"));
    tokio::task::spawn_blocking(describe).await.unwrap_or_else(|_| fallback())
}
