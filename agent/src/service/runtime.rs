//! The runtimes a service can run on, opened as the configuration says.

use winddown_runtimes::cri::{CriConfig, CriOpenError, CriRuntime};
use winddown_runtimes::process::{OpenError, ProcessConfig, ProcessRuntime, ShimCommand};
use winddown_shared::{Pod, RuntimeError, WallClock};

use crate::config::Config;
use crate::node::Identity;

/// Why the runtime cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeStartError {
    /// The process runtime.
    #[error("the process runtime cannot start")]
    Process(#[source] OpenError),
    /// The connection to a container runtime.
    #[error("the container runtime cannot be used (containerRuntimeEndpoint)")]
    Cri(#[source] CriOpenError),
}

/// The process runtime in the configured directories.
pub(super) async fn process(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<ProcessRuntime, RuntimeStartError> {
    let mut process = ProcessConfig::new(
        config.state_directory.join("process"),
        &config.pod_logs_dir,
        ShimCommand::subcommand("shim"),
        wall.clone(),
    );
    process.node.name.clone_from(&identity.name);
    process.log_max_bytes = config.container_log_max_size;
    process.log_max_files = config.container_log_max_files;
    ProcessRuntime::open(process).await.map_err(RuntimeStartError::Process)
}

/// The container runtime at the configured socket; it need not be there yet.
pub(super) fn cri(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<CriRuntime, RuntimeStartError> {
    let mut cri = CriConfig::new(
        &*config.container_runtime_endpoint,
        config.state_directory.join("cri"),
        &config.pod_logs_dir,
        wall.clone(),
    );
    cri.node.name.clone_from(&identity.name);
    cri.log_max_bytes = config.container_log_max_size;
    cri.log_max_files = config.container_log_max_files;
    CriRuntime::open(cri).map_err(RuntimeStartError::Cri)
}

/// Whether the process runtime can do all that the pod asks for.
///
/// # Errors
/// [`RuntimeError::Unsupported`] with the first field that it cannot.
pub fn supports_process(pod: &Pod) -> Result<(), RuntimeError> {
    let first = winddown_runtimes::process::check_supported(pod).into_iter().next();
    first.map_or(Ok(()), |field| Err(field.into()))
}

/// Whether a container runtime can do all that the pod asks for.
pub(super) fn supports_cri(pod: &Pod) -> Result<(), RuntimeError> {
    let first = winddown_runtimes::cri::check_supported(pod).into_iter().next();
    first.map_or(Ok(()), |field| Err(field.into()))
}

/// How the container runtime is: what is wrong, for people.
pub(super) fn cri_health(runtime: &CriRuntime) -> Result<(), String> {
    let health = runtime.health();
    health.borrow().trouble().map_or(Ok(()), Err)
}
