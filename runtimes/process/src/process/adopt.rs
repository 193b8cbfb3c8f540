//! Takes over the containers that an earlier agent left running.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use winddown_engine::{files, machine_lock};
use winddown_host::ready::Ready;
use winddown_shared::{PodUid, error_chain};
use winddown_shim::members;
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::{self, AttemptRecord, ExitRecord, ProcessIdentity, StartedRecord};

use super::cgroup::{AttemptId, Cgroups};
use super::running;
use super::watcher::{self, WatchedRun};
use super::{Context, ProcessRuntime, Supervisors, start};
use crate::programs::adopt::{self, FoundProgramPod};
use crate::programs::config::ProcessConfig;
use crate::programs::open::{self, OpenError};
use crate::programs::pod::{self, Run};
use crate::programs::{exits, paths, pod_record};

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
    let cgroups = open::off_thread(move || Ok(Cgroups::new(&search))).await?;
    let on_machine = match cgroups.root() {
        Some(root) => Some(
            machine_lock::take(root)
                .await
                .map_err(|holder| OpenError::CgroupsInUse { path: root.to_owned(), holder })?,
        ),
        None => None,
    };
    let search = config.clone();
    let (found, boot_id, cgroups) = open::off_thread(move || {
        let boot = procfs::boot_id(&search.proc_root);
        Ok((find(&search, &cgroups, &boot)?, boot, cgroups))
    })
    .await?;
    let missing = cgroups.unenforced().lines();
    if !missing.is_empty() {
        tracing::info!(why = missing.join("; "), "not every limit of pods can be enforced");
    }
    let (alive_end, alive) = watch::channel(());
    let context =
        Arc::new(Context::new(config, boot_id, alive, Supervisors { cgroups, on_machine }));
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

