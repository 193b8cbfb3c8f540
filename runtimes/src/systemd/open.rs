//! Opens the runtime.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, broadcast, watch};
use winddown_engine::stats::DiskCache;
use winddown_shim::procfs;

use super::unit_cache::UnitCache;
use super::units::{ServiceUnits, UnitError};
use super::{CHANGES, Context, SystemdRuntime, adopt, listen, names};
use crate::process::OpenError;
use crate::programs::{config::ProcessConfig, paths, stop_marker};

/// Why the runtime cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemdOpenError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] OpenError),
    /// The service manager does not say what runs.
    #[error("systemd does not say which units run")]
    Units(#[source] UnitError),
}

pub(crate) async fn open<U: ServiceUnits>(
    config: ProcessConfig,
    units: U,
) -> Result<SystemdRuntime<U>, SystemdOpenError> {
    let (mut config, lock) = crate::process::adopt::take(config).await?;
    own_program(&mut config);
    let search = config.clone();
    let found = tokio::task::spawn_blocking(move || {
        let boot_id = procfs::boot_id(&search.proc_root);
        adopt::find(&search).map(|found| (found, boot_id))
    });
    let unusable = |source| OpenError::Unusable { path: paths::pods(&config), source };
    let (found, boot_id) = found.await.map_err(|_| OpenError::Ending)?.map_err(unusable)?;
    // Before the list: nothing that happens after it is missed.
    let changes = units.changes();
    let listed = units.list(names::PREFIX).await.map_err(SystemdOpenError::Units)?;
    let (alive_end, alive) = watch::channel(());
    let context = Arc::new(Context {
        units,
        unit_cache: UnitCache::default(),
        changes: broadcast::Sender::new(CHANGES),
        starts: Arc::new(Semaphore::new(config.parallel_starts.max(1))),
        alive,
        asked: stop_marker::notes(),
        boot_id,
        hooks: AtomicU64::new(0),
        unsure: Mutex::new(HashSet::new()),
        config,
    });
    listen::listen(&context, changes);
    let pods = adopt::adopt(&context, found, listed).await;
    Ok(SystemdRuntime {
        context,
        pods: Mutex::new(pods),
        disk: DiskCache::default(),
        _lock: lock,
        _alive: alive_end,
    })
}

/// The service manager executes the program, so a path that means "this process" has to be resolved. After
/// an upgrade the new program is at the old one's place.
fn own_program(config: &mut ProcessConfig) {
    if !config.shim.program.starts_with("/proc/self") {
        return;
    }
    if let Ok(path) = std::fs::read_link(&config.shim.program) {
        let text = path.to_string_lossy().into_owned();
        config.shim.program = PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(&text));
    }
}
