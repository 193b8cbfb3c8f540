//! Holds logind's block lock, with which logind refuses shutdowns, while it is wanted.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use winddown_shared::{LockState, ShutdownBlock, critical};
use zbus::proxy::CacheProperties;

use super::bus::proxies::LoginProxy;
use super::bus::translate;
use super::session::LogindCallError;
use crate::bus::Bus;

/// The timeout for logind to grant the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between attempts to take a lock that was refused.
const LOCK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Makes logind refuse shutdowns while `wanted` holds a reason, and publishes the state of the lock: held, waiting for
/// logind to grant it, or released. Must be called inside a tokio runtime with I/O and time enabled.
///
/// The lock outlives a restart of the bus or of logind, but neither this process nor the sender of `wanted`. Which
/// callers logind refuses depends on its version: since systemd 257 all, including root, except with `systemctl
/// --force`, or with `--ignore-inhibitors` if polkit agrees; before 257, root only with `--check-inhibitors=yes`.
pub fn hold_block(
    bus: Bus,
    mut wanted: watch::Receiver<Option<ShutdownBlock>>,
) -> watch::Receiver<LockState> {
    let (state, shown) = watch::channel(LockState::Released);
    critical::spawn("shutdown block", async move {
        let mut lock = None;
        loop {
            let block = wanted.borrow_and_update().clone();
            let failure = match block {
                None => {
                    lock = None;
                    None
                }
                Some(block) => match take(&bus, &block).await {
                    // This drops the previous lock, which had another reason.
                    Ok(new) => {
                        lock = Some(new);
                        None
                    }
                    Err(error) => Some(error),
                },
            };
            state.send_replace(match (&lock, &failure) {
                (Some(_), _) => LockState::Held,
                (None, None) => LockState::Released,
                (None, Some(error)) => LockState::Waiting { why: error.to_string().into() },
            });
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = sleep(LOCK_RETRY_DELAY), if failure.is_some() => {}
            }
        }
    });
    shown
}

async fn take(bus: &Bus, block: &ShutdownBlock) -> Result<OwnedFd, LogindCallError> {
    let call = "Inhibit";
    let asked = async {
        let connection = bus.connect(LOCK_TIMEOUT).await?;
        let login = LoginProxy::builder(&connection).cache_properties(CacheProperties::No);
        let lock = login.build().await?.inhibit("shutdown", &block.who, &block.why, "block").await;
        lock.map(OwnedFd::from)
    };
    match timeout(LOCK_TIMEOUT, asked).await {
        Ok(lock) => lock.map_err(|error| translate(call, &error, LOCK_TIMEOUT)),
        Err(_) => Err(LogindCallError::Timeout { call, after: LOCK_TIMEOUT }),
    }
}
