//! Measures the resource usage of pods.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::files;
use winddown_engine::stats::{CgroupDirs, Figures, PodDirs, reclaim_memory, remove_rotated_logs};
use winddown_shared::{Freed, Garbage, MemoryFigure, PodStats, PodUid, RuntimeError};

use super::config::ProcessConfig;
use super::pod::{PodEntry, PodState, logs_of};
use super::{ProgramContext, ProgramDriver, ProgramRuntime, blocking, paths};

pub(crate) mod processes;

use processes::MachineProcesses;

/// The mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Where the resource usage of a run can be read.
#[derive(Debug, Default)]
pub(crate) struct StatsSources {
    /// Its own cgroups, one in each hierarchy.
    pub(crate) cgroups: Vec<PathBuf>,
    /// A process of the run, and the name of the unit whose cgroup contains it.
    pub(crate) unit: Option<(i32, String)>,
    /// The ancestor of all processes of the container, and whether it is one of them: the main process is, the
    /// supervisor is not.
    pub(crate) root: Option<(i32, bool)>,
}

/// The sources of a pod's containers; none of those that have exited.
type Sources = Vec<(Arc<str>, Option<StatsSources>)>;

/// The usage of the pods, see [`Runtime::pod_stats`](winddown_shared::Runtime::pod_stats).
pub(super) async fn of_pods<D: ProgramDriver>(
    runtime: &ProgramRuntime<D>,
    disk_age: Option<Duration>,
) -> Result<Vec<(PodUid, PodStats)>, RuntimeError> {
    let entries = runtime.context.pods.all();
    let config = &runtime.context.config;
    if let Some(age) = disk_age {
        let places = entries.iter().filter_map(|entry| places(config, entry)).collect();
        runtime.disk.refresh(places, age).await;
    }
    let pods: Vec<_> = entries
        .iter()
        .map(|entry| (entry.uid().clone(), sources(&runtime.context, entry.uid(), &entry.lock())))
        .filter(|(_, containers)| !containers.is_empty())
        .collect();
    let proc_root = config.proc_root.clone();
    let mut measured = blocking(move || Ok(measure(&proc_root, pods))).await?;
    for (uid, stats) in &mut measured {
        runtime.disk.enter(uid, stats);
    }
    Ok(measured)
}

/// Removes what no pod needs, see [`Runtime::collect_garbage`](winddown_shared::Runtime::collect_garbage).
pub(super) async fn collect<D: ProgramDriver>(
    context: &ProgramContext<D>,
    what: Garbage,
) -> Result<Freed, RuntimeError> {
    match what {
        Garbage::DeadContainers => remove_logs_of_dead(context).await,
        Garbage::RotatedLogs => {
            let (entries, config) = (context.pods.all(), &context.config);
            remove_rotated_logs(entries.iter().filter_map(|entry| places(config, entry))).await
        }
        // Programs of the host have none.
        Garbage::UnusedImages { .. } => Ok(Freed::default()),
    }
}

/// Removes the logs of stopped pods: logs may be what fills the disk. Other pods have no dead containers: whenever
/// a run ends, all but the last two attempts are removed with their logs.
async fn remove_logs_of_dead<D: ProgramDriver>(
    context: &ProgramContext<D>,
) -> Result<Freed, RuntimeError> {
    let entries = context.pods.all();
    let logs: Vec<PathBuf> =
        entries.iter().flat_map(|entry| logs_of_dead(&context.config, entry)).collect();
    blocking(move || {
        let removed = logs.iter().filter(|log| files::remove_log(log)).count();
        Ok(Freed::new(u64::try_from(removed).unwrap_or(u64::MAX), 0))
    })
    .await
}

