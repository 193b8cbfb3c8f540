//! The lock because of which logind refuses shutdowns, held while it is wanted.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use winddown_shared::{LockState, ShutdownBlock, critical};
use zbus::proxy::CacheProperties;

use super::bus::proxies::LoginProxy;
use super::bus::{Bus, translate};
use super::session::CallError;

/// How long logind may take to grant the lock.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between attempts to take a lock that was refused.
const RETRY: Duration = Duration::from_secs(1);

/// Has logind refuse shutdowns while `wanted` says why, and shows how things stand: held, waiting for a logind that
/// does not grant the lock, or released. Must be called inside a tokio runtime with I/O and
/// time enabled.
///
/// The lock outlives a restart of the bus or of logind, but not this process, nor the sender of `wanted`. Whom logind
/// refuses depends on its version: since systemd 257 everyone, root too, except with `systemctl --force`, or with
/// `--ignore-inhibitors` where polkit is asked and agrees; before, root only with `--check-inhibitors=yes`.
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
                    // The one before it, with another reason, goes now.
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
                () = sleep(RETRY), if failure.is_some() => {}
            }
        }
    });
    shown
}

async fn take(bus: &Bus, block: &ShutdownBlock) -> Result<OwnedFd, CallError> {
    let call = "Inhibit";
    let asked = async {
        let connection = bus.builder()?.build().await?;
        let login = LoginProxy::builder(&connection).cache_properties(CacheProperties::No);
        let lock = login.build().await?.inhibit("shutdown", &block.who, &block.why, "block").await;
        lock.map(OwnedFd::from)
    };
    match timeout(PATIENCE, asked).await {
        Ok(lock) => lock.map_err(|error| translate(call, &error, PATIENCE)),
        Err(_) => Err(CallError::Timeout { call, after: PATIENCE }),
    }
}
