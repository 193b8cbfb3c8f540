//! Whether the machine is going down, as the service manager sees it, and how.

use std::time::Duration;

use winddown_shared::ShutdownKind;
use zbus::proxy::CacheProperties;

use crate::bus::{Bus, no_answer};
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
/// Queries the system bus, and waits at most `timeout` for the answer, and as long again for the kind. Cancel-safe.
///
/// # Errors
/// There is no bus, no systemd on it, or no reply in time.
pub async fn shutdown_in_progress(
    timeout: Duration,
) -> Result<Option<ShutdownKind>, SystemStateError> {
    in_progress_on(&Bus::System, timeout).await
}

/// Like [`shutdown_in_progress`], on this bus.
pub(crate) async fn in_progress_on(
    bus: &Bus,
    timeout: Duration,
) -> Result<Option<ShutdownKind>, SystemStateError> {
    let asked = async {
        let connection = bus.connect(timeout).await?;
        let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No);
        let manager = manager.build().await?;
        let state = manager.system_state().await?;
        Ok((manager, state))
    };
    let answer = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(no_answer()));
    let (manager, state) = answer.map_err(SystemStateError)?;
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
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Bus, ShutdownKind, in_progress_on, kind};

    #[tokio::test(start_paused = true)]
    async fn a_bus_that_accepts_and_says_nothing_is_waited_for_no_longer_than_wanted() {
        let silent = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::clone(&silent);
        let bus = Bus::Peer(Arc::new(move || {
            let (ours, theirs) = UnixStream::pair()?;
            accepted.lock().unwrap().push(theirs);
            Ok(ours)
        }));
        let (begun, limit) = (Instant::now(), Duration::from_secs(2));
        let answer = tokio::time::timeout(10 * limit, in_progress_on(&bus, limit)).await;
        assert!(answer.is_ok_and(|answer| answer.is_err()), "it still waits");
        assert!(begun.elapsed() <= 2 * limit, "{:?}", begun.elapsed());
        assert_eq!(silent.lock().unwrap().len(), 1);
    }

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
