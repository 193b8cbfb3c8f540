//! Opens the runtime and starts its background tasks.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use winddown_shared::critical;

use tokio::sync::watch;
use winddown_engine::machine_lock::{self, LockHolder};
use winddown_engine::{files, state_lock};

use super::client::{CriClient, RuntimeEndpointError};
use super::config::CriConfig;
use super::{CriContext, CriRuntime, cpu_weight, events, health_check, list, logs};

/// Why the CRI runtime cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CriOpenError {
    /// The endpoint is not a socket.
    #[error(transparent)]
    Endpoint(#[from] RuntimeEndpointError),
    /// A directory cannot be created or used.
    #[error("cannot use {}", .path.display())]
    Directory {
        /// The directory, or the lock file in it.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Another agent runs its pods on this container runtime.
    #[error(
        "{holder} runs pods on {endpoint}, and each agent would terminate the other's: stop it, or give this agent another \
         container runtime"
    )]
    RuntimeInUse {
        /// The endpoint.
        endpoint: String,
        /// The other agent.
        holder: LockHolder,
    },
    /// Another agent has locked the state directory.
    #[error("{} is held by another agent: stop it first", .path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
}

/// Takes the directories and starts the background tasks.
pub(super) async fn open(mut config: CriConfig) -> Result<CriRuntime, CriOpenError> {
    let client = CriClient::new(&config.endpoint, config.times)?;
    let all = [&mut config.paths.state, &mut config.logs.dir];
    let unusable = |(path, source)| CriOpenError::Directory { path, source };
    let more = config
        .made_volumes
        .iter_mut()
        .chain(&mut config.paths.notices)
        .chain(&mut config.logs.links);
    files::make_absolute(all.into_iter().chain(more)).map_err(unusable)?;
    make(&config.paths.state, 0o700)?;
    make(&config.paths.state.join("pods"), 0o711)?;
    files::prepare_log_directory(&config.logs.dir, 0o755)
        .map_err(|source| unusable((config.logs.dir.clone(), source)))?;
    let path = config.paths.state.join("cri.lock");
    let lock = match state_lock::take(&path).await {
        Ok(Some(lock)) => lock,
        Ok(None) => return Err(CriOpenError::InUse { path }),
        Err(source) => return Err(CriOpenError::Directory { path, source }),
    };
    let on_machine = machine_lock::take(client.socket()).await.map_err(|holder| {
        CriOpenError::RuntimeInUse { endpoint: config.endpoint.clone(), holder }
    })?;
    let (alive, dead) = watch::channel(());
    let context = Arc::new(CriContext::new(config, client, dead));
    spawn(&context, health_check::follow);
    spawn(&context, events::follow);
    spawn(&context, list::follow);
    spawn(&context, logs::follow);
    spawn(&context, cpu_weight::follow);
    Ok(CriRuntime { context, _locks: (lock, on_machine), _alive: alive })
}

/// Runs a task until the runtime is dropped.
fn spawn<F: Future<Output = ()> + Send + 'static>(
    context: &Arc<CriContext>,
    task: impl FnOnce(Arc<CriContext>) -> F,
) {
    let mut alive = context.alive.clone();
    let task = task(Arc::clone(context));
    critical::spawn("container runtime", async move {
        tokio::select! {
            () = task => {}
            _ = alive.changed() => {}
        }
    });
}

/// Writes nothing if there is one: its disk may be read-only, or hang.
fn make(path: &Path, mode: u32) -> Result<(), CriOpenError> {
    if path.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|source| CriOpenError::Directory { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use winddown_shared::{WallClock, WallTime};

    use super::*;

    #[tokio::test]
    async fn two_agents_with_directories_of_their_own_do_not_share_a_container_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let of = |agent: &str| {
            let own = CriConfig::below(&dir.path().join(agent));
            CriConfig { endpoint: dir.path().join("cri.sock").display().to_string(), ..own }
        };
        let first = open(of("first")).await.unwrap();
        let error = open(of("second")).await.unwrap_err().to_string();
        let process = format!("process {} runs pods on ", std::process::id());
        assert!(error.starts_with(&process), "{error}");
        drop(first);
        open(of("second")).await.unwrap();
    }

    #[tokio::test]
    async fn a_directory_named_from_where_the_agent_was_started_is_named_from_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let state = up.join(dir.path().strip_prefix("/").unwrap());
        let clock = WallClock::fixed(WallTime::UNIX_EPOCH);
        let of = |state: &Path| {
            CriConfig::new("/no/socket", state, dir.path().join("logs"), clock.clone())
        };
        let runtime = open(of(&state)).await.unwrap();
        assert_eq!(runtime.context.config.paths.state, here.join(state));
        let error = open(of(Path::new(""))).await.unwrap_err();
        assert!(matches!(error, CriOpenError::Directory { .. }), "{error}");
    }
}
