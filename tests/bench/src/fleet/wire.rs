//! What goes over the wire between an agent and its API server, TLS included.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes connections on and counts their bytes. Ends with its handle.
pub(crate) struct Wire {
    address: SocketAddr,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counts {
    /// From the agent.
    up: AtomicU64,
    /// To the agent.
    down: AtomicU64,
}

// === impl Wire ===

impl Wire {
    /// A wire to `server`.
    pub(crate) async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let accepting = tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                tokio::spawn(pass_on(agent, server, Arc::clone(&counted)));
            }
        });
        Ok(Self { address, counts, accepting })
    }

    /// Where it is reached.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes from and to the agent so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.counts.up), read(&self.counts.down))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass_on(agent: TcpStream, server: SocketAddr, counts: Arc<Counts>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Small answers must not wait for one another.
    let _ = (agent.set_nodelay(true), server.set_nodelay(true));
    let (from_agent, to_agent) = agent.into_split();
    let (from_server, to_server) = server.into_split();
    // The first side that ends, ends both.
    tokio::select! {
        () = count(from_agent, to_server, &counts.up) => {}
        () = count(from_server, to_agent, &counts.down) => {}
    }
}

async fn count(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    bytes: &AtomicU64,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        bytes.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::Wire;

    #[tokio::test]
    async fn what_passes_is_counted_in_both_directions() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Wire::to(server.local_addr().unwrap()).await.unwrap();
        let mut agent = TcpStream::connect(wire.address()).await.unwrap();
        let (mut served, _) = server.accept().await.unwrap();
        agent.write_all(b"ping").await.unwrap();
        let mut heard = [0; 4];
        served.read_exact(&mut heard).await.unwrap();
        served.write_all(b"pong!!").await.unwrap();
        let mut heard = [0; 6];
        agent.read_exact(&mut heard).await.unwrap();
        assert_eq!(wire.bytes(), (4, 6));
    }
}