/// Finds the attempts on disk and those that run, and kills what dead supervisors left behind.
fn find(
    config: &ProcessConfig,
    cgroups: &Cgroups,
    boot: &str,
) -> Result<Vec<FoundProgramPod<FoundAttempt>>, OpenError> {
    let running = running::find(config, cgroups)
        .map_err(|source| OpenError::Unusable { path: config.proc_root.clone(), source })?;
    let found = adopt::find(config, running.keys().cloned(), |uid, name, number| {
        let id = (uid.clone(), Arc::clone(name), number);
        let supervisor = running.get(&id).copied().flatten();
        let dir = paths::container(config, uid, name).join(number.to_string());
        let seen = SeenAttempt { id, dir, supervisor, boot };
        find_attempt(config, cgroups, &seen)
    })?;
    let mut known: HashSet<AttemptId> = HashSet::new();
    for FoundProgramPod { uid, containers, .. } in &found {
        for (name, attempts) in containers {
            known.extend(attempts.iter().map(|one| (uid.clone(), Arc::clone(name), one.number)));
        }
    }
    let unsupervised = running.iter().filter(|(_, supervisor)| supervisor.is_none());
    for (id, _) in unsupervised.filter(|(id, _)| !known.contains(*id)) {
        if !members::end(&cgroups.of_attempt(id)) {
            let (uid, container, _) = id;
            tracing::error!(%uid, %container, "processes without a supervisor survive SIGKILL");
        }
    }
    for pod in &found {
        for (name, attempts) in &pod.containers {
            if let Some(newest) = attempts.last() {
                end_orphans(config, (&pod.uid, name), newest, boot)?;
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
) -> Result<(), OpenError> {
    let is_of_this_boot = newest.started.as_ref().is_some_and(|started| started.boot_id == boot);
    if newest.supervisor.is_some() || !is_of_this_boot {
        return Ok(());
    }
    let unusable = |source| OpenError::Unusable { path: newest.dir.clone(), source };
    let is_orphaned = !record::is_cleaned_up(&newest.dir).map_err(unusable)?;
    let ended = || watcher::end_leftovers(config, (uid, name), &newest.record.cgroups);
    if is_orphaned && !ended() {
        tracing::error!(%uid, container = %name, "processes left by a dead supervisor survive SIGKILL");
    }
    Ok(())
}

/// An attempt that has a directory, or runs without one.
struct SeenAttempt<'a> {
    id: AttemptId,
    dir: PathBuf,
    /// The supervisor that runs according to the kernel.
    supervisor: Option<ProcessIdentity>,
    /// This boot.
    boot: &'a str,
}

/// Reads the records of an attempt; if it runs, missing ones are written again. An attempt that never ran is removed, so
/// that its number is free again.
fn find_attempt(
    config: &ProcessConfig,
    cgroups: &Cgroups,
    seen: &SeenAttempt<'_>,
) -> Result<Option<FoundAttempt>, OpenError> {
    let SeenAttempt { id: (_, _, number), dir, boot, .. } = seen;
    let unusable = |source| OpenError::Unusable { path: dir.clone(), source };
    let named = living_supervisor(config, dir).map_err(unusable)?;
    let mut started: Option<StartedRecord> =
        record::try_read(&dir.join(record::STARTED)).map_err(unusable)?;
    let mut record: Option<AttemptRecord> =
        record::try_read(&dir.join(record::ATTEMPT)).map_err(unusable)?;
    // A supervisor that holds no lock has lost its files. One that holds it and has not started its container is hung.
    let supervisor = match (named, seen.supervisor) {
        (Some(named), _) => Some(named),
        (None, Some(seen)) => Process::open(&config.proc_root, seen).map_err(unusable)?,
        (None, None) => None,
    };
    let is_hung = started.is_none() && start::is_supervised(dir).map_err(unusable)?;
    if let Some(supervisor) = supervisor.as_ref().filter(|_| !is_hung)
        && (started.is_none() || record.is_none())
    {
        started = match started {
            Some(started) => Some(started),
            None => observed(config, supervisor, boot).map_err(unusable)?,
        };
        if let Some(started) = &started {
            record = Some(write_again(config, cgroups, seen, record, started));
        }
    }
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
        let _ = std::fs::remove_dir_all(dir);
        return Ok(None);
    };
    let exit = record::try_read(&dir.join(record::EXIT)).map_err(unusable)?;
    let (number, dir) = (*number, dir.clone());
    Ok(Some(FoundAttempt { number, dir, record, started, exit, supervisor }))
}

/// The record of a start that was lost, as far as the kernel knows; none if nothing of the container runs.
fn observed(
    config: &ProcessConfig,
    supervisor: &Process,
    boot: &str,
) -> io::Result<Option<StartedRecord>> {
    let proc_root = &config.proc_root;
    let pid = supervisor.pid();
    let Some(main) = procfs::oldest_child(proc_root, pid)? else { return Ok(None) };
    let Some(stat) = procfs::stat(proc_root, pid)? else { return Ok(None) };
    Ok(Some(StartedRecord {
        boot_id: boot.to_owned(),
        supervisor: ProcessIdentity { pid, start_time: stat.start_time },
        main,
        started_at: config.wall.now(),
    }))
}

/// Writes the records of an attempt that runs and has lost them, so that its end is recorded and the next agent finds it.
fn write_again(
    config: &ProcessConfig,
    cgroups: &Cgroups,
    SeenAttempt { id, dir, boot, .. }: &SeenAttempt<'_>,
    record: Option<AttemptRecord>,
    started: &StartedRecord,
) -> AttemptRecord {
    let (uid, name, number) = id;
    tracing::warn!(%uid, container = %name, attempt = number, "the records of a running container are lost");
    let record = record.unwrap_or_else(|| AttemptRecord {
        created_at: started.started_at,
        backoff_ms: 0,
        log: pod_record::logs(config, uid)
            .map(|logs| logs.join(files::run_log(name, *number)))
            .unwrap_or_default(),
        boot_id: (*boot).to_owned(),
        cgroups: cgroups.of_attempt(id),
    });
    let parents = [paths::pod(config, uid), paths::container(config, uid, name), dir.clone()];
    let written = parents
        .iter()
        .try_for_each(|dir| record::make_passage(dir))
        .and_then(|()| record::write(&dir.join(record::ATTEMPT), &record, true))
        .and_then(|()| record::write(&dir.join(record::STARTED), started, false));
    if let Err(error) = written {
        tracing::warn!(%uid, container = %name, error = error_chain(&error), "its records are still lost");
    }
    record
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
) -> io::Result<(Run, Option<(WatchedRun, Ready)>)> {
    let config = &context.config;
    let started = found.started.as_ref();
    let started_at = started.map_or(found.record.created_at, |started| started.started_at);
    let backoff = Duration::from_millis(found.record.backoff_ms);
    let is_of_earlier_boot = started.is_none_or(|started| started.boot_id != context.boot_id);
    let noted = paths::noted(&found.dir);
    let mut run = pod::adopted((uid, name, found.number), (started_at, backoff), noted);
    run.own.cgroups.clone_from(&found.record.cgroups);
    run.own.is_of_earlier_boot = is_of_earlier_boot;
    // A supervisor that has recorded all may still wait for the disk.
    let is_over = found.exit.is_some() && record::is_cleaned_up(&found.dir)?;
    let Some(supervisor) = found.supervisor.filter(|_| !is_over) else {
        exits::enter_past(config, &mut run, found.exit);
        return Ok((run, None));
    };
    if let Some(started) = started.filter(|_| !is_of_earlier_boot) {
        run.own.main = Process::open(&config.proc_root, started.main)?.map(Arc::new);
    }
    let ended = supervisor.duplicate().and_then(Ready::new)?;
    let supervisor = Arc::new(supervisor);
    run.own.supervisor = Some(Arc::clone(&supervisor));
    let (name, attempt, dir) = (Arc::clone(name), found.number, found.dir);
    Ok((run, Some((WatchedRun { name, attempt, dir, supervisor }, ended))))
}

#[cfg(test)]
mod tests {
    use winddown_shared::{WallClock, WallTime};

    use super::*;
    use crate::programs::config::ShimCommand;

    /// Otherwise its preStop hook would run again, beside nothing.
    #[tokio::test]
    async fn a_run_whose_supervisor_has_recorded_all_and_waits_for_the_disk_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (shim, wall) = (ShimCommand::new("/none", []), WallClock::fixed(WallTime::UNIX_EPOCH));
        let config = ProcessConfig::new(dir.path(), dir.path().join("logs"), shim, wall);
        let supervisors = Supervisors { cgroups: Cgroups::new(&config), on_machine: None };
        let alive = watch::channel(()).1;
        let context = Context::new(config, "boot".to_owned(), alive, supervisors);
        let me = ProcessIdentity { pid: i32::try_from(std::process::id()).unwrap(), start_time: 1 };
        let at = WallTime::UNIX_EPOCH;
        let exit = |code| ExitRecord {
            exit_code: code,
            signal: None,
            reason: "Completed".to_owned(),
            message: String::new(),
            started_at: at,
            finished_at: at,
            ran_ms: 5,
            boot_id: "boot".to_owned(),
        };
        for (written, code, is_over) in
            [("", Some(0), false), ("ended\n", None, false), ("ended\n", Some(0), true)]
        {
            std::fs::write(dir.path().join(record::SUPERVISOR), written).unwrap();
            let found = FoundAttempt {
                number: 0,
                dir: dir.path().to_owned(),
                record: AttemptRecord {
                    created_at: at,
                    backoff_ms: 0,
                    log: PathBuf::new(),
                    boot_id: "boot".to_owned(),
                    cgroups: Vec::new(),
                },
                started: Some(StartedRecord {
                    boot_id: "boot".to_owned(),
                    supervisor: me,
                    main: me,
                    started_at: at,
                }),
                exit: code.map(exit),
                supervisor: Process::open_any(me.pid).unwrap(),
            };
            let (run, watched) =
                resume(&context, (&PodUid::new("u"), &"main".into()), found).unwrap();
            assert_eq!(
                (run.end.is_some(), watched.is_none()),
                (is_over, is_over),
                "{written:?} {code:?}"
            );
        }
    }
}
