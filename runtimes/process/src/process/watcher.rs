//! Watches for the end of a run and records it.

use std::path::PathBuf;
use std::sync::Arc;

use winddown_engine::pod;
use winddown_host::ready::Ready;
use winddown_shared::{PodUid, Retry, critical};
use winddown_shim::members;
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::{self, AttemptRecord};

use super::{Context, end};
use crate::programs::config::ProcessConfig;
use crate::programs::exits;
use crate::programs::pod::PodEntry;

pub(crate) struct WatchedRun {
    pub(crate) name: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) dir: PathBuf,
    pub(crate) supervisor: Arc<Process>,
}

/// Watches a run until none of its processes is left. `ended` becomes readable at that point: it is the supervisor's
/// pipe, or the pidfd of an adopted supervisor.
///
/// Costs one small task and two file descriptors, and no work while the container runs. Without it the container would
/// count as running for ever, so its failure is the process'.
pub(crate) fn watch(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    watched: WatchedRun,
    ended: Ready,
) {
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let mut alive = context.alive.clone();
    critical::spawn("watcher of a container", async move {
        tokio::select! {
            () = follow(&context, &entry, watched, ended) => {}
            // The runtime was dropped: its pods continue without it.
            _ = alive.changed() => {}
        }
    });
}

/// Kills every process that is in the container's cgroups or carries its marks. Returns whether none is left.
///
/// For use when the supervisor is gone; otherwise the supervisor does this itself, and misses none. Blocks.
pub(crate) fn end_leftovers(
    config: &ProcessConfig,
    (uid, name): (&PodUid, &str),
    cgroups: &[PathBuf],
) -> bool {
    let open = |seen| Process::open(&config.proc_root, seen).ok().flatten();
    members::end(cgroups)
        && members::end_all(
            || procfs::marked(&config.proc_root, (uid.as_str(), name), cgroups),
            |left| left.into_iter().filter_map(open).collect(),
        )
}

async fn follow(context: &Arc<Context>, entry: &Arc<PodEntry>, watched: WatchedRun, ended: Ready) {
    let record = tokio::select! {
        ended = ended.readable() => {
            // Fails only when the async runtime shuts down: the container continues without this agent.
            if ended.is_err() {
                return;
            }
            // Small, local and just written: reading it from the page cache is cheaper than using another thread.
            if !exits::until_readable(&watched.dir, record::is_cleaned_up).await {
                end_unsupervised(context, entry, &watched).await;
            }
            exits::read(&watched.dir).await
        }
        () = ended_unrecorded(context, entry, &watched) => {
            tracing::warn!(uid = %entry.uid(), container = %watched.name,
                "a container has exited, and its supervisor waits for a disk: its exit code is not known");
            None
        }
    };
    drop(ended);
    exits::enter(&context.config, entry, (&watched.name, watched.attempt), record);
    entry.announce();
    // Without a file descriptor to wait with, what it left is killed at once.
    if let Ok(supervisor) = watched.supervisor.duplicate().and_then(Ready::new)
        && supervisor.readable().await.is_ok()
    {
        watched.supervisor.reap();
    }
    let dir = watched.dir;
    let _ = tokio::task::spawn_blocking(move || {
        let attempt: Option<AttemptRecord> = record::read(&dir.join(record::ATTEMPT));
        let cgroups = attempt.map(|attempt| attempt.cgroups).unwrap_or_default();
        // Processes that a hook left there, or that escaped the supervisor.
        members::end(&cgroups);
        for cgroup in cgroups {
            let _ = members::remove(&cgroup);
        }
        exits::prune(&dir);
    })
    .await;
}

/// Resolves when the container of a pod that is being stopped has exited and its supervisor cannot say so, because the disk
/// for its record hangs. Of any other pod the exit code counts, and is waited for.
async fn ended_unrecorded(context: &Arc<Context>, entry: &PodEntry, watched: &WatchedRun) {
    pod::stopping(entry).await;
    let main =
        entry.lock().attempt(&watched.name, watched.attempt).and_then(|r| r.own.main.clone());
    let Some(Ok(main)) = main.map(|main| main.duplicate().and_then(Ready::new)) else {
        return std::future::pending().await;
    };
    if main.readable().await.is_err() {
        return std::future::pending().await;
    }
    let patience = entry.lock().exit_report_timeout();
    tokio::time::sleep(patience).await;
    let mut retries = Retry::UNRECORDED.backoff();
    while !end::is_alone(context, entry, &watched.name, watched.attempt).await {
        tokio::time::sleep(retries.next_delay()).await;
    }
}

/// Handles a supervisor that was killed: kills its processes through the cgroups and by their marks. Resolves when none
/// is left, however long that takes: until then the container still runs.
async fn end_unsupervised(context: &Arc<Context>, entry: &Arc<PodEntry>, watched: &WatchedRun) {
    let mut retries = Retry::UNSUPERVISED.backoff();
    loop {
        let (config, uid, name) =
            (context.config.clone(), entry.uid().clone(), Arc::clone(&watched.name));
        let cgroups = {
            let mut state = entry.lock();
            state.attempt(&watched.name, watched.attempt).map(|run| run.own.cgroups.clone())
        };
        let end = move || end_leftovers(&config, (&uid, &name), &cgroups.unwrap_or_default());
        let done = tokio::task::spawn_blocking(end).await;
        if done.unwrap_or(false) {
            return;
        }
        tracing::error!(uid = %entry.uid(), container = %watched.name,
            "processes of a container whose supervisor died survive SIGKILL");
        tokio::time::sleep(retries.next_delay()).await;
    }
}
