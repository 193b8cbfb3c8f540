//! Containers as supervised processes of the host.
//!
//! # Behaviour
//! * `image` is neither pulled nor needed: a container's `command` (or `args`) is a program of the host. It runs in the
//!   host's namespaces; a pod with fields that cannot be honoured that way is refused, and the fields are named
//!   ([`check_supported`]).
//! * Each attempt of a container has a supervisor process ([`shim`]), which owns it. An agent that was restarted or
//!   killed finds its supervisors and containers again and continues with them ([`ProcessRuntime::open`]).
//! * The agent sends the stop signal (SIGTERM by default) to the container's main process only, as process 1 of a
//!   container would get it. SIGKILL goes to everything that the container started.
//! * Nothing is polled: the supervisor's pipe or pidfd reports exits.
//!
//! # Limits
//! * No isolation: one user's processes see and may signal each other.
//! * CPU and memory limits are enforced in cgroups that were delegated to the agent ([`CgroupParent`]); without such
//!   cgroups, pods with limits are refused.
//! * If a supervisor is killed, the remaining processes of its container are found through the container's cgroup or,
//!   without one, through their environment; a process that cleared its environment is missed, and any user can have one
//!   taken for the container's.
//! * A pod that runs as root can leave its cgroup, as it can do anything else on the host.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use winddown_engine::action_error::ActionError;
use winddown_engine::driver::StopTarget;
use winddown_engine::machine_lock::MachineLock;
use winddown_shared::{Pod, PodUid, RuntimeError, UnsupportedField};
use winddown_shim::order::ExecCommand;
use winddown_shim::procfs;

mod adopt;
pub(crate) mod cgroup;
mod end;
mod hook;
mod running;
mod start;
mod watcher;

pub use cgroup::{refused_limit, unenforced};
pub use winddown_engine::EnvironmentFacts;
pub use winddown_engine::container_plan::CrashBackoff;
/// The supervisor of one container.
pub use winddown_shim as shim;

pub use crate::programs::config::{CgroupParent, ProcessConfig, ShimCommand, Survivors};
pub use crate::programs::open::OpenError;
pub use crate::programs::support::check_supported;

use crate::programs::pod::{PodEntry, Run, Starting};
use crate::programs::stats::StatsSources;
use crate::programs::{self, CommandFiles, ProgramDriver, ProgramRuntime, blocking, launch};

/// Runs pods as supervised host processes. See the [module](self).
pub type ProcessRuntime = ProgramRuntime<Supervisors>;

type Context = programs::ProgramContext<Supervisors>;

/// The driver of [`ProcessRuntime`], which runs each container under a supervisor process.
#[derive(Debug)]
pub struct Supervisors {
    cgroups: cgroup::Cgroups,
    /// Held while the runtime exists.
    #[allow(dead_code, reason = "what counts is that it is held")]
    on_machine: Option<MachineLock>,
}

impl ProcessRuntime {
    /// Takes over the state directory and every pod that runs from it.
    ///
    /// Containers whose supervisor still runs are adopted with their pids. The remaining processes of all others are
    /// killed, and their exits are recorded.
    ///
    /// # Errors
    /// The directories cannot be created or read, or another agent uses them.
    pub async fn open(config: ProcessConfig) -> Result<Self, OpenError> {
        adopt::open(config).await
    }
}

/// Whether containers run that an agent of this state directory ([`ProcessConfig::state_dir`]) has started. Blocking.
///
/// # Errors
/// The processes cannot be listed.
pub fn has_running(proc_root: &Path, state_dir: &Path) -> io::Result<bool> {
    let pods = state_dir.join("pods");
    Ok(procfs::supervisors(proc_root)?.iter().any(|(_, attempt)| attempt.starts_with(&pods)))
}

impl ProgramDriver for Supervisors {
    const SCHEME: &'static str = "process";

    fn unsupported(&self, pod: &Pod) -> Vec<UnsupportedField> {
        let mut found = check_supported(pod);
        found.extend(self.cgroups.unenforced().field(pod));
        found
    }

    async fn start(
        context: &Arc<Context>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
        next: (u32, Duration),
    ) -> Result<(), RuntimeError> {
        start::start(context, starting, pod, name, next).await
    }

    async fn exec(
        context: &Arc<Context>,
        beside: (&Pod, &str),
        command: ExecCommand,
        files: CommandFiles,
        limit: Duration,
    ) -> Result<i32, ActionError> {
        let ran = timeout(limit, hook::exec(context, beside, command, files)).await;
        ran.map_err(|_| ActionError::Timeout)?
    }

    async fn settle(context: &Arc<Context>, entry: &Arc<PodEntry>) -> Result<(), RuntimeError> {
        end::settle(context, entry).await
    }

    async fn send_stop_signal(_: &Arc<Context>, entry: &Arc<PodEntry>, target: &StopTarget) {
        let signal = launch::stop_signal(entry.lock().pod.as_ref(), &target.name);
        end::signal_main(entry, target, signal);
    }

    async fn kill(context: &Arc<Context>, entry: &Arc<PodEntry>, target: &StopTarget, round: u32) {
        end::kill(context, entry, target, round).await;
    }

    async fn unkillable_error(
        context: &Arc<Context>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
    ) -> RuntimeError {
        end::unkillable_error(context, entry, target).await
    }

    async fn clean_up(context: &Arc<Context>, uid: &PodUid) -> Result<(), RuntimeError> {
        let (context, uid) = (Arc::clone(context), uid.clone());
        blocking(move || context.driver.cgroups.remove_pod(&uid)).await
    }

    fn stats_sources(&self, _: &PodUid, _: &str, run: &Run) -> StatsSources {
        let supervisor = run.own.supervisor.as_ref().map(|process| (process.pid(), false));
        let main = run.own.main.as_ref().map(|process| (process.pid(), true));
        StatsSources { cgroups: run.own.cgroups.clone(), unit: None, root: supervisor.or(main) }
    }

    fn pods_cgroup(&self) -> Option<String> {
        self.cgroups.path()
    }
}
