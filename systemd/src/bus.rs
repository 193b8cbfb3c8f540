//! How to reach the bus, or a login manager without one.

use std::fmt;
#[cfg(feature = "stand-in")]
use std::sync::Arc;
use std::time::Duration;

use zbus::Connection;
use zbus::connection::Builder;

/// The way to reach logind.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Bus {
    /// The system bus: `DBUS_SYSTEM_BUS_ADDRESS`, or the well-known socket.
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

    /// Opens a connection. This, and every call on it, takes at most `timeout`. The only place that connects: the
    /// library sets no limit for the handshake.
    pub(crate) async fn connect(&self, timeout: Duration) -> zbus::Result<Connection> {
        let builder = match self {
            Bus::System => Builder::system(),
            Bus::Address(address) => Builder::address(address.as_str()),
            #[cfg(feature = "stand-in")]
            Bus::Peer(connect) => Builder::unix_stream(connect()?).p2p(),
        };
        #[expect(clippy::disallowed_methods, reason = "limited here")]
        let connection = builder.method_timeout(timeout).build();
        tokio::time::timeout(timeout, connection).await.unwrap_or_else(|_| Err(no_answer()))
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

/// The error of a call that was not answered in time.
pub(crate) fn no_answer() -> zbus::Error {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
