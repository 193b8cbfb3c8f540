//! Connections from a test into a node's network, which is isolated from the host's.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The timeout of a connection. Locally it is accepted or refused at once, unless the host has come to a standstill.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens connections to listeners in one node. It outlives the node's power-off, after which connections are refused.
#[derive(Debug, Clone)]
pub struct Dialer {
    network: Arc<File>,
}

impl Dialer {
    /// Creates a dialer for the node with this network.
    pub(super) fn of(network: File) -> Self {
        Self { network: Arc::new(network) }
    }

    /// Connects to a listener in the node.
    ///
    /// # Errors
    /// An error of the operating system: connection refused if there is no listener.
    pub async fn dial(&self, address: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        let network = Arc::clone(&self.network);
        // A socket belongs forever to the network of the thread that created it. That thread must be a separate one,
        // because it never leaves that network.
        let made = tokio::task::spawn_blocking(move || {
            let there = move || {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
                TcpStream::connect_timeout(&address, PATIENCE)
            };
            thread::spawn(there).join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        });
        let stream = made.await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(stream)
    }
}
