//! Whether the machine is going down, as the service manager sees it, and how.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_shared::{ShutdownKind, WayDown};
use zbus::proxy::CacheProperties;

use crate::bus::{Bus, no_answer};
use crate::manager::{ManagerProxy, job_timeout};
use crate::trouble::trouble;

/// The service manager's state while the machine goes down.
const STOPPING: &str = "stopping";

/// How long one attempt waits for an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two attempts.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The service manager could not be queried.
#[derive(Debug, thiserror::Error)]
#[error("the service manager does not say whether the machine is going down: {}", trouble(.0))]
pub struct SystemStateError(zbus::Error);

// === impl SystemStateError ===

impl SystemStateError {
    /// Whether nothing is there that could answer.
    fn is_absent(&self) -> bool {
        let (zbus::Error::InputOutput(error) | zbus::Error::Connection(error, _)) = &self.0 else {
            return false;
        };
        error.kind() == ErrorKind::NotFound
    }
}

/// Returns how the machine is going down, or `None` if it is not. The machine is going down if systemd's `SystemState`
/// property is `stopping`, which covers every shutdown that systemd carries out, also those unknown to logind
/// (`systemctl start poweroff.target`).
///
/// Asks over the system bus or, where there is none, over systemd's own socket, and without an answer again, for as long as
/// `patience`; the last answer takes at most some seconds more. Cancel-safe.
///
/// # Errors
/// There is no systemd, this user may not ask it, or no reply came in time.
pub async fn shutdown_in_progress(patience: Duration) -> Result<Option<WayDown>, SystemStateError> {
    in_progress_within(&Bus::System, patience).await
}

/// Like [`shutdown_in_progress`], on this bus.
async fn in_progress_within(
    bus: &Bus,
    patience: Duration,
) -> Result<Option<WayDown>, SystemStateError> {
    let ask = || in_progress_on(bus, ANSWER_TIMEOUT);
    asked_again(patience, ask, |error| !error.is_absent()).await
}

/// Asks until there is an answer, for as long as `patience` while the error is one that may pass.
pub(crate) async fn asked_again<T, E, A: Future<Output = Result<T, E>>>(
    patience: Duration,
    ask: impl Fn() -> A,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if may_pass(&error) && begun.elapsed() < patience => {
                sleep(ASK_AGAIN_AFTER).await;
            }
            answer => return answer,
        }
    }
}

/// Asks once, over this bus, and waits at most `timeout` for the answer, and as long again for its kind and for its limit.
pub(crate) async fn in_progress_on(
    bus: &Bus,
    timeout: Duration,
) -> Result<Option<WayDown>, SystemStateError> {
    let asked = async {
        let connection = bus.connect_to_systemd(timeout).await?;
        let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No);
        let manager = manager.build().await?;
        let state = manager.system_state().await?;
        Ok((connection, manager, state))
    };
    let answer = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(no_answer()));
    let (connection, manager, state) = answer.map_err(SystemStateError)?;
    if state != STOPPING {
        return Ok(None);
    }
    // A failure only hides how, and for how long.
    let jobs = manager.list_jobs().await.unwrap_or_default();
    let jobs = jobs.iter().map(|(_, unit, what, _, _, path)| (unit.as_str(), what.as_str(), path));
    let Some((kind, target)) = target(jobs) else { return Ok(Some(WayDown::default())) };
    let limit = job_timeout(&connection, target).await.ok().flatten();
    Ok(Some(WayDown { kind, limit }))
}

/// Finds the kind of shutdown, and the target that is started for it, among the queued jobs: each a unit, a job type and
/// the unit's path.
fn target<'a, P>(
    mut jobs: impl Iterator<Item = (&'a str, &'a str, P)>,
) -> Option<(ShutdownKind, P)> {
    jobs.find_map(|(unit, what, path)| {
        let kind = match unit {
            "poweroff.target" => ShutdownKind::PowerOff,
            "halt.target" => ShutdownKind::Halt,
            "reboot.target" => ShutdownKind::Reboot,
            "kexec.target" => ShutdownKind::Kexec,
            "soft-reboot.target" => ShutdownKind::SoftReboot,
            _ => return None,
        };
        (what == "start").then_some((kind, path))
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Bus, ShutdownKind, WayDown, in_progress_on, in_progress_within, target};
    use crate::stand_in::StandIn;

    /// A way to `systemd` that fails so for the first attempts.
    fn closed_at_first(systemd: &StandIn, attempts: usize, how: io::ErrorKind) -> Bus {
        let (systemd, left) = (systemd.peer(), Mutex::new(attempts));
        Bus::Peer(Arc::new(move || {
            let mut left = left.lock().unwrap();
            let Bus::Peer(connect) = &systemd else { unreachable!() };
            match left.checked_sub(1) {
                None => connect(),
                Some(fewer) => {
                    *left = fewer;
                    Err(how.into())
                }
            }
        }))
    }

    #[tokio::test]
    async fn a_machine_that_goes_down_says_so_when_it_is_asked_again() {
        let systemd = StandIn::new(Duration::ZERO);
        systemd.set_stopping(true);
        let ask = async |attempts: usize, how, patience| {
            let bus = closed_at_first(&systemd, attempts, how);
            in_progress_within(&bus, patience).await.ok()
        };
        let (busy, absent) = (io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound);
        let down = Some(Some(WayDown::default()));
        let long = Duration::from_secs(60);
        assert_eq!(ask(0, busy, Duration::ZERO).await, down);
        assert_eq!(ask(2, busy, long).await, down, "when it has time");
        assert_eq!(ask(1, busy, Duration::ZERO).await, None, "unknown is not known to stay up");
        let begun = Instant::now();
        assert_eq!(ask(usize::MAX, absent, long).await, None);
        assert!(begun.elapsed() < long, "without a bus there is nothing to wait for");
    }

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
        let of = |unit| target([("umount.target", "start", 1), (unit, "start", 2)].into_iter());
        assert_eq!(of("poweroff.target"), Some((ShutdownKind::PowerOff, 2)));
        assert_eq!(of("halt.target"), Some((ShutdownKind::Halt, 2)));
        assert_eq!(of("reboot.target"), Some((ShutdownKind::Reboot, 2)));
        assert_eq!(of("kexec.target"), Some((ShutdownKind::Kexec, 2)));
        assert_eq!(of("soft-reboot.target"), Some((ShutdownKind::SoftReboot, 2)));
        assert_eq!(of("shutdown.target"), None);
        let stopped = [("reboot.target", "stop", 1), ("halt.target", "start", 2)];
        assert_eq!(target(stopped.into_iter()), Some((ShutdownKind::Halt, 2)));
    }
}
