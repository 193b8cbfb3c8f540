//! Starts one attempt of a container.
//!
//! The attempt is on disk before its unit is requested, and the name of the unit is unique. An agent that dies in
//! between, or gets no answer, can find out later by that name whether the unit was started, and requesting it again
//! starts nothing twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use winddown_host::PodFiles;
use winddown_shared::{Pod, RuntimeError, error_chain};

use super::attempt::{Prepared, UnitAttempt};
use super::unit_cache::WatchedUnit;
use super::units::{ServiceUnits, UnitError, UnitPhase};
use super::{Context, end};
use crate::programs::pod::{self, PodEntry, Starting};
use crate::programs::{blocking, blocking_on, caused, failed};

/// Waits until no start is in progress.
///
/// # Errors
/// A start does not finish in time.
pub(super) async fn settle<U>(context: &Context<U>, entry: &PodEntry) -> Result<(), RuntimeError> {
    let after = context.config.start_timeout + context.config.kill_timeout;
    timeout(after, winddown_engine::pod::started(entry)).await.map_err(|_| {
        let what = format!("waiting for a start under way of pod {}", entry.uid());
        RuntimeError::Timeout { what, after }
    })
}

/// Starts an attempt. Resolves when it runs.
pub(super) async fn start<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    starting: &Starting,
    pod: &Pod,
    name: &Arc<str>,
    (number, backoff): (u32, Duration),
) -> Result<(), RuntimeError> {
    let entry = starting.entry();
    let mut attempt = UnitAttempt::new(&context.config, pod.uid(), name, number);
    attempt.survives = context.config.survivors.has(pod);
    let prepared = {
        let (attempt, context, pod) = (attempt.clone(), Arc::clone(context), pod.clone());
        blocking_on(PodFiles::Make, move || attempt.prepare(&context, &pod, backoff)).await?
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
    let mut run = pod::run((pod.uid(), name, number), started_at, backoff);
    run.own.survives = attempt.survives;
    pod::enter(entry, name, run);
    let noted = {
        let (attempt, context) = (attempt.clone(), Arc::clone(context));
        blocking(move || {
            let noted = attempt.note_started(&context.boot_id);
            noted.map_err(|e| caused("cannot note that a container was started".to_owned(), e))
        })
        .await
    };
    if let Err(error) = noted {
        tracing::debug!(
            error = error_chain(&error), container = %name, uid = %pod.uid(),
            "cannot record a start"
        );
    }
    end::watch(context, entry, attempt, watched);
    Ok(())
}

/// Requests the units. Resolves when the container's unit was seen running or exited.
async fn ask<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    attempt: &UnitAttempt,
    prepared: Prepared,
) -> Result<WatchedUnit, RuntimeError> {
    let mut watched = context.driver.unit_cache.expect(&attempt.unit);
    let asked = request(context, attempt, prepared).await;
    let after = context.config.start_timeout;
    let outcome = match asked {
        Ok(()) => {
            context.driver.unit_cache.confirm(&attempt.unit);
            let decided = watched.until(|phase| phase > UnitPhase::Starting);
            let what = format!("starting container {}", attempt.container);
            timeout(after, decided).await.map_err(|_| RuntimeError::Timeout { what, after })
        }
        Err(error) => {
            let is_known = !matches!(error, UnitError::Silent { .. });
            let what = format!("cannot start container {}", attempt.container);
            if is_known {
                let _ = context.driver.units.stop(&attempt.log_unit).await;
                let _ = context.driver.units.forget_failure(&attempt.unit).await;
                context.driver.unit_cache.forget(&attempt.unit);
                attempt.withdraw();
                return Err(caused(what, error));
            }
            Err(caused(what, error))
        }
    };
    if let Err(error) = outcome {
        // It may run, or start to run later: a stop of the pod has to check.
        context.driver.unsure(&attempt.uid);
        context.driver.unit_cache.forget(&attempt.unit);
        return Err(error);
    }
    Ok(watched)
}

async fn request<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &UnitAttempt,
    prepared: Prepared,
) -> Result<(), UnitError> {
    let Prepared { is_new, log, main, pod_weight, .. } = prepared;
    if !is_new {
        // An earlier start was not answered.
        if let Some(view) = context.driver.units.look(&attempt.unit).await? {
            context.driver.unit_cache.see(&attempt.unit, view);
            return Ok(());
        }
    }
    let of_pod = format!("Pod {}", attempt.uid);
    if !main.survives {
        context.driver.units.make_slice(&main.slice, &of_pod, pod_weight).await?;
    }
    match context.driver.units.start(log).await {
        // The log writer of the earlier start reads from pipes without a writer.
        Err(UnitError::Exists { .. }) => {
            context.driver.units.stop(&attempt.log_unit).await?;
            let why = "its log is still written by an earlier start".to_owned();
            return Err(UnitError::Silent { call: "StartTransientUnit", why });
        }
        outcome => outcome?,
    }
    match context.driver.units.start(main).await {
        Err(UnitError::Exists { .. }) => {
            let view = context.driver.units.look(&attempt.unit).await?.unwrap_or_default();
            context.driver.unit_cache.see(&attempt.unit, view);
            Ok(())
        }
        outcome => outcome,
    }
}
