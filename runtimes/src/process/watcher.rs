//! Hears the end of a run and enters it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;
use winddown_engine::files;
use winddown_engine::ready::Ready;
use winddown_engine::stopping::UNKNOWN_END;
use winddown_shared::{ContainerExit, PodUid, WallTime};
use winddown_shim::members;
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::{self, AttemptRecord, ExitRecord};

use super::Context;
use crate::programs::config::ProcessConfig;
use crate::programs::pod::{End, PodEntry};

/// How long killed processes may take to be gone before they are looked for again, in ms.
const KILL_WAIT_MS: u16 = 500;
/// How often they are looked for before the container counts as one that survives SIGKILL.
const KILL_ROUNDS: usize = 6;

/// The run to watch.
pub(crate) struct Watched {
    pub(crate) name: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) dir: PathBuf,
    pub(crate) supervisor: Arc<Process>,
}

/// Watches a run until nothing of it is left. `ended` becomes readable when that is so: the
/// supervisor's pipe, or the pidfd of an adopted one.
///
/// Costs one small task and two descriptors, and nothing while the container runs.
pub(crate) fn watch(context: &Arc<Context>, entry: &Arc<PodEntry>, watched: Watched, ended: Ready) {
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let mut alive = context.alive.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = follow(&context, &entry, watched, ended) => {}
            // The runtime is dropped: its pods go on without it.
            _ = alive.changed() => {}
        }
    });
}

/// Kills every process that is in the container's cgroups or carries its marks. True if none is left.
///
/// For when the supervisor is gone; it does this itself otherwise, and misses none. Blocks.
pub(crate) fn end_leftovers(
    config: &ProcessConfig,
    (uid, name): (&PodUid, &str),
    cgroups: &[PathBuf],
) -> bool {
    if !members::end(cgroups) {
        return false;
    }
    let marked = || procfs::marked(&config.proc_root, uid.as_str(), name);
    for _ in 0..KILL_ROUNDS {
        // What cannot be listed is not gone.
        let Ok(left) = marked() else { return false };
        if left.is_empty() {
            return true;
        }
        let open = |seen| Process::open(&config.proc_root, seen).ok().flatten();
        let held: Vec<Process> = left.into_iter().filter_map(open).collect();
        for process in &held {
            let _ = process.signal(Signal::KILL);
        }
        for process in &held {
            process.ended_within(KILL_WAIT_MS);
            process.reap();
        }
    }
    marked().is_ok_and(|left| left.is_empty())
}

/// The report of a run whose end was not observed.
pub(crate) fn unknown_exit(started_at: Option<WallTime>, now: WallTime) -> ContainerExit {
    ContainerExit {
        exit_code: 137,
        signal: None,
        reason: UNKNOWN_END.into(),
        message: "the container ended and its exit code was not recorded".to_owned(),
        started_at,
        finished_at: Some(now),
    }
}

/// What the supervisor wrote down.
pub(crate) fn recorded_exit(record: ExitRecord) -> ContainerExit {
    ContainerExit {
        exit_code: record.exit_code,
        signal: record.signal,
        reason: record.reason.into(),
        message: record.message,
        started_at: Some(record.started_at),
        finished_at: Some(record.finished_at),
    }
}

async fn follow(context: &Arc<Context>, entry: &Arc<PodEntry>, watched: Watched, ended: Ready) {
    if ended.readable().await.is_err() {
        return;
    }
    drop(ended);
    // Small, local and just written: read from the page cache, cheaper than handing it to a thread.
    if !record::is_cleaned_up(&watched.dir) {
        end_unsupervised(context, entry, &watched).await;
    }
    let record = record::read::<ExitRecord>(&watched.dir.join(record::EXIT));
    enter_end(&context.config, entry, (&watched.name, watched.attempt), record);
    entry.announce();
    let Ok(supervisor) = watched.supervisor.duplicate().and_then(Ready::new) else { return };
    if supervisor.readable().await.is_ok() {
        watched.supervisor.reap();
    }
    let dir = watched.dir;
    let _ = tokio::task::spawn_blocking(move || {
        let attempt: Option<AttemptRecord> = record::read(&dir.join(record::ATTEMPT));
        let cgroups = attempt.map(|attempt| attempt.cgroups).unwrap_or_default();
        // What a hook left there, and what escaped its supervisor.
        members::end(&cgroups);
        for cgroup in cgroups {
            let _ = members::remove(&cgroup);
        }
        prune(&dir);
    })
    .await;
}

/// The supervisor was killed: what it supervised is ended in its cgroups and by its marks. Resolves when
/// nothing is left, however long that takes: until then the container does run.
async fn end_unsupervised(context: &Arc<Context>, entry: &Arc<PodEntry>, watched: &Watched) {
    let mut wait = Duration::from_secs(1);
    loop {
        let (config, uid, name) =
            (context.config.clone(), entry.uid().clone(), Arc::clone(&watched.name));
        let cgroups = {
            let mut state = entry.lock();
            state.run(&watched.name, watched.attempt).map(|run| run.cgroups.clone())
        };
        let end = move || end_leftovers(&config, (&uid, &name), &cgroups.unwrap_or_default());
        let done = tokio::task::spawn_blocking(end).await;
        if done.unwrap_or(true) {
            return;
        }
        tracing::error!(uid = %entry.uid(), container = %watched.name,
            "processes of a container whose supervisor died survive SIGKILL");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(60));
    }
}

/// Enters the end of a run; without a record its end was not observed.
pub(crate) fn enter_end(
    config: &ProcessConfig,
    entry: &PodEntry,
    (name, attempt): (&str, u32),
    record: Option<ExitRecord>,
) {
    let mut state = entry.lock();
    let stopping = state.stop.is_some();
    let Some(run) = state.run(name, attempt) else { return };
    if run.end.is_some() {
        return;
    }
    let asked = stopping && run.signalled_at.is_some();
    let (exit, ran) = match record {
        Some(record) => {
            let ran = Duration::from_millis(record.ran_ms);
            (recorded_exit(record), ran)
        }
        None => (unknown_exit(Some(run.started_at), config.wall.now()), Duration::ZERO),
    };
    run.main = None;
    run.probe_state.ready = false;
    let wait = if asked { Duration::ZERO } else { config.backoff.after(run.backoff, ran) };
    run.end = Some(End { exit, ran, asked, restart_at: Instant::now() + wait });
}

/// Removes the records of all but the last two attempts of the container whose attempt `dir` is.
pub(crate) fn prune(dir: &std::path::Path) {
    let Some((parent, number)) = dir.parent().zip(number(dir)) else { return };
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(old) = self::number(&path).filter(|n| n.saturating_add(1) < number) else {
            continue;
        };
        let log = record::read::<AttemptRecord>(&path.join(record::ATTEMPT)).map(|r| r.log);
        if std::fs::remove_dir_all(&path).is_ok() {
            tracing::debug!(attempt = old, path = %path.display(), "removed the records of an old attempt");
        }
        if let Some(log) = log {
            files::remove_log(&log);
        }
    }
}

fn number(dir: &std::path::Path) -> Option<u32> {
    dir.file_name()?.to_str()?.parse().ok()
}
