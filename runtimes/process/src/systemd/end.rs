//! Handles the end of a run: observes it, kills what the container left behind, records the exit, and only then lets
//! the service manager forget the unit.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use winddown_engine::container_plan;
use winddown_host::regular;
use winddown_shared::{Retry, RuntimeError, critical, error_chain, millis};
use winddown_shim::order::MessageSource;
use winddown_shim::record::{self, AttemptRecord, ExitRecord};
use winddown_shim::{exit, log};

use super::Context;
use super::attempt::UnitAttempt;
use super::unit_cache::WatchedUnit;
use super::units::{KillWhom, ServiceUnits, UnitEnd, UnitError, UnitExit, UnitPhase, UnitView};
use crate::programs::pod::PodEntry;
use crate::programs::{blocking, caused, exits, launch};

/// The message of a container that exited with 0 because its unit was stopped, and left none.
const STOPPED: &str =
    "systemd stopped its unit, which winddown had not asked for; it exited with code 0";
/// How long the disk may take to record an exit, which counts without that.
const DISK_PATIENCE: Duration = Duration::from_secs(2);
/// How long a log may take to be complete after its container has exited.
const LOG_PATIENCE: Duration = Duration::from_secs(2);
/// How long a unit with killed processes may take to be unloaded.
const UNLOAD_TIMEOUT: Duration = Duration::from_millis(300);

/// Watches a run until none of its processes is left. Costs one small task, and no work while the container runs. Without
/// it the container would count as running for ever, so its failure is the process'.
pub(crate) fn watch<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: UnitAttempt,
    watched: WatchedUnit,
) {
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let mut alive = context.alive.clone();
    critical::spawn("watcher of a container", async move {
        tokio::select! {
            () = follow(&context, &entry, attempt, watched) => {}
            // The runtime was dropped: its pods continue without it.
            _ = alive.changed() => {}
        }
    });
}

/// Like [`watch`], in the caller's task. Resolves when the end is recorded.
pub(crate) async fn follow<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: UnitAttempt,
    mut watched: WatchedUnit,
) {
    let view = watched.until(UnitPhase::has_ended).await;
    let written = write(context, entry, &attempt, view.end).await;
    let is_unloaded = clear(context, &attempt, &mut watched, &view).await;
    if is_unloaded {
        end_log(context, &attempt).await;
    } else {
        // The log writer continues until the unit is unloaded.
        context.driver.unit_cache.forget(&attempt.log_unit);
    }
    // Written again: the container's output is complete now.
    let written = match written {
        Ok(Some(first)) => write(context, entry, &attempt, view.end).await.or(Ok(Some(first))),
        other => other,
    };
    let is_seen = matches!(written, Ok(Some(_)));
    let unexplained = |_| view.end.map(|end| unexplained(&end, &context.boot_id));
    let record = written.unwrap_or_else(unexplained);
    exits::enter(&context.config, entry, (&attempt.container, attempt.number), record);
    entry.announce();
    context.driver.unit_cache.forget(&attempt.unit);
    let tidy = move || {
        if is_seen {
            // After `announce`, so that callers who wait for the container are not delayed.
            let _ = regular::open(&attempt.dir.join(record::EXIT)).and_then(|f| f.sync_all());
            let _ = record::sync_dir(&attempt.dir);
        }
        exits::prune(&attempt.dir);
        Ok(())
    };
    let _: Result<(), RuntimeError> = blocking(tidy).await;
}

/// Kills what the container left behind, and has its unit forgotten. Retries while the service manager does not answer,
/// however long that takes: until then the container still runs. Returns whether the unit is gone.
///
/// When the machine shuts down without logind, systemd stops the units of pods after the agent, so a stop that the
/// agent requests waits for the agent. Therefore the processes are killed, and the stop is not waited for.
async fn clear<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &UnitAttempt,
    watched: &mut WatchedUnit,
    view: &UnitView,
) -> bool {
    if view.phase == UnitPhase::Over {
        if let Err(error) = context.driver.units.forget_failure(&attempt.unit).await {
            tracing::debug!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
                "a unit that has exited is still loaded");
        }
        return true;
    }
    let mut retries = Retry::UNIT.backoff();
    while let Err(error) = unload(context, attempt).await {
        tracing::warn!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
            "processes that a container left behind may still run");
        sleep(retries.next_delay()).await;
    }
    timeout(UNLOAD_TIMEOUT, watched.over()).await.is_ok()
}

