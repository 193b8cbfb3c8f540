//! The way from a test into a node's network, which is cut off from the host's.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A local connection is made or refused at once, so this is a host that has come to a stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens connections to what listens in one node. Outlives the node's power-off, when connections
/// are refused.
#[derive(Debug, Clone)]
pub struct Dialer {
    network: Arc<File>,
}

impl Dialer {
    /// Of the node whose first process the host knows as `leader`.
    pub(super) fn of(leader: &str) -> io::Result<Self> {
        let path = Path::new("/proc").join(leader).join("ns/net");
        Ok(Self { network: Arc::new(File::open(path)?) })
    }

    /// Connects to a listener in the node.
    ///
    /// # Errors
    /// The operating system's: refused where nobody listens.
    pub async fn dial(&self, address: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        let network = Arc::clone(&self.network);
        // A socket belongs for ever to the network of the thread that made it. The thread is one of
        // its own, because it never comes back from there.
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
