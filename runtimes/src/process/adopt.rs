//! Takes over the containers that an earlier agent left running.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use winddown_engine::ready::Ready;
use winddown_shared::PodUid;
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::{self, AttemptRecord, ExitRecord, StartedRecord};

use super::cgroup::Cgroups;
use super::watcher::{self, Watched};
use super::{Context, ProcessRuntime, Supervisors, start};
use crate::programs::adopt::{self, FoundPod};
use crate::programs::config::ProcessConfig;
use crate::programs::open::{self, OpenError};
use crate::programs::pod::{self, Run};
use crate::programs::{exits, paths};

/// How many times a supervisor that is still starting is checked, 20 ms apart.
const STARTING_ROUNDS: usize = 100;

struct FoundAttempt {
    number: u32,
    dir: PathBuf,
    record: AttemptRecord,
    /// None only for an attempt of an earlier boot, which may not have run.
    started: Option<StartedRecord>,
    exit: Option<ExitRecord>,
    /// The supervisor, if it still runs.
    supervisor: Option<Process>,
}

pub(crate) async fn open(config: ProcessConfig) -> Result<ProcessRuntime, OpenError> {
    let (config, lock) = open::take(config).await?;
    let search = config.clone();
    let (found, boot_id, cgroups) = open::off_thread(move || {
        let boot = procfs::boot_id(&search.proc_root);
        Ok((find(&search, &boot)?, boot, Cgroups::new(&search)))
    })
    .await?;
    if let Some(why) = cgroups.missing() {
        tracing::info!(why, "not every limit of pods can be enforced");
    }
    let (alive_end, alive) = watch::channel(());
    let context = Arc::new(Context::new(config, boot_id, alive, Supervisors { cgroups }));
    for pod in found {
        let (mut watched, uid) = (Vec::new(), pod.uid.clone());
        let entry = adopt::enter(&context, pod, |name, attempt| {
            let dir = attempt.dir.clone();
            let (run, ended) = resume(&context, (&uid, name), attempt)
                .map_err(|source| OpenError::Unusable { path: dir, source })?;
            watched.extend(ended);
            Ok(Some(run))
        })?;
        for (watched, ended) in watched {
            watcher::watch(&context, &entry, watched, ended);
        }
    }
    Ok(ProcessRuntime::assemble(context, lock, alive_end))
}

/// Reads the attempts from disk, and kills what dead supervisors left behind.
fn find(config: &ProcessConfig, boot: &str) -> Result<Vec<FoundPod<FoundAttempt>>, OpenError> {
    let found = adopt::find(config, |uid, name, number| {
        let dir = paths::container(config, uid, name).join(number.to_string());
        find_attempt(config, dir, number, boot)
    })?;
    for pod in &found {
        for (name, attempts) in &pod.containers {
            if let Some(newest) = attempts.last() {
                end_orphans(config, (&pod.uid, name), newest, boot);
            }
        }
    }
    Ok(found)
}

fn end_orphans(
    config: &ProcessConfig,
    (uid, name): (&PodUid, &Arc<str>),
    newest: &FoundAttempt,
    boot: &str,
) {
    let is_of_this_boot = newest.started.as_ref().is_some_and(|started| started.boot_id == boot);
    let is_orphaned =
        newest.supervisor.is_none() && is_of_this_boot && !record::is_cleaned_up(&newest.dir);
    let ended = || watcher::end_leftovers(config, (uid, name), &newest.record.cgroups);
    if is_orphaned && !ended() {
        tracing::error!(%uid, container = %name, "processes left by a dead supervisor survive SIGKILL");
    }
}

