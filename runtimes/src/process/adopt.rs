//! Takes over what an earlier agent left running.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::time::Instant;
use winddown_engine::probing::ProbeState;
use winddown_engine::ready::Ready;
use winddown_engine::state_lock;
use winddown_shared::{PodUid, WallTime};
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::{self, AttemptRecord, ExitRecord, StartedRecord};

use super::cgroup::Cgroups;
use super::watcher::{self, Watched};
use super::{CHANGES, Context, ProcessRuntime, start};
use crate::programs::config::ProcessConfig;
use crate::programs::pod::{Container, End, PodEntry, Run, kind_of};
use crate::programs::stop_marker;
use crate::programs::{paths, pod_record};

/// How often a supervisor that is only just starting is looked at again, every 20 ms.
const STARTING_ROUNDS: usize = 100;

/// Why the process runtime cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another agent holds the state directory.
    #[error("{} is used by another agent: stop it first", .0.display())]
    InUse(PathBuf),
    /// A directory or file is missing rights, room or the right type.
    #[error("cannot use {}", .path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The async runtime is shutting down.
    #[error("the agent is ending")]
    Ending,
}

/// What was found of one pod.
struct FoundPod {
    uid: PodUid,
    known: pod_record::Found,
    containers: Vec<FoundContainer>,
}

struct FoundContainer {
    name: Arc<str>,
    /// In ascending order; at least one.
    attempts: Vec<FoundAttempt>,
}

struct FoundAttempt {
    number: u32,
    dir: PathBuf,
    record: AttemptRecord,
    /// Not of one of an earlier boot that may not have run.
    started: Option<StartedRecord>,
    exit: Option<ExitRecord>,
    /// Its supervisor, if that lives.
    supervisor: Option<Process>,
}

pub(crate) async fn open(config: ProcessConfig) -> Result<ProcessRuntime, OpenError> {
    let (config, lock) = take(config).await?;
    let search = config.clone();
    let (found, boot_id, cgroups) = off_thread(move || {
        let boot = procfs::boot_id(&search.proc_root);
        Ok((find_pods(&search, &boot)?, boot, Cgroups::new(&search)))
    })
    .await?;
    let (alive_end, alive) = watch::channel(());
    let context = Arc::new(Context {
        cgroups,
        changes: broadcast::Sender::new(CHANGES),
        starts: Arc::new(Semaphore::new(config.parallel_starts.max(1))),
        alive,
        boot_id,
        asked: stop_marker::notes(),
        config,
    });
    if let Some(why) = context.cgroups.missing() {
        tracing::info!(why, "not every limit of pods can be enforced");
    }
    let mut pods = HashMap::with_capacity(found.len());
    for pod in found {
        let entry = adopt(&context, pod)?;
        pods.insert(entry.uid().clone(), entry);
    }
    Ok(ProcessRuntime::assemble(context, pods, lock, alive_end))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| OpenError::Ending)?
}

/// Makes the directories, which the configuration then names from the root, and takes the lock on the state
/// directory.
pub(crate) async fn take(config: ProcessConfig) -> Result<(ProcessConfig, File), OpenError> {
    let unusable = |path: PathBuf| move |source| OpenError::Unusable { path, source };
    let config = config.absolute().map_err(|(path, source)| unusable(path)(source))?;
    let (state, pods, logs) =
        (config.state_dir.clone(), paths::pods(&config), config.log_dir.clone());
    let make = move || {
        record::make_passage(&state)
            .and_then(|()| record::make_passage(&pods))
            .and_then(|()| record::make_dirs(&logs))
            .map_err(|error| OpenError::Unusable { path: error.path, source: error.source })
    };
    off_thread(make).await?;
    let path = config.state_dir.join("lock");
    let taken = state_lock::take(&path).await.map_err(unusable(path))?;
    let lock = taken.ok_or_else(|| OpenError::InUse(config.state_dir.clone()))?;
    Ok((config, lock))
}

fn find_pods(config: &ProcessConfig, boot: &str) -> Result<Vec<FoundPod>, OpenError> {
    let root = paths::pods(config);
    let dirs = entries(&root)?.into_iter().filter(|path| path.is_dir());
    dirs.filter_map(|dir| find_pod(config, &dir, boot).transpose()).collect()
}

