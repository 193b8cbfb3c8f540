//! The stand-in's D-Bus side.

#![expect(clippy::disallowed_methods, reason = "the stand-in waits for its own users")]

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::time::SystemTime;

use zbus::connection::Builder;
use zbus::message::Header;
use zbus::proxy::CacheProperties;
use zbus::{Connection, Guid, Variant, fdo, interface};

use super::locks::LockRecord;
use super::{Behaviour, PATH, StandIn, kind_name};
use crate::trouble::trouble;

/// The names in the order of acquisition: when logind appears on the bus, systemd is already there.
pub(super) const NAMES: [&str; 2] = ["org.freedesktop.systemd1", LOGIND];
pub(super) const LOGIND: &str = "org.freedesktop.login1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";

/// The stand-in's presence on a bus. Dropping it gives the names back and closes the connection.
#[derive(Debug)]
pub struct OnBus {
    connection: Connection,
    names: &'static [&'static str],
}

/// The stand-in cannot serve on the bus.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve as logind on the bus at {address}: {}", trouble(.cause))]
pub struct StandInError {
    address: String,
    cause: zbus::Error,
}

// === impl OnBus ===

impl OnBus {
    /// Releases the names, so that another connection can own them, and stays connected.
    ///
    /// # Errors
    /// The bus did not answer.
    pub async fn release_names(&self) -> Result<(), StandInError> {
        for name in self.names {
            self.connection
                .release_name(*name)
                .await
                .map_err(|cause| StandInError { address: "its own".into(), cause })?;
        }
        Ok(())
    }

    /// Returns the connection, for sending messages under logind's name that the stand-in would not send.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Leaves the bus; resolves when the connection is closed.
    pub async fn leave(self) {
        // An error means that it is already closed.
        let _ = self.connection.clone().close().await;
    }
}

impl Drop for OnBus {
    fn drop(&mut self) {
        let connection = self.connection.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(connection.close());
        }
    }
}

pub(super) async fn serve_on(
    stand_in: StandIn,
    address: &str,
    names: &'static [&'static str],
) -> Result<OnBus, StandInError> {
    let built = Builder::address(address)
        .serve_at(PATH, Login(stand_in.clone()))
        .serve_at(SYSTEMD_PATH, Systemd(stand_in.clone()))
        .build();
    let failed = |cause| StandInError { address: address.to_owned(), cause };
    let connection = built.await.map_err(failed)?;
    for name in names {
        connection.request_name(*name).await.map_err(failed)?;
    }
    stand_in.0.inner.lock().connections.push(connection.clone());
    Ok(OnBus { connection, names })
}

/// Serves one peer until it hangs up.
pub(super) async fn serve_peer(stand_in: StandIn, stream: UnixStream) {
    let built = Builder::unix_stream(stream)
        .server(Guid::generate())
        .p2p()
        .serve_at(PATH, Login(stand_in.clone()))
        .serve_at(SYSTEMD_PATH, Systemd(stand_in.clone()))
        .build();
    match built.await {
        Ok(connection) => {
            stand_in.0.inner.lock().connections.push(connection.clone());
            connection.closed().await;
            stand_in.0.inner.lock().connections.retain(|other| !other.is_closed());
        }
        Err(error) => {
            tracing::debug!(error = trouble(&error), "a peer of the stand-in went away");
        }
    }
}

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.login1")]
enum LoginError {
    #[zbus(error)]
    ZBus(zbus::Error),
    OperationInProgress(String),
}

struct Login(StandIn);

struct Systemd(StandIn);

/// One row of `ListInhibitors`.
type Row = (String, String, String, String, u32, u32);

