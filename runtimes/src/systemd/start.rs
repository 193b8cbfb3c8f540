//! Starts one attempt of a container.
//!
//! The attempt is on disk before its unit is asked for, and an attempt's unit has a name that no other
//! has: an agent that dies in between, or gets no answer, finds out later by that name whether it was
//! started, and asking again starts nothing twice.

use std::sync::Arc;

use tokio::time::timeout;
use winddown_engine::probing::ProbeState;
use winddown_shared::{Pod, RuntimeError, error_chain};

use super::attempt::{Attempt, Prepared};
use super::unit_cache::Watched;
use super::units::{ServiceUnits, UnitError, UnitPhase};
use super::{Context, end};
use crate::process::{blocking, caused, failed};
use crate::programs::pod::{PodEntry, Run, Starting};

/// Starts the next attempt of the pod's container `name`. Resolves when it runs; at once with nothing
/// done if the pod is being stopped.
///
/// Dropping the future does not end the start; it is counted in `starting`, and a stop waits for it.
///
/// # Errors
/// The service manager refused or did not answer.
pub(crate) async fn start<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    starting: Starting,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let permit = Arc::clone(&context.starts).acquire_owned().await;
    let (context, pod, name) = (Arc::clone(context), pod.clone(), Arc::clone(name));
    let work = tokio::spawn(async move {
        let _permit = permit;
        begin(&context, &starting, &pod, &name).await
    });
    match work.await {
        Ok(outcome) => outcome,
        Err(error) => Err(caused("waiting for the start of a container".to_owned(), error)),
    }
}

async fn begin<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    starting: &Starting,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let entry = starting.entry();
    let (number, backoff) = {
        let mut state = entry.lock();
        match state.container(name) {
            Some(container) if !container.is_running() => container.next(&context.config.backoff),
            _ => return Ok(()),
        }
    };
    let attempt = Attempt::new(&context.config, pod.uid(), name, number);
    let prepared = {
        let (attempt, context, pod) = (attempt.clone(), Arc::clone(context), pod.clone());
        let prepare = move || attempt.prepare(&context.config, &context.boot_id, &pod, backoff);
        blocking(prepare).await?
    };
    let Some(prepared) = prepared else { return Ok(()) };
    if entry.lock().stopping {
        if prepared.is_new {
            attempt.withdraw();
        }
        return Err(failed("the pod is being stopped".to_owned()));
    }
    let started_at = prepared.record.created_at;
    let watched = ask(context, &attempt, prepared).await?;
    enter(
        entry,
        name,
        Run {
            attempt: number,
            started_at,
            backoff,
            supervisor: None,
            main: None,
            cgroups: Vec::new(),
            probe_state: ProbeState::default(),
            is_of_earlier_boot: false,
            ending: false,
            signalled_at: None,
            forced: false,
            end: None,
        },
    );
    let noted = {
        let (attempt, context) = (attempt.clone(), Arc::clone(context));
        blocking(move || {
            let noted = attempt.note_started(&context.boot_id);
            noted.map_err(|e| caused("cannot note that a container was started".to_owned(), e))
        })
        .await
    };
    if let Err(error) = noted {
        tracing::debug!(error = error_chain(&error), container = %name, uid = %pod.uid(), "a start is not noted");
    }
    end::watch(context, entry, attempt, watched);
    Ok(())
}

/// Asks for the units. Resolves when the container's is seen to run or to have ended.
async fn ask<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    attempt: &Attempt,
    prepared: Prepared,
) -> Result<Watched, RuntimeError> {
    let mut watched = context.unit_cache.expect(&attempt.unit);
    let asked = request(context, attempt, prepared).await;
    let after = context.config.start_timeout;
    let outcome = match asked {
        Ok(()) => {
            context.unit_cache.confirm(&attempt.unit);
            let decided = watched.until(|phase| phase > UnitPhase::Starting);
            let what = format!("starting container {}", attempt.container);
            timeout(after, decided).await.map_err(|_| RuntimeError::Timeout { what, after })
        }
        Err(error) => {
            let is_known = !matches!(error, UnitError::Silent { .. });
            let what = format!("cannot start container {}", attempt.container);
            if is_known {
                let _ = context.units.stop(&attempt.log_unit).await;
                let _ = context.units.forget_failure(&attempt.unit).await;
                context.unit_cache.forget(&attempt.unit);
                attempt.withdraw();
                return Err(caused(what, error));
            }
            Err(caused(what, error))
        }
    };
    if let Err(error) = outcome {
        // It may run, or start to run: a stop of the pod has to look.
        context.unsure(&attempt.uid);
        context.unit_cache.forget(&attempt.unit);
        return Err(error);
    }
    Ok(watched)
}

async fn request<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &Attempt,
    prepared: Prepared,
) -> Result<(), UnitError> {
    let Prepared { is_new, log, main, pod_weight, .. } = prepared;
    if !is_new {
        // An earlier start was not answered.
        if let Some(view) = context.units.look(&attempt.unit).await? {
            context.unit_cache.see(&attempt.unit, view);
            return Ok(());
        }
    }
    let of_pod = format!("Pod {}", attempt.uid);
    context.units.make_slice(&main.slice, &of_pod, pod_weight).await?;
    match context.units.start(log).await {
        // The earlier start's log writer reads pipes without a writer.
        Err(UnitError::Exists { .. }) => {
            context.units.stop(&attempt.log_unit).await?;
            let why = "its log is still written by an earlier start".to_owned();
            return Err(UnitError::Silent { call: "StartTransientUnit", why });
        }
        outcome => outcome?,
    }
    match context.units.start(main).await {
        Err(UnitError::Exists { .. }) => {
            let view = context.units.look(&attempt.unit).await?.unwrap_or_default();
            context.unit_cache.see(&attempt.unit, view);
            Ok(())
        }
        outcome => outcome,
    }
}

/// Enters a run as the newest of its container.
pub(crate) fn enter(entry: &PodEntry, name: &str, run: Run) {
    let mut state = entry.lock();
    state.started_at.get_or_insert(run.started_at);
    let Some(container) = state.container(name) else { return };
    if let Some(old) = container.run.replace(run) {
        container.last_exit = old.end.map(|end| end.exit).or(container.last_exit.take());
    }
}