/// None if it is no pod's directory.
fn find_pod(config: &ProcessConfig, dir: &Path, boot: &str) -> Result<Option<FoundPod>, OpenError> {
    let Some(uid) = dir.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let uid = PodUid::new(uid);
    let mut containers = Vec::new();
    for path in entries(dir)?.into_iter().filter(|path| path.is_dir()) {
        containers.extend(find_container(config, &uid, &path, boot)?);
    }
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let known = pod_record::find(config, &uid);
    Ok(Some(FoundPod { uid, known, containers }))
}

/// What is in a directory.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let listed = std::fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let unusable = |source| OpenError::Unusable { path: dir.to_owned(), source };
    Ok(listed.map_err(unusable)?.into_iter().map(|entry| entry.path()).collect())
}

fn find_container(
    config: &ProcessConfig,
    uid: &PodUid,
    dir: &Path,
    boot: &str,
) -> Result<Option<FoundContainer>, OpenError> {
    let Some(name) = dir.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let name: Arc<str> = name.into();
    let number = |path: PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = entries(dir)?.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    let mut attempts = Vec::with_capacity(numbers.len());
    for number in numbers {
        attempts.extend(find_attempt(config, dir, number, boot)?);
    }
    let Some(newest) = attempts.last() else { return Ok(None) };
    let is_of_this_boot = newest.started.as_ref().is_some_and(|started| started.boot_id == boot);
    let is_orphaned =
        newest.supervisor.is_none() && is_of_this_boot && !record::is_cleaned_up(&newest.dir);
    let ended = || watcher::end_leftovers(config, (uid, &name), &newest.record.cgroups);
    if is_orphaned && !ended() {
        tracing::error!(%uid, container = %name, "processes left by a dead supervisor survive SIGKILL");
    }
    Ok(Some(FoundContainer { name, attempts }))
}

/// What is known of an attempt. One that never ran is removed: its number is free again.
fn find_attempt(
    config: &ProcessConfig,
    container: &Path,
    number: u32,
    boot: &str,
) -> Result<Option<FoundAttempt>, OpenError> {
    let dir = container.join(number.to_string());
    let unusable = |source| OpenError::Unusable { path: dir.clone(), source };
    let supervisor = living_supervisor(config, &dir).map_err(unusable)?;
    let started: Option<StartedRecord> =
        record::look(&dir.join(record::STARTED)).map_err(unusable)?;
    let record: Option<AttemptRecord> =
        record::look(&dir.join(record::ATTEMPT)).map_err(unusable)?;
    // A power cut loses the record of the start, which is written in the background: what is known
    // of an earlier boot is that it may have run, and a pod that runs once must not run again.
    let may_have_run = |r: &AttemptRecord| started.is_some() || is_earlier(&r.boot_id, boot);
    let Some(record) = record.filter(may_have_run) else {
        // Without these records nothing was run, and a supervisor that is still there hangs.
        if let Some(supervisor) = &supervisor {
            let _ = supervisor.signal(Signal::KILL);
            supervisor.ended_within(1000);
            supervisor.reap();
        }
        let _ = std::fs::remove_dir_all(&dir);
        return Ok(None);
    };
    let exit = record::read(&dir.join(record::EXIT));
    Ok(Some(FoundAttempt { number, dir, record, started, exit, supervisor }))
}

/// Whether a record says that it is of another boot than this one.
fn is_earlier(boot_id: &str, boot: &str) -> bool {
    !boot_id.is_empty() && boot_id != boot
}

/// The supervisor of an attempt, once it has said who it is or has ended.
///
/// # Errors
/// Whether there is one cannot be seen (no descriptor is left, for example). That is not "none": what
/// it supervises would be killed for an orphan.
fn living_supervisor(config: &ProcessConfig, dir: &Path) -> io::Result<Option<Process>> {
    let mut unnamed: Option<Process> = None;
    for _ in 0..STARTING_ROUNDS {
        if !start::is_supervised(dir)? {
            return Ok(None);
        }
        if let Some(started) = record::look::<StartedRecord>(&dir.join(record::STARTED))? {
            return Process::open(&config.proc_root, started.supervisor);
        }
        // The agent died while this one was being started: it is about to say, or to give up.
        if unnamed.is_none() {
            unnamed = start::find_supervisor(&config.proc_root, dir)?;
        }
        let Some(supervisor) = &unnamed else { return Ok(None) };
        supervisor.ended_within(20);
    }
    Ok(unnamed)
}