/// Reads the records of an attempt. An attempt that never ran is removed, so that its number is free again.
fn find_attempt(
    config: &ProcessConfig,
    dir: PathBuf,
    number: u32,
    boot: &str,
) -> Result<Option<FoundAttempt>, OpenError> {
    let unusable = |source| OpenError::Unusable { path: dir.clone(), source };
    let supervisor = living_supervisor(config, &dir).map_err(unusable)?;
    let started: Option<StartedRecord> =
        record::try_read(&dir.join(record::STARTED)).map_err(unusable)?;
    let record: Option<AttemptRecord> =
        record::try_read(&dir.join(record::ATTEMPT)).map_err(unusable)?;
    // The record of the start is written in the background, so a power cut can lose it. An attempt of an earlier boot
    // may therefore have run, and a pod that runs once must not run again.
    let may_have_run = |r: &AttemptRecord| started.is_some() || is_earlier(&r.boot_id, boot);
    let Some(record) = record.filter(may_have_run) else {
        // Without these records nothing ran, and a supervisor that still exists hangs.
        if let Some(supervisor) = &supervisor {
            let _ = supervisor.signal(Signal::KILL);
            supervisor.ended_within(1000);
            supervisor.reap();
        }
        let _ = std::fs::remove_dir_all(&dir);
        return Ok(None);
    };
    let exit = record::try_read(&dir.join(record::EXIT)).map_err(unusable)?;
    Ok(Some(FoundAttempt { number, dir, record, started, exit, supervisor }))
}

/// Whether a record names another boot than this one.
fn is_earlier(boot_id: &str, boot: &str) -> bool {
    !boot_id.is_empty() && boot_id != boot
}

/// Resolves the supervisor of an attempt, once it has recorded its identity or has exited.
///
/// # Errors
/// It cannot be determined whether a supervisor exists (no file descriptor is left, for example). That does not mean
/// "none": otherwise the container would be killed as an orphan.
fn living_supervisor(config: &ProcessConfig, dir: &Path) -> io::Result<Option<Process>> {
    let mut unnamed: Option<Process> = None;
    for _ in 0..STARTING_ROUNDS {
        if !start::is_supervised(dir)? {
            return Ok(None);
        }
        if let Some(started) = record::try_read::<StartedRecord>(&dir.join(record::STARTED))? {
            return Process::open(&config.proc_root, started.supervisor);
        }
        // The agent died while this supervisor was being started: it will record its identity soon, or give up.
        if unnamed.is_none() {
            unnamed = start::find_supervisor(&config.proc_root, dir)?;
        }
        let Some(supervisor) = &unnamed else { return Ok(None) };
        supervisor.ended_within(20);
    }
    Ok(unnamed)
}

/// Returns the attempt as a run, and what to wait for if it still runs.
///
/// # Errors
/// A running process cannot be opened: no file descriptor is left, for example.
fn resume(
    context: &Context,
    (uid, name): (&PodUid, &Arc<str>),
    found: FoundAttempt,
) -> io::Result<(Run, Option<(Watched, Ready)>)> {
    let config = &context.config;
    let started = found.started.as_ref();
    let started_at = started.map_or(found.record.created_at, |started| started.started_at);
    let backoff = Duration::from_millis(found.record.backoff_ms);
    let is_of_earlier_boot = started.is_none_or(|started| started.boot_id != context.boot_id);
    let asked = paths::asked(&found.dir).exists();
    let mut run = pod::run((uid, name, found.number), started_at, backoff);
    run.adopt(asked);
    run.own.cgroups.clone_from(&found.record.cgroups);
    run.own.is_of_earlier_boot = is_of_earlier_boot;
    let Some(supervisor) = found.supervisor else {
        exits::enter_past(config, &mut run, found.exit, asked);
        return Ok((run, None));
    };
    if let Some(started) = started.filter(|_| !is_of_earlier_boot) {
        run.own.main = Process::open(&config.proc_root, started.main)?.map(Arc::new);
    }
    let ended = supervisor.duplicate().and_then(Ready::new)?;
    let supervisor = Arc::new(supervisor);
    run.own.supervisor = Some(Arc::clone(&supervisor));
    let (name, attempt, dir) = (Arc::clone(name), found.number, found.dir);
    Ok((run, Some((Watched { name, attempt, dir, supervisor }, ended))))
}
