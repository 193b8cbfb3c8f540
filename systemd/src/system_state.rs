//! Whether the machine is going down, as the service manager sees it, and how.

use std::time::Duration;

use winddown_shared::ShutdownKind;
use zbus::connection::Builder;
use zbus::proxy::CacheProperties;

use crate::manager::ManagerProxy;
use crate::trouble::trouble;

/// The service manager's state while the machine goes down.
const STOPPING: &str = "stopping";

/// The service manager could not be queried.
#[derive(Debug, thiserror::Error)]
#[error("the service manager does not say whether the machine is going down: {}", trouble(.0))]
pub struct SystemStateError(zbus::Error);

/// Returns how the machine is going down, or `None` if it is not. The machine is going down if systemd's `SystemState`
/// property is `stopping`, which covers every shutdown that systemd carries out, also those unknown to logind
/// (`systemctl start poweroff.target`).
///
/// Queries the system bus, and waits at most `timeout` for each reply. Cancel-safe.
///
/// # Errors
/// There is no bus, no systemd on it, or no reply in time.
pub async fn shutdown_in_progress(
    timeout: Duration,
) -> Result<Option<ShutdownKind>, SystemStateError> {
    in_progress_on(Ok(Builder::system()), timeout).await
}

/// Like [`shutdown_in_progress`], on the bus to which `builder` connects.
pub(crate) async fn in_progress_on(
    builder: zbus::Result<Builder<'_>>,
    timeout: Duration,
) -> Result<Option<ShutdownKind>, SystemStateError> {
    let builder = builder.map_err(SystemStateError)?;
    let connection = builder.method_timeout(timeout).build().await.map_err(SystemStateError)?;
    let manager = ManagerProxy::builder(&connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .map_err(SystemStateError)?;
    let state = manager.system_state().await.map_err(SystemStateError)?;
    if state != STOPPING {
        return Ok(None);
    }
    // A failure only hides the kind, which makes no difference for the pods.
    let jobs = manager.list_jobs().await.unwrap_or_default();
    Ok(Some(kind(jobs.iter().map(|(_, unit, what, ..)| (unit.as_str(), what.as_str())))))
}

/// Derives the kind of shutdown from the queued jobs, each a unit and a job type.
fn kind<'a>(jobs: impl Iterator<Item = (&'a str, &'a str)>) -> ShutdownKind {
    let mut started = jobs.filter(|(_, what)| *what == "start").map(|(unit, _)| unit);
    let kind = started.find_map(|unit| match unit {
        "poweroff.target" => Some(ShutdownKind::PowerOff),
        "halt.target" => Some(ShutdownKind::Halt),
        "reboot.target" => Some(ShutdownKind::Reboot),
        "kexec.target" => Some(ShutdownKind::Kexec),
        "soft-reboot.target" => Some(ShutdownKind::SoftReboot),
        _ => None,
    });
    kind.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{ShutdownKind, kind};

    #[test]
    fn the_target_that_is_started_names_the_way_down() {
        let of = |unit| kind([("umount.target", "start"), (unit, "start")].into_iter());
        assert_eq!(of("poweroff.target"), ShutdownKind::PowerOff);
        assert_eq!(of("halt.target"), ShutdownKind::Halt);
        assert_eq!(of("reboot.target"), ShutdownKind::Reboot);
        assert_eq!(of("kexec.target"), ShutdownKind::Kexec);
        assert_eq!(of("soft-reboot.target"), ShutdownKind::SoftReboot);
        assert_eq!(of("shutdown.target"), ShutdownKind::Unknown);
        let stopped = [("reboot.target", "stop"), ("halt.target", "start")];
        assert_eq!(kind(stopped.into_iter()), ShutdownKind::Halt);
    }
}
