//! How to reach the bus, or a login manager or systemd without one.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
#[cfg(feature = "stand-in")]
use std::sync::Arc;
use std::time::Duration;

use zbus::Connection;
use zbus::connection::Builder;

use crate::own_socket::{self, OwnSocket};
use crate::trouble::is_no_bus;

/// The way to reach logind and systemd.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Bus {
    /// The system bus: `DBUS_SYSTEM_BUS_ADDRESS`, or the well-known socket. Where none answers, systemd is reached over its own
    /// socket, which is root's.
    #[default]
    System,
    /// The bus at this D-Bus address.
    Address(String),
    /// A login manager at the other end of a socket, without a bus. Each attempt to connect gets a new socket. The peer
    /// is trusted.
    #[cfg(feature = "stand-in")]
    Peer(PeerConnector),
}

/// Opens a socket to a private login manager.
#[cfg(feature = "stand-in")]
pub type PeerConnector =
    Arc<dyn Fn() -> std::io::Result<std::os::unix::net::UnixStream> + Send + Sync>;

// === impl Bus ===

impl Bus {
    /// Whether a stand-in answers in place of logind.
    pub(crate) fn is_stand_in(&self) -> bool {
        match self {
            Bus::System | Bus::Address(_) => false,
            #[cfg(feature = "stand-in")]
            Bus::Peer(_) => true,
        }
    }

    /// The socket at which other programs reach the same systemd; `None` if it is private, or not known.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let address = match self {
            Bus::System => std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default(),
            Bus::Address(address) => address.clone(),
            #[cfg(feature = "stand-in")]
            Bus::Peer(_) => return None,
        };
        if address.is_empty() {
            return Some(own_socket::PATH.into());
        }
        address.split([';', ',']).find_map(|part| part.strip_prefix("unix:path=")).map(Into::into)
    }

    /// Opens a connection. This, and every call on it, takes at most `timeout`.
    pub(crate) async fn connect(&self, timeout: Duration) -> zbus::Result<Connection> {
        let builder = match self {
            Bus::System => Builder::system(),
            Bus::Address(address) => Builder::address(address.as_str()),
            #[cfg(feature = "stand-in")]
            Bus::Peer(connect) => Builder::unix_stream(connect()?).p2p(),
        };
        build(builder, timeout).await
    }

    /// Opens a connection to systemd, over the bus or, on a machine where none can be reached, over systemd's own socket.
    /// Each attempt, and every call, takes at most `timeout`.
    pub(crate) async fn connect_to_systemd(&self, timeout: Duration) -> zbus::Result<Connection> {
        match self.connect(timeout).await {
            Err(no_bus) if matches!(self, Bus::System) => {
                let own = directly(Path::new(own_socket::PATH), timeout).await;
                own.map_err(|error| if is_closed(&error) { no_bus } else { error })
            }
            connection => connection,
        }
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bus::System => f.write_str("System"),
            Bus::Address(address) => write!(f, "Address({address:?})"),
            #[cfg(feature = "stand-in")]
            Bus::Peer(_) => f.write_str("Peer"),
        }
    }
}

/// Connects to systemd's own socket.
pub(crate) async fn directly(path: &Path, timeout: Duration) -> zbus::Result<Connection> {
    build(Builder::socket(OwnSocket::connect(path).await?).p2p(), timeout).await
}

/// The only place that connects: the library sets no limit for the handshake.
async fn build(builder: Builder<'_>, timeout: Duration) -> zbus::Result<Connection> {
    #[expect(clippy::disallowed_methods, reason = "limited here")]
    let connection = builder.method_timeout(timeout).build();
    tokio::time::timeout(timeout, connection).await.unwrap_or_else(|_| Err(no_answer()))
}

/// Whether systemd's own socket is not there, or not for this user, who then misses the bus.
fn is_closed(error: &zbus::Error) -> bool {
    let zbus::Error::InputOutput(io) = error else { return false };
    is_no_bus(io.kind()) || io.kind() == ErrorKind::PermissionDenied
}

/// The error of a call that was not answered in time.
pub(crate) fn no_answer() -> zbus::Error {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_closed_doors_the_bus_is_named_and_a_systemd_that_hangs_is_told() {
        let closed = |kind: ErrorKind| is_closed(&std::io::Error::from(kind).into());
        assert!(closed(ErrorKind::NotFound) && closed(ErrorKind::ConnectionRefused));
        assert!(closed(ErrorKind::PermissionDenied));
        assert!(!is_closed(&no_answer()));
    }
}
