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
//! What runs is asked before anything is waited for, also before a start that is under way.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use winddown_engine::{pod, stopping};
use winddown_shared::{Grace, Pod, PodStopped, RuntimeError};

use super::ending::{self, Target};
use super::pod::{PodEntry, PodState};
use super::{Context, Driver, paths};

#[cfg(test)]
mod tests;

/// How often a container is killed before it counts as one that survives SIGKILL.
const ROUNDS: u32 = 4;

/// Ends all containers; resolves when none runs.
pub(super) async fn stop<D: Driver>(
    context: &Arc<Context<D>>,
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
    let seen = begin(context, &mut entry.lock());
    let end_all = async |targets: Vec<Target>| {
        let ends = targets
            .into_iter()
            .map(|target| end_one(context, entry, target, grace.clone(), last_call));
        join_all(ends).await.into_iter().collect::<Result<(), RuntimeError>>()
    };
    // What is only just starting is asked when it can be seen.
    let late = async {
        D::settle(context, entry).await?;
        let mut late = begin(context, &mut entry.lock());
        late.retain(|target| !seen.iter().any(|seen| seen.is_same_run(target)));
        end_all(late).await
    };
    let (early, late) = tokio::join!(end_all(seen.clone()), late);
    early.and(late)?;
    Ok(ending::finish(&mut entry.lock()))
}

/// Notes what runs.
fn begin<D>(context: &Context<D>, state: &mut PodState) -> Vec<Target> {
    let targets = ending::targets(&context.config, state);
    let record = state.stop.get_or_insert_default();
    for target in &targets {
        record.add(&target.name);
    }
    targets
}

/// Ends one container that is to be started again. Does nothing if that is under way, or a stop has asked it.
///
/// # Errors
/// As [`end_one`]. The next call tries again.
pub(super) async fn stop_to_restart<D: Driver>(
    context: &Arc<Context<D>>,
    entry: &Arc<PodEntry>,
    name: &str,
    grace: Grace,
) -> Result<(), RuntimeError> {
    let target = {
        let mut state = entry.lock();
        let mut targets = ending::targets(&context.config, &state);
        targets.retain(|t| &*t.name == name);
        let Some(mut target) = targets.pop() else { return Ok(()) };
        let Some(run) = state.attempt(name, target.attempt) else { return Ok(()) };
        // One that was to be killed and runs is not on its way out.
        let is_asked = run.signalled_at.is_some() && !run.forced;
        if is_asked || std::mem::replace(&mut run.ending, true) {
            return Ok(());
        }
        target.waits_for_others = false;
        target
    };
    let attempt = target.attempt;
    let ended = end_one(context, entry, target, grace, Duration::ZERO).await;
    if ended.is_err()
        && let Some(run) = entry.lock().attempt(name, attempt)
    {
        run.ending = false;
    }
    ended
}

/// Ends one container; a sidecar that waits for its turn is asked `last_call` before the end at the latest.
///
/// # Errors
/// It survives SIGKILL, or whether it does is not known.
pub(super) async fn end_one<D: Driver>(
    context: &Arc<Context<D>>,
    entry: &Arc<PodEntry>,
    target: Target,
    mut grace: Grace,
    last_call: Duration,
) -> Result<(), RuntimeError> {
    let ended = pod::ended(entry, &target.name, &target.id);
    tokio::pin!(ended);
    let ask = async {
        ending::due(context, entry, &target, &grace, last_call).await;
        let is_first = ending::ask_now(&mut entry.lock(), &target);
        if is_first {
            D::ask(context, entry, &target).await;
            let container = paths::container(&context.config, entry.uid(), &target.name);
            context.asked.take(container.join(target.attempt.to_string()));
        }
        grace.over().await;
    };
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = ask => {}
    }
    ending::kill_now(&mut entry.lock(), &target);
    for round in 0..ROUNDS {
        D::kill(context, entry, &target, round).await;
        if timeout(context.config.kill_timeout / ROUNDS, &mut ended).await.is_ok() {
            return Ok(());
        }
    }
    Err(D::survives(context, entry, &target).await)
}