/// Has the kernel reclaim memory from a pod, see [`Runtime::reclaim_memory`](winddown_shared::Runtime::reclaim_memory).
pub(super) async fn take_back<D: ProgramDriver>(
    context: &ProgramContext<D>,
    uid: &PodUid,
    figure: MemoryFigure,
    bytes: u64,
    time: Duration,
) -> Result<Freed, RuntimeError> {
    let Some(entry) = context.pods.get(uid) else { return Ok(Freed::default()) };
    let sources = sources(context, uid, &entry.lock());
    let proc_root = context.config.proc_root.clone();
    let find = move || {
        let running = sources.iter().filter_map(|(_, sources)| sources.as_ref());
        running.filter_map(|sources| cgroup_of(&proc_root, sources)).collect()
    };
    reclaim_memory(find, figure, bytes, time).await
}

fn places(config: &ProcessConfig, entry: &PodEntry) -> Option<PodDirs> {
    let (logs, names) = {
        let state = entry.lock();
        let logs = logs_of(&state, config, entry.uid())?;
        let names = state.containers.iter().map(|c| Arc::clone(&c.name));
        (logs, names.collect::<Vec<_>>())
    };
    Some(PodDirs {
        uid: entry.uid().clone(),
        logs: names.into_iter().map(|name| (name.clone(), logs.join(&*name))).collect(),
        volumes: Vec::new(),
        in_memory: Vec::new(),
        made: Vec::new(),
        other: vec![paths::pod(config, entry.uid())],
    })
}

/// Returns the logs of the last two runs of each container, if the pod was stopped and no longer runs.
fn logs_of_dead(config: &ProcessConfig, entry: &PodEntry) -> Vec<PathBuf> {
    let state = entry.lock();
    let Some(logs) = logs_of(&state, config, entry.uid()) else { return Vec::new() };
    if !state.is_over() {
        return Vec::new();
    }
    let runs = state.containers.iter().filter_map(|c| Some((&c.name, c.run.as_ref()?.attempt)));
    let both = runs.flat_map(|(name, last)| {
        let attempts = last.saturating_sub(1)..=last;
        attempts.map(|attempt| logs.join(files::run_log(name, attempt))).collect::<Vec<_>>()
    });
    both.collect()
}

fn sources<D: ProgramDriver>(
    context: &ProgramContext<D>,
    uid: &PodUid,
    state: &PodState,
) -> Sources {
    let one = |container: &super::pod::Container| {
        let running = container.run.as_ref().filter(|run| run.is_running());
        let sources = running.map(|run| context.driver.stats_sources(uid, &container.name, run));
        (Arc::clone(&container.name), sources)
    };
    state.measured().into_iter().map(one).collect()
}

fn cgroup_of(proc_root: &Path, sources: &StatsSources) -> Option<CgroupDirs> {
    let of_unit = |(pid, unit): &(i32, String)| {
        CgroupDirs::of_process((proc_root, Path::new(CGROUPS)), *pid, unit)
    };
    let own = CgroupDirs::among(&sources.cgroups);
    own.or_else(|| sources.unit.as_ref().and_then(of_unit))
}

/// Measures the containers through their cgroups, and through their processes where the cgroups lack a value.
fn measure(proc_root: &Path, pods: Vec<(PodUid, Sources)>) -> Vec<(PodUid, PodStats)> {
    // One scan of all processes serves all containers, and is skipped if it is not needed.
    let mut processes = None;
    let mut of_container = |sources: &StatsSources| {
        let own = cgroup_of(proc_root, sources).map(|dirs| Figures::of(&dirs)).unwrap_or_default();
        let Some(root) = sources.root.filter(|_| processes::can_complete(&own)) else { return own };
        let all = processes.get_or_insert_with(|| MachineProcesses::look(proc_root));
        own.or(all.below(proc_root, root).unwrap_or_default())
    };
    let mut of_pod = |(uid, containers): (PodUid, Sources)| {
        let mut stats = PodStats::default();
        let all = containers.into_iter().filter_map(|(name, sources)| {
            let figures = sources.as_ref().map(&mut of_container);
            stats.containers.push(figures.unwrap_or_default().of_container(name));
            figures
        });
        Figures::sum(all).enter(&mut stats);
        (uid, stats)
    };
    pods.into_iter().map(&mut of_pod).collect()
}