#[interface(name = "org.freedesktop.login1.Manager")]
impl Login {
    async fn inhibit(
        &self,
        what: String,
        who: String,
        why: String,
        mode: String,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<zbus::OwnedFd, LoginError> {
        self.0.called("Inhibit", &format!("{what:?}, {who:?}, {why:?}, {mode:?}")).await?;
        let (uid, pid) = caller(&header, connection).await?;
        let record =
            LockRecord { id: 0, what, who, why, mode, uid, pid, released_at: None, listed: true };
        if self.0.0.inner.lock().preparing && record.inhibits("shutdown") {
            return Err(LoginError::OperationInProgress(
                "The operation inhibition has been requested for is already running".to_owned(),
            ));
        }
        let lock = self.0.grant(record).map_err(zbus::Error::from)?;
        Ok(lock.into())
    }

    async fn list_inhibitors(&self) -> fdo::Result<Vec<Row>> {
        self.0.called("ListInhibitors", "").await?;
        let inner = self.0.0.inner.lock();
        let held = inner.locks.iter().filter(|lock| lock.listed && lock.released_at.is_none());
        Ok(held
            .map(|lock| {
                let text = |text: &String| text.clone();
                let (what, who) = (text(&lock.what), text(&lock.who));
                (what, who, text(&lock.why), text(&lock.mode), lock.uid, lock.pid)
            })
            .collect())
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    async fn inhibit_delay_max_usec(&self) -> fdo::Result<u64> {
        self.0.called("InhibitDelayMaxUSec", "").await?;
        Ok(u64::try_from(self.0.delay().as_micros()).unwrap_or(u64::MAX))
    }

    #[zbus(property)]
    async fn preparing_for_shutdown(&self) -> fdo::Result<bool> {
        self.0.called("PreparingForShutdown", "").await?;
        Ok(self.0.0.inner.lock().preparing)
    }

    #[zbus(property)]
    async fn preparing_for_shutdown_with_metadata(
        &self,
    ) -> fdo::Result<HashMap<&'static str, Variant<'static>>> {
        self.0.called("PreparingForShutdownWithMetadata", "").await?;
        let inner = self.0.0.inner.lock();
        if !inner.metadata {
            return Err(fdo::Error::UnknownProperty("it came with systemd 255".to_owned()));
        }
        let kind = inner.preparing.then(|| ("type", Variant::from(kind_name(inner.kind))));
        Ok([("preparing", Variant::from(inner.preparing))].into_iter().chain(kind).collect())
    }

    #[zbus(property)]
    async fn scheduled_shutdown(&self) -> fdo::Result<(String, u64)> {
        self.0.called("ScheduledShutdown", "").await?;
        Ok(match self.0.0.inner.lock().scheduled {
            None => (String::new(), u64::MAX),
            Some((kind, at)) => {
                let since_1970 = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let micros = u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX);
                (kind_name(kind).to_owned(), micros)
            }
        })
    }
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    #[zbus(property)]
    async fn system_state(&self) -> fdo::Result<&'static str> {
        self.0.called("SystemState", "").await?;
        Ok(if self.0.0.inner.lock().stopping { "stopping" } else { "running" })
    }

    async fn subscribe(&self) -> fdo::Result<()> {
        Ok(self.0.called("Subscribe", "").await?)
    }

    async fn kill_unit(&self, unit: String, who: String, signal: i32) -> fdo::Result<()> {
        self.0.called("KillUnit", &format!("{unit:?}, {who:?}, {signal}")).await?;
        if unit == "systemd-logind.service" && signal == nix::libc::SIGHUP {
            self.0.reload();
        }
        Ok(())
    }
}

// === impl StandIn ===

impl StandIn {
    /// Records a call and applies the behaviour set for it.
    async fn called(&self, member: &'static str, arguments: &str) -> zbus::Result<()> {
        let behaviour = {
            let mut inner = self.0.inner.lock();
            inner.calls.push(format!("{member}({arguments})"));
            inner.behaviour.get(member).copied().unwrap_or_default()
        };
        match behaviour {
            Behaviour::Answer => Ok(()),
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Refuse => {
                let refusal = fdo::Error::Failed(format!("{member} was told to refuse"));
                Err(zbus::Error::FDO(Box::new(refusal)))
            }
        }
    }
}

/// Returns the user ID and process ID of the sender of a call.
async fn caller(header: &Header<'_>, connection: &Connection) -> zbus::Result<(u32, u32)> {
    let Some(sender) = header.sender().filter(|_| connection.is_bus()) else {
        return Ok((nix::unistd::getuid().as_raw(), std::process::id()));
    };
    let driver = fdo::DBusProxy::builder(connection).cache_properties(CacheProperties::No);
    let driver = driver.build().await?;
    let uid = driver.get_connection_unix_user(sender.clone().into()).await?;
    let pid = driver.get_connection_unix_process_id(sender.clone().into()).await?;
    Ok((uid, pid))
}
