//! The end of a run: hears of it, ends what the container left behind, writes the exit down, and only then
//! lets the service manager forget it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::time::{sleep, timeout};
use winddown_engine::{plan, termination_message};
use winddown_shared::{RuntimeError, error_chain};
use winddown_shim::exit;
use winddown_shim::order::MessageSource;
use winddown_shim::record::{self, AttemptRecord, ExitRecord};

use super::Context;
use super::attempt::Attempt;
use super::unit_cache::Watched;
use super::units::{ServiceUnits, UnitEnd, UnitError, UnitPhase, UnitView, Whom};
use crate::programs::pod::PodEntry;
use crate::programs::{blocking, caused, exits};

/// Between two attempts to end what a container left behind; doubled up to the longest.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long a log may take to be complete when its container has ended.
const LOG_PATIENCE: Duration = Duration::from_secs(2);
/// How long a unit whose processes are killed may take to be unloaded.
const UNLOADED: Duration = Duration::from_millis(300);

/// Watches a run until nothing of it is left. One small task; nothing while the container runs.
pub(crate) fn watch<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: Attempt,
    watched: Watched,
) {
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let mut alive = context.alive.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = follow(&context, &entry, attempt, watched) => {}
            // The runtime is dropped: its pods go on without it.
            _ = alive.changed() => {}
        }
    });
}

/// As [`watch`], in the caller's task. Resolves when the end is entered.
pub(crate) async fn follow<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: Attempt,
    mut watched: Watched,
) {
    let view = watched.until(UnitPhase::has_ended).await;
    let record = write(context, entry, &attempt, view.end).await;
    let is_unloaded = clear(context, &attempt, &mut watched, &view).await;
    if is_unloaded {
        end_log(context, &attempt).await;
    } else {
        // Its writer reads on, until the unit is unloaded.
        context.driver.unit_cache.forget(&attempt.log_unit);
    }
    // Once more: what the container had to say is complete now.
    let record = match record {
        Some(_) => write(context, entry, &attempt, view.end).await,
        None => None,
    };
    let is_seen = record.is_some();
    exits::enter(&context.config, entry, (&attempt.container, attempt.number), record);
    entry.announce();
    context.driver.unit_cache.forget(&attempt.unit);
    let tidy = move || {
        if is_seen {
            // In its own task: callers that wait for the container are not delayed.
            let _ = std::fs::File::open(attempt.dir.join(record::EXIT)).and_then(|f| f.sync_all());
            let _ = record::sync_dir(&attempt.dir);
        }
        exits::prune(&attempt.dir);
        Ok(())
    };
    let _: Result<(), RuntimeError> = blocking(tidy).await;
}

/// Ends what the container left behind, and has its unit forgotten. A service manager that does not answer
/// is asked again, however long that takes: until then the container does run. True if the unit is gone.
///
/// While the machine goes down past logind the units of pods stop after the agent, so the stop of one that
/// the agent asks for waits for the agent: its processes are killed, and it is not waited for.
async fn clear<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &Attempt,
    watched: &mut Watched,
    view: &UnitView,
) -> bool {
    if view.phase == UnitPhase::Over {
        if let Err(error) = context.driver.units.forget_failure(&attempt.unit).await {
            tracing::debug!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
                "a unit that has ended is still loaded");
        }
        return true;
    }
    let mut wait = AGAIN;
    while let Err(error) = unload(context, attempt).await {
        tracing::warn!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
            "what a container left behind may still run");
        sleep(wait).await;
        wait = (wait * 2).min(AGAIN_MAX);
    }
    timeout(UNLOADED, watched.over()).await.is_ok()
}

async fn unload<U: ServiceUnits>(context: &Context<U>, attempt: &Attempt) -> Result<(), UnitError> {
    let kill = rustix::process::Signal::KILL.as_raw();
    context.driver.units.signal(&attempt.unit, Whom::All, kill).await?;
    context.driver.units.stop(&attempt.unit).await
}

/// Waits for the log to be complete. Its writer ends by itself when the container's unit is unloaded.
async fn end_log<U: ServiceUnits>(context: &Context<U>, attempt: &Attempt) {
    let mut writer = context.driver.unit_cache.expect(&attempt.log_unit);
    if let Ok(Some(view)) = context.driver.units.look(&attempt.log_unit).await {
        context.driver.unit_cache.see(&attempt.log_unit, view);
        if timeout(LOG_PATIENCE, writer.over()).await.is_err() {
            // Another holder of the pipes reads what there is.
            let _ = context.driver.units.stop(&attempt.log_unit).await;
            let _ = timeout(LOG_PATIENCE, writer.over()).await;
        }
    }
    context.driver.unit_cache.forget(&attempt.log_unit);
}

/// Records how the run ended; an earlier record counts if the end is unknown. None if there is no
/// record either.
async fn write<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &PodEntry,
    attempt: &Attempt,
    end: Option<UnitEnd>,
) -> Option<ExitRecord> {
    let source = {
        let state = entry.lock();
        let found = state.pod.as_ref().and_then(|pod| plan::find(pod, &attempt.container));
        found.map(|found| message_source(attempt, &found.container))
    };
    let (context, attempt) = (Arc::clone(context), attempt.clone());
    let written = move || {
        let path = attempt.dir.join(record::EXIT);
        let Some(end) = end else { return Ok(record::read(&path)) };
        let exit = describe(&attempt, source.as_ref(), &end, &context.boot_id);
        if let Err(error) = record::write(&path, &exit, false) {
            let error = caused("cannot write down how a container ended".to_owned(), error);
            tracing::warn!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
                "after a restart of the agent its exit will be unknown");
        }
        Ok(Some(exit))
    };
    let written: Result<Option<ExitRecord>, RuntimeError> = blocking(written).await;
    written.unwrap_or_default()
}

fn message_source(attempt: &Attempt, container: &api::Container) -> MessageSource {
    let fall_back_to_log =
        container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    MessageSource { file: attempt.dir.join(record::TERMINATION_LOG), fall_back_to_log }
}

fn describe(
    attempt: &Attempt,
    source: Option<&MessageSource>,
    end: &UnitEnd,
    boot_id: &str,
) -> ExitRecord {
    let (exit_code, signal) = end.status.code();
    let begun: Option<AttemptRecord> = record::read(&attempt.dir.join(record::ATTEMPT));
    let log = begun.as_ref().map(|begun| begun.log.as_path());
    let start_error =
        std::fs::read_to_string(attempt.dir.join(record::START_ERROR)).unwrap_or_default();
    let (reason, message) = if start_error.is_empty() {
        let reason = match exit_code {
            0 => "Completed",
            _ if end.out_of_memory => "OOMKilled",
            _ => "Error",
        };
        let falls_back = exit_code != 0 && source.is_some_and(|s| s.fall_back_to_log);
        let tail = || log.and_then(|log| termination_message::tail(log).ok()).unwrap_or_default();
        let tail = if falls_back { tail() } else { String::new() };
        (reason, exit::message(source, exit_code != 0, tail))
    } else {
        ("StartError", start_error)
    };
    let began = begun.map(|begun| begun.created_at);
    let started_at = end.started_at.or(began).or(end.finished_at).unwrap_or_default();
    ExitRecord {
        exit_code,
        signal,
        reason: reason.to_owned(),
        message,
        started_at,
        finished_at: end.finished_at.unwrap_or(started_at),
        ran_ms: record::millis(end.ran),
        boot_id: boot_id.to_owned(),
    }
}
