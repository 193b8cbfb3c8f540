//! Opens the state directory, which only one agent at a time uses.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use winddown_engine::machine_lock::LockHolder;
use winddown_engine::{files, state_lock};
use winddown_shim::record;

use super::config::ProcessConfig;
use super::paths;

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another agent holds the state directory.
    #[error("{} is used by another agent: stop it first", .0.display())]
    InUse(PathBuf),
    /// Another runtime has its pods in these cgroups, and each would terminate the other's.
    #[error("{} has the pods of {holder}: stop it, or give this agent a unit of its own", .path.display())]
    CgroupsInUse {
        /// The parent of all pods' cgroups.
        path: PathBuf,
        /// The other agent.
        holder: LockHolder,
    },
    /// A directory or file cannot be created or used: permissions, space or its type.
    #[error("cannot use {}", .path.display())]
    Unusable {
        /// The path of the directory or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The async runtime is shutting down.
    #[error("the agent is stopping")]
    Ending,
}

/// Runs blocking work off the async threads.
///
/// # Errors
/// Errors of `work`, or the async runtime is shutting down.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| OpenError::Ending)?
}

/// Creates the directories, makes their paths in the configuration absolute, and takes the lock on the state directory.
pub(crate) async fn take(mut config: ProcessConfig) -> Result<(ProcessConfig, File), OpenError> {
    let unusable = |path: PathBuf| move |source| OpenError::Unusable { path, source };
    let volatile =
        config.volatile_dir.iter_mut().chain(&mut config.notice_dir).chain(&mut config.log_links);
    let all = volatile.chain([&mut config.state_dir, &mut config.log_dir]);
    files::make_absolute(all).map_err(|(path, source)| unusable(path)(source))?;
    let (state, pods, logs) =
        (config.state_dir.clone(), paths::pods(&config), config.log_dir.clone());
    let make = move || {
        record::make_passage(&state)
            .and_then(|()| record::make_passage(&pods))
            .map_err(|error| OpenError::Unusable { path: error.path, source: error.source })?;
        files::prepare_log_directory(&logs, record::PASSAGE)
            .map_err(|source| OpenError::Unusable { path: logs, source })
    };
    off_thread(make).await?;
    let path = config.state_dir.join("lock");
    let taken = state_lock::take(&path).await.map_err(unusable(path))?;
    let lock = taken.ok_or_else(|| OpenError::InUse(config.state_dir.clone()))?;
    Ok((config, lock))
}
