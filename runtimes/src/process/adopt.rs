//! Takes over what an earlier agent left running.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use rustix::process::Signal;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::time::Instant;
use winddown_shared::{Pod, PodUid, WallTime};

use super::asked;
use super::cgroup::Cgroups;
use super::config::ProcessConfig;
use super::pod::{Container, End, PodEntry, Run, kind_of};
use super::procfs::{self, Process};
use super::record::{self, AttemptRecord, ExitRecord, StartedRecord};
use super::watcher::{self, Watched};
use super::{CHANGES, Context, ProcessRuntime, paths, start};
use crate::probing::Standing;
use crate::ready::Ready;
use crate::state_lock;

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
    pod: Option<Pod>,
    /// When its record was written, which is when it was first started.
    started_at: Option<WallTime>,
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
    started: StartedRecord,
    exit: Option<ExitRecord>,
    /// Its supervisor, if that lives.
    supervisor: Option<Process>,
}

pub(crate) async fn open(config: ProcessConfig) -> Result<ProcessRuntime, OpenError> {
    let lock = take(&config).await?;
    let search = config.clone();
    let (found, boot) = off_thread(move || {
        let boot = procfs::boot_id(&search.proc_root);
        Ok((find_pods(&search, &boot)?, boot))
    })
    .await?;
    let (alive_end, alive) = watch::channel(());
    let context = Arc::new(Context {
        cgroups: Cgroups::new(config.cgroup_root.as_deref()),
        changes: broadcast::Sender::new(CHANGES),
        starts: Arc::new(Semaphore::new(config.parallel_starts.max(1))),
        alive,
        asked: asked::notes(),
        config,
    });
    if let Err(why) = context.cgroups.enforced() {
        tracing::info!(why, "CPU and memory limits of pods are not enforced");
    }
    let mut pods = HashMap::with_capacity(found.len());
    for pod in found {
        let entry = adopt(&context, pod, &boot);
        pods.insert(entry.uid().clone(), entry);
    }
    Ok(ProcessRuntime::assemble(context, pods, lock, alive_end))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| OpenError::Ending)?
}

/// Makes the directories and takes the lock on the state directory.
pub(crate) async fn take(config: &ProcessConfig) -> Result<File, OpenError> {
    let unusable = |path: PathBuf| move |source| OpenError::Unusable { path, source };
    for dir in [paths::pods(config), config.log_dir.clone()] {
        let make = move || {
            // Containers that run as another user pass through it; they cannot list it.
            let made = DirBuilder::new().recursive(true).mode(0o711).create(&dir);
            made.map_err(unusable(dir))
        };
        off_thread(make).await?;
    }
    let path = config.state_dir.join("lock");
    let taken = state_lock::take(&path).await.map_err(unusable(path))?;
    taken.ok_or_else(|| OpenError::InUse(config.state_dir.clone()))
}

fn find_pods(config: &ProcessConfig, boot: &str) -> Result<Vec<FoundPod>, OpenError> {
    let root = paths::pods(config);
    let entries = std::fs::read_dir(&root)
        .map_err(|source| OpenError::Unusable { path: root.clone(), source })?;
    let dirs = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    Ok(dirs.filter_map(|dir| find_pod(config, &dir, boot)).collect())
}

fn find_pod(config: &ProcessConfig, dir: &Path, boot: &str) -> Option<FoundPod> {
    let uid = PodUid::new(dir.file_name()?.to_str()?);
    let object: Option<api::Pod> = record::read(&dir.join(record::POD));
    let pod = object.and_then(|object| Pod::new(object).ok()).filter(|pod| *pod.uid() == uid);
    if pod.is_none() {
        tracing::warn!(dir = %dir.display(), "the pod's record is missing or damaged; only its UID is known");
    }
    let mut containers: Vec<FoundContainer> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| find_container(config, &uid, &entry.path(), boot))
        .collect();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let written = std::fs::metadata(dir.join(record::POD)).and_then(|m| m.modified());
    let started_at = written.ok().and_then(|at| WallTime::try_from(at).ok());
    Some(FoundPod { uid, pod, started_at, containers })
}

fn find_container(
    config: &ProcessConfig,
    uid: &PodUid,
    dir: &Path,
    boot: &str,
) -> Option<FoundContainer> {
    let name: Arc<str> = dir.file_name()?.to_str()?.into();
    let mut numbers: Vec<u32> = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let attempts: Vec<FoundAttempt> =
        numbers.into_iter().filter_map(|number| find_attempt(config, dir, number)).collect();
    let newest = attempts.last()?;
    let is_orphaned = newest.supervisor.is_none()
        && newest.started.boot_id == boot
        && !record::is_cleaned_up(&newest.dir);
    if is_orphaned && !watcher::end_leftovers(config, uid, &name) {
        tracing::error!(%uid, container = %name, "processes left by a dead supervisor survive SIGKILL");
    }
    Some(FoundContainer { name, attempts })
}

