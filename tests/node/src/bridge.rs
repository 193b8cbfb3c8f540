//! The only way out of a node, whose network is isolated from the host's: forwards a port to the same port of the host.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::Node;
use crate::scenario::TestResult;

/// Forwards connections until it is closed or dropped; from then on they are refused in the node. After a node was off,
/// a new bridge is needed.
#[derive(Debug)]
pub struct Bridge(JoinHandle<()>);

impl Bridge {
    /// The other end of the wire that a node with its own kernel has (see boot.sh).
    pub const WIRE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

    /// Where this node finds it: at its loopback device, or at [`Self::WIRE`].
    #[must_use]
    pub fn end_of(node: &Node) -> Ipv4Addr {
        if node.has_own_kernel() { Self::WIRE } else { Ipv4Addr::LOCALHOST }
    }

    /// Listens at the node's end, and connects to `address`, which has the same port, on the host.
    ///
    /// # Errors
    /// The node is off, or the address is in use.
    pub async fn open(node: &Node, address: SocketAddr) -> TestResult<Self> {
        let network = node.network()?;
        let end = SocketAddr::new(Self::end_of(node).into(), address.port());
        // In its own thread, because it never leaves the node's network.
        let there = move || -> io::Result<TcpListener> {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpListener::bind(end)
        };
        let thread = move || thread::spawn(there).join();
        let made = tokio::task::spawn_blocking(thread).await?;
        let listener = made.map_err(|_| "the thread that listens panicked")??;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Self(tokio::spawn(carry(listener, address))))
    }

    /// Closes all connections and refuses new ones.
    pub async fn close(mut self) {
        self.0.abort();
        // The task was just aborted, so its result is an error.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn carry(listener: tokio::net::TcpListener, address: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((mut inside, _)) = accepted else { return };
                connections.spawn(async move {
                    // Errors matter only to the program under test.
                    if let Ok(mut outside) = TcpStream::connect(address).await {
                        let _ = copy_bidirectional(&mut inside, &mut outside).await;
                    }
                });
            }
        }
    }
}