async fn unload<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &UnitAttempt,
) -> Result<(), UnitError> {
    let kill = rustix::process::Signal::KILL.as_raw();
    context.driver.units.signal(&attempt.unit, KillWhom::All, kill).await?;
    context.driver.units.stop(&attempt.unit).await
}

/// Waits for the log to be complete. Its writer exits by itself when the container's unit is unloaded.
async fn end_log<U: ServiceUnits>(context: &Context<U>, attempt: &UnitAttempt) {
    let mut writer = context.driver.unit_cache.expect(&attempt.log_unit);
    if let Ok(Some(view)) = context.driver.units.look(&attempt.log_unit).await {
        context.driver.unit_cache.see(&attempt.log_unit, view);
        if timeout(LOG_PATIENCE, writer.over()).await.is_err() {
            // Another process holds the pipes open; the writer reads what is there and exits.
            let _ = context.driver.units.stop(&attempt.log_unit).await;
            let _ = timeout(LOG_PATIENCE, writer.over()).await;
        }
    }
    context.driver.unit_cache.forget(&attempt.log_unit);
}

/// Records how the run ended; if that is unknown, returns the earlier record, if any.
///
/// # Errors
/// The disk hangs: it is recorded when the disk continues.
async fn write<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &PodEntry,
    attempt: &UnitAttempt,
    end: Option<UnitEnd>,
) -> Result<Option<ExitRecord>, Elapsed> {
    let Some(end) = end else { return Ok(exits::read(&attempt.dir).await) };
    let source = {
        let state = entry.lock();
        let found =
            state.pod.as_ref().and_then(|pod| container_plan::find(pod, &attempt.container));
        found.map(|found| launch::message_source(&attempt.dir, &found.container))
    };
    let (context, attempt) = (Arc::clone(context), attempt.clone());
    let written = move || {
        let exit = describe(&attempt, source.as_ref(), &end, &context.boot_id);
        if let Err(error) = record::write(&attempt.dir.join(record::EXIT), &exit, false) {
            let error = caused("cannot record how a container exited".to_owned(), error);
            tracing::warn!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
                "after a restart of the agent its exit will be unknown");
        }
        Ok(Some(exit))
    };
    Ok(timeout(DISK_PATIENCE, blocking(written)).await?.unwrap_or_default())
}

fn describe(
    attempt: &UnitAttempt,
    source: Option<&MessageSource>,
    end: &UnitEnd,
    boot_id: &str,
) -> ExitRecord {
    let is_cut_short = is_cut_short(end);
    let exit = unexplained(end, boot_id);
    let begun: Option<AttemptRecord> = record::read(&attempt.dir.join(record::ATTEMPT));
    let log = begun.as_ref().map(|begun| begun.log.as_path());
    let tail = || log.and_then(|log| log::tail(log).ok()).unwrap_or_default();
    let (reason, message) =
        exit::explain(&attempt.dir, exit.exit_code, || end.out_of_memory, source, tail);
    let message = if is_cut_short && message.is_empty() { STOPPED.to_owned() } else { message };
    let began = begun.map(|begun| begun.created_at);
    let started_at = end.started_at.or(began).or(end.finished_at).unwrap_or_default();
    ExitRecord {
        reason: reason.to_owned(),
        message,
        started_at,
        finished_at: end.finished_at.unwrap_or(started_at),
        ..exit
    }
}

/// What the service manager alone tells of an exit.
fn unexplained(end: &UnitEnd, boot_id: &str) -> ExitRecord {
    let status = match end.status {
        // Its work is not done: with 0, a pod of a Job would have succeeded.
        _ if is_cut_short(end) => UnitExit::Signal(rustix::process::Signal::TERM.as_raw()),
        status => status,
    };
    let (exit_code, signal) = status.code();
    let started_at = end.started_at.or(end.finished_at).unwrap_or_default();
    ExitRecord {
        exit_code,
        signal,
        reason: exit::reason(exit_code, || end.out_of_memory).to_owned(),
        message: String::new(),
        started_at,
        finished_at: end.finished_at.unwrap_or(started_at),
        ran_ms: millis(end.ran),
        boot_id: boot_id.to_owned(),
    }
}

/// Whether the service manager stopped a container that then exited with 0.
fn is_cut_short(end: &UnitEnd) -> bool {
    end.stopped && end.status.code().0 == 0
}
