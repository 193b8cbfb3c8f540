//! Whether the whole machine is going down, as the service manager sees it.

use std::time::Duration;

use zbus::connection::Builder;
use zbus::proxy;
use zbus::proxy::CacheProperties;

/// What the service manager calls a machine that is going down.
const STOPPING: &str = "stopping";

#[proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    #[zbus(property)]
    fn system_state(&self) -> zbus::Result<String>;
}

/// Why the service manager could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("the service manager does not say whether the machine is going down")]
pub struct SystemStateError(#[source] zbus::Error);

/// Whether the machine is being powered off, rebooted or halted: systemd's `SystemState` property is
/// `stopping`. It turns so on every way down that systemd carries out, also those of which logind
/// knows nothing (`systemctl start poweroff.target`).
///
/// Asks on the system bus and waits at most `patience` for each answer. Cancel-safe.
///
/// # Errors
/// There is no bus, no systemd on it, or no answer in time.
pub async fn is_going_down(patience: Duration) -> Result<bool, SystemStateError> {
    let connection =
        Builder::system().method_timeout(patience).build().await.map_err(SystemStateError)?;
    let manager = ManagerProxy::builder(&connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .map_err(SystemStateError)?;
    let state = manager.system_state().await.map_err(SystemStateError)?;
    Ok(state == STOPPING)
}
