//! What the runtimes of programs of the host have in common: the pass over a pod, its probes and hooks, and
//! whom to end. How a program is run and ended is theirs: [`process`](crate::process) supervises it,
//! [`systemd`](crate::systemd) has the service manager do so.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_shared::{Grace, Pod, RuntimeError};
use winddown_shim::order::Command;

use crate::programs::config::ProcessConfig;
use crate::programs::pod::{PodEntry, Starting};

pub(crate) mod config;
pub(crate) mod ending;
pub(crate) mod hook;
pub(crate) mod launch;
pub(crate) mod paths;
pub(crate) mod pod;
pub(crate) mod pod_record;
mod probe;
pub(crate) mod status;
pub(crate) mod stop_marker;
pub(crate) mod support;
pub(crate) mod sync;

use ending::Target;
use hook::HookError;

/// A way to run programs of the host as containers.
pub(crate) trait Programs: Send + Sync + 'static {
    /// Of the ids of its containers.
    const SCHEME: &'static str;

    fn config(&self) -> &ProcessConfig;

    /// Tells when the runtime is gone.
    fn alive(&self) -> watch::Receiver<()>;

    /// Starts the next attempt of the pod's container `name`. Resolves when it runs; at once with
    /// nothing done if the pod is being stopped. A start that is dropped may go on, counted in
    /// `starting`.
    ///
    /// # Errors
    /// It could not be started, or that it was is not known.
    fn start(
        self: &Arc<Self>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Runs a command beside the pod's container. Dropping the future ends it and whatever it forked;
    /// `limit` is when that will be at the latest.
    ///
    /// # Errors
    /// The command failed, or could not be run.
    fn exec(
        self: &Arc<Self>,
        beside: (&Pod, &str),
        command: Command,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<(), HookError>> + Send;

    /// Whether an error of a probe says something about the container.
    fn is_answer(error: &HookError) -> bool;

    /// Asks a container to end, once, and kills it when the grace is over. Resolves when it has ended.
    ///
    /// # Errors
    /// It survives SIGKILL, or whether it does is not known.
    fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: Target,
        grace: Grace,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
}