/// What is known of an attempt. One that never ran is removed: its number is free again.
fn find_attempt(config: &ProcessConfig, container: &Path, number: u32) -> Option<FoundAttempt> {
    let dir = container.join(number.to_string());
    let supervisor = living_supervisor(config, &dir);
    let started: Option<StartedRecord> = record::read(&dir.join(record::STARTED));
    let record: Option<AttemptRecord> = record::read(&dir.join(record::ATTEMPT));
    let (Some(started), Some(record)) = (started, record) else {
        // Without these records nothing was run, and a supervisor that is still there hangs.
        if let Some(supervisor) = &supervisor {
            let _ = supervisor.signal(Signal::KILL);
            supervisor.ended_within(1000);
            supervisor.reap();
        }
        let _ = std::fs::remove_dir_all(&dir);
        return None;
    };
    let exit = record::read(&dir.join(record::EXIT));
    Some(FoundAttempt { number, dir, record, started, exit, supervisor })
}

/// The supervisor of an attempt, once it has said who it is or has ended.
fn living_supervisor(config: &ProcessConfig, dir: &Path) -> Option<Process> {
    let mut unnamed: Option<Process> = None;
    for _ in 0..STARTING_ROUNDS {
        if !start::is_supervised(dir) {
            return None;
        }
        if let Some(started) = record::read::<StartedRecord>(&dir.join(record::STARTED)) {
            let id = started.supervisor;
            return Process::open(&config.proc_root, id.pid, id.start_time).ok().flatten();
        }
        // The agent died while this one was being started: it is about to say, or to give up.
        unnamed = unnamed.or_else(|| start::find_supervisor(&config.proc_root, dir));
        unnamed.as_ref()?.ended_within(20);
    }
    unnamed
}

fn adopt(context: &Arc<Context>, found: FoundPod, boot: &str) -> Arc<PodEntry> {
    let entry = Arc::new(PodEntry::new(found.uid, context.changes.clone()));
    let mut watched = Vec::new();
    {
        let mut state = entry.lock();
        for container in found.containers {
            let kind = kind_of(found.pod.as_ref(), &container.name);
            let mut adopted = Container::new(Arc::clone(&container.name), kind);
            for attempt in container.attempts {
                let (run, ended) = resume(context, &container.name, attempt, boot);
                watched.extend(ended);
                adopted.last_exit = adopted.run.take().and_then(|old| old.end).map(|e| e.exit);
                adopted.run = Some(run);
            }
            state.containers.push(adopted);
        }
        state.started_at = found.started_at;
        if let Some(pod) = &found.pod {
            state.take_pod(pod);
        }
    }
    for (watched, ended) in watched {
        watcher::watch(context, &entry, watched, ended);
    }
    entry
}

/// The attempt as a run, and what to wait for if it goes on.
fn resume(
    context: &Context,
    name: &Arc<str>,
    found: FoundAttempt,
    boot: &str,
) -> (Run, Option<(Watched, Ready)>) {
    let config = &context.config;
    let now = config.wall.now();
    let started_at = found.started.started_at;
    let backoff = Duration::from_millis(found.record.backoff_ms);
    let is_of_this_boot = found.started.boot_id == boot;
    let asked = asked::was_asked(&found.dir);
    let id = found.started.main;
    let main = Process::open(&config.proc_root, id.pid, id.start_time).ok().flatten();
    let mut run = Run {
        attempt: found.number,
        started_at,
        backoff,
        supervisor: None,
        main: main.map(Arc::new),
        cgroup: found.record.cgroup.clone(),
        standing: Standing::ADOPTED,
        ending: false,
        // When exactly is not known any more, but it was: it is not asked twice.
        signalled_at: asked.then(Instant::now),
        forced: false,
        end: None,
    };
    let watched = found.supervisor.and_then(|supervisor| {
        let ended = supervisor.duplicate().and_then(Ready::new);
        let supervisor = Arc::new(supervisor);
        run.supervisor = Some(Arc::clone(&supervisor));
        let (name, attempt, dir) = (Arc::clone(name), found.number, found.dir.clone());
        ended.ok().map(|ended| (Watched { name, attempt, dir, supervisor }, ended))
    });
    if watched.is_none() {
        let past = Past { backoff, is_of_this_boot, asked, now };
        run.end = Some(past.end(config, started_at, found.exit));
        run.main = None;
    }
    (run, watched)
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
