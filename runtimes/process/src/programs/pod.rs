//! The in-memory state of a pod that is specific to runtimes of programs.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use winddown_engine::disk_notes::NotedRun;
use winddown_engine::files;
use winddown_engine::pod::{self, RunScope};
use winddown_shared::{PodUid, WallTime};
use winddown_shim::procfs::Process;

use super::config::ProcessConfig;
use super::{paths, pod_record};

pub(crate) type PodEntry = pod::PodEntry<Boot>;
pub(crate) type PodState = pod::EnginePodState<Boot>;
pub(crate) type Container = pod::Container<Boot>;
pub(crate) type Run = pod::Run<Boot>;
pub(crate) type Starting = pod::StartInProgress<Boot>;

/// The boot of the machine as the [`RunScope`]: programs of the host end with it.
#[derive(Debug, Default)]
pub(crate) struct Boot;

#[derive(Debug, Default)]
pub(crate) struct RunProcesses {
    /// The supervisor; none if it was gone when the agent checked.
    pub(crate) supervisor: Option<Arc<Process>>,
    /// The container's main process; none if it was gone when the agent checked.
    pub(crate) main: Option<Arc<Process>>,
    /// One cgroup in each hierarchy; empty without cgroups.
    pub(crate) cgroups: Vec<PathBuf>,
    /// Whether the machine was booted since.
    pub(crate) is_of_earlier_boot: bool,
    /// Whether the run survives a soft-reboot.
    pub(crate) survives: bool,
}

impl RunScope for Boot {
    /// Supervisors that have not reported yet that their container started.
    type Pod = Vec<Arc<Process>>;
    /// Alive while the process runtime starts the container.
    type Container = Weak<()>;
    type Run = RunProcesses;

    fn is_past(_: &Self::Pod, run: &RunProcesses) -> bool {
        run.is_of_earlier_boot
    }

    fn survives(run: &RunProcesses) -> bool {
        run.survives
    }
}

/// The id of a container's attempt.
pub(crate) fn id((uid, name, attempt): (&PodUid, &str, u32)) -> String {
    format!("{uid}/{name}/{attempt}")
}

/// Returns a run that was just started or just found running.
pub(crate) fn run(of: (&PodUid, &str, u32), started_at: WallTime, backoff: Duration) -> Run {
    let mut run = Run::new(id(of), of.2, backoff, RunProcesses::default());
    run.started_at = Some(started_at);
    run
}

/// Returns a run that an earlier agent started. One that was asked was stopped with its pod.
pub(crate) fn adopted(
    of: (&PodUid, &str, u32),
    (started_at, backoff): (WallTime, Duration),
    noted: NotedRun,
) -> Run {
    let mut run = run(of, started_at, backoff);
    run.adopt(noted);
    run
}

/// Adds a run as the newest of its container.
pub(crate) fn enter(entry: &PodEntry, name: &str, run: Run) {
    let mut state = entry.lock();
    state.started_at = state.started_at.or(run.started_at);
    if let Some(container) = state.container(name) {
        container.begin(run);
    }
}

/// Whether any container was started in this boot.
pub(crate) fn has_started(state: &PodState) -> bool {
    let mut runs = state.containers.iter().filter_map(|container| container.run.as_ref());
    runs.any(|run| !run.own.is_of_earlier_boot)
}

/// The paths to remove when the pod is forgotten; none while it runs.
pub(crate) fn places(
    state: &PodState,
    config: &ProcessConfig,
    uid: &PodUid,
) -> Option<Vec<PathBuf>> {
    if state.any_running() {
        return None;
    }
    let logs = logs_of(state, config, uid);
    // Records last: while they exist, the rest of the pod can be found.
    let whole = pod_record::whole_path(config, uid);
    Some(logs.into_iter().chain(whole).chain([paths::pod(config, uid)]).collect())
}

/// The directory of the pod's logs; none if its name is not known, because it has none and its record is lost.
pub(crate) fn logs_of(state: &PodState, config: &ProcessConfig, uid: &PodUid) -> Option<PathBuf> {
    let (namespace, name) = &state.label;
    (!name.is_empty()).then(|| files::pod_logs(&config.log_dir, namespace, name, uid))
}
