//! Opens the runtime.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use winddown_engine::machine_lock::{self, LockHolder};
use winddown_host::{UnitPlaces, machine};

use super::units::{ServiceUnits, UnitError};
use super::{Context, Services, SystemdRuntime, adopt, listen, names};
use crate::process::cgroup::Unenforced;
use crate::programs::config::{CgroupParent, ProcessConfig};
use crate::programs::open::{self, OpenError};

/// The agent's unit where its control group does not tell it.
const AGENT: &str = "winddown.service";

/// Why the runtime cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemdOpenError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] OpenError),
    /// Another agent runs its pods on this service manager.
    #[error(
        "{0} runs pods on this systemd, and each agent would terminate the other's: stop it, or use another runtime"
    )]
    InUse(LockHolder),
    /// The service manager does not list the units.
    #[error("systemd does not list its units")]
    Units(#[source] UnitError),
}

pub(crate) async fn open<U: ServiceUnits>(
    config: ProcessConfig,
    units: U,
) -> Result<SystemdRuntime<U>, SystemdOpenError> {
    let (mut config, lock) = open::take(config).await?;
    let on_machine = match units.socket() {
        Some(socket) => Some(machine_lock::take(&socket).await.map_err(SystemdOpenError::InUse)?),
        None => None,
    };
    own_program(&mut config);
    let search = config.clone();
    let (found, boot_id, unenforced, agent) = open::off_thread(move || {
        let boot_id = machine::boot_id();
        let unenforced = match &search.cgroups {
            CgroupParent::OwnUnit { mount } => Unenforced::by_systemd(&search.proc_root, mount),
            CgroupParent::None | CgroupParent::Rehearsal | CgroupParent::Directory(_) => {
                Unenforced::default()
            }
        };
        let own = UnitPlaces::of(&search.proc_root).service("self");
        let agent = own.unwrap_or_else(|| AGENT.to_owned());
        Ok((adopt::find(&search)?, boot_id, unenforced, agent))
    })
    .await?;
    // Subscribed before the units are listed, so that no later change is missed.
    let changes = units.changes();
    let listed = units.list(names::PREFIX).await.map_err(SystemdOpenError::Units)?;
    let (alive_end, alive) = watch::channel(());
    let services = Services::new(units, unenforced, agent, on_machine);
    let context = Arc::new(Context::new(config, boot_id, alive, services));
    listen::listen(&context, changes);
    adopt::adopt(&context, found, listed).await?;
    Ok(SystemdRuntime::assemble(context, lock, alive_end))
}

/// The service manager executes the program, so a path that means "this process" has to be resolved. After an upgrade
/// the new program is in the place of the old one.
fn own_program(config: &mut ProcessConfig) {
    if !config.shim.program.starts_with("/proc/self") {
        return;
    }
    if let Ok(path) = std::fs::read_link(&config.shim.program) {
        let text = path.to_string_lossy().into_owned();
        config.shim.program = PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(&text));
    }
}
