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
use tokio::time::timeout;
use winddown_engine::stopping;
use winddown_shared::{Grace, Pod, PodStopped, RuntimeError, error_chain};
use winddown_shim::procfs::Process;

use super::attempt::Attempt;
use super::units::{ServiceUnits, UnitError, Whom};
use super::{Context, adopt};
use crate::process::{caused, failed};
use crate::programs::ending::{self, Target};
use crate::programs::pod::{self, PodEntry, PodState};

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
    let seen = begin(context, &mut entry.lock());
    let end_all = async |targets: Vec<Target>| {
        let ends = targets
            .into_iter()
            .map(|target| end_one(context, entry, target, grace.clone(), last_call));
        join_all(ends).await.into_iter().collect::<Result<(), RuntimeError>>()
    };
    let late = async {
        starts_settled(context, entry).await?;
        adopt::look_again(context, entry).await?;
        let mut late = begin(context, &mut entry.lock());
        late.retain(|target| !seen.iter().any(|seen| seen.is_same_run(target)));
        end_all(late).await
    };
    let (early, late) = tokio::join!(end_all(seen.clone()), late);
    early.and(late)?;
    Ok(ending::finish(&mut entry.lock()))
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
fn begin<U>(context: &Context<U>, state: &mut PodState) -> Vec<Target> {
    let targets = ending::targets(&context.config, state);
    let record = state.stop.get_or_insert_default();
    for target in &targets {
        record.add(&target.name);
    }
    targets
}

/// Ends one container; a sidecar that waits for its turn is asked `last_call` before the end at the latest.
pub(crate) async fn end_one<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    target: Target,
    mut grace: Grace,
    last_call: Duration,
) -> Result<(), RuntimeError> {
    let attempt = Attempt::new(&context.config, entry.uid(), &target.name, target.attempt);
    let ended = pod::ended(entry, &target.name, target.attempt);
    tokio::pin!(ended);
    let ask = async {
        ending::due(context, entry, &target, &grace, last_call).await;
        let is_first = ending::ask_now(&mut entry.lock(), &target);
        if is_first {
            send(context, &attempt, Whom::Main, target.signal).await;
            context.asked.take(attempt.dir.clone());
        }
        grace.over().await;
    };
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = ask => {}
    }
    ending::kill_now(&mut entry.lock(), &target);
    let patience = context.config.kill_timeout / 4;
    for _ in 0..4 {
        send(context, &attempt, Whom::All, Signal::KILL).await;
        if timeout(patience, &mut ended).await.is_ok() {
            return Ok(());
        }
        // The word of its end may have been lost.
        match context.units.look(&attempt.unit).await {
            Ok(Some(view)) => context.unit_cache.see(&attempt.unit, view),
            Ok(None) => context.unit_cache.forget(&attempt.unit),
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
    let pid = context.unit_cache.view(&attempt.unit).and_then(|view| view.main_pid);
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