fn adopt(context: &Arc<Context>, found: FoundPod) -> Result<Arc<PodEntry>, OpenError> {
    let entry = Arc::new(PodEntry::new(found.uid, context.changes.clone()));
    let mut watched = Vec::new();
    {
        let mut state = entry.lock();
        for container in found.containers {
            let kind = kind_of(found.known.pod.as_ref(), &container.name);
            let mut adopted = Container::new(Arc::clone(&container.name), kind);
            for attempt in container.attempts {
                let dir = attempt.dir.clone();
                let (run, ended) = resume(context, &container.name, attempt)
                    .map_err(|source| OpenError::Unusable { path: dir, source })?;
                watched.extend(ended);
                adopted.last_exit = adopted.run.take().and_then(|old| old.end).map(|e| e.exit);
                adopted.run = Some(run);
            }
            state.containers.push(adopted);
        }
        state.started_at = found.known.started_at;
        if let Some(pod) = &found.known.pod {
            state.take_pod(pod);
        }
    }
    for (watched, ended) in watched {
        watcher::watch(context, &entry, watched, ended);
    }
    Ok(entry)
}

/// The attempt as a run, and what to wait for if it goes on.
///
/// # Errors
/// A process that runs cannot be held: no descriptor is left, for example.
fn resume(
    context: &Context,
    name: &Arc<str>,
    found: FoundAttempt,
) -> io::Result<(Run, Option<(Watched, Ready)>)> {
    let config = &context.config;
    let now = config.wall.now();
    let started = found.started.as_ref();
    let started_at = started.map_or(found.record.created_at, |started| started.started_at);
    let backoff = Duration::from_millis(found.record.backoff_ms);
    let is_of_this_boot = started.is_some_and(|started| started.boot_id == context.boot_id);
    let asked = stop_marker::was_asked(&found.dir);
    let main = match started.filter(|_| is_of_this_boot) {
        Some(started) => Process::open(&config.proc_root, started.main)?,
        None => None,
    };
    let mut run = Run {
        attempt: found.number,
        started_at,
        backoff,
        supervisor: None,
        main: main.map(Arc::new),
        cgroups: found.record.cgroups.clone(),
        probe_state: ProbeState::ADOPTED,
        is_of_earlier_boot: !is_of_this_boot,
        ending: false,
        // When exactly is not known any more, but it was: it is not asked twice.
        signalled_at: asked.then(Instant::now),
        forced: false,
        end: None,
    };
    let Some(supervisor) = found.supervisor else {
        let past = Past { backoff, is_of_this_boot, asked, now };
        run.end = Some(past.end(config, started_at, found.exit));
        run.main = None;
        return Ok((run, None));
    };
    let ended = supervisor.duplicate().and_then(Ready::new)?;
    let supervisor = Arc::new(supervisor);
    run.supervisor = Some(Arc::clone(&supervisor));
    let (name, attempt, dir) = (Arc::clone(name), found.number, found.dir);
    Ok((run, Some((Watched { name, attempt, dir, supervisor }, ended))))
}

/// What a run's end is judged by after the fact.
struct Past {
    backoff: Duration,
    is_of_this_boot: bool,
    asked: bool,
    now: WallTime,
}

impl Past {
    fn end(&self, config: &ProcessConfig, started_at: WallTime, exit: Option<ExitRecord>) -> End {
        let Some(record) = exit else {
            let exit = watcher::unknown_exit(Some(started_at), self.now);
            return End {
                exit,
                ran: Duration::ZERO,
                asked: self.asked,
                restart_at: self.due(config, Duration::ZERO, None),
            };
        };
        let ran = Duration::from_millis(record.ran_ms);
        let restart_at = self.due(config, ran, Some(record.finished_at));
        End { exit: watcher::recorded_exit(record), ran, asked: self.asked, restart_at }
    }

    /// When it may be started again. The wall clock may have jumped: never later than its back-off
    /// from now. A restart of the machine is not a crash of the container.
    fn due(&self, config: &ProcessConfig, ran: Duration, finished: Option<WallTime>) -> Instant {
        if !self.is_of_this_boot || self.asked {
            return Instant::now();
        }
        let wait = config.backoff.after(self.backoff, ran);
        let since = finished.map_or(Duration::ZERO, |at| {
            Duration::try_from(self.now.duration_since(at)).unwrap_or_default()
        });
        Instant::now() + wait.saturating_sub(since)
    }
}
