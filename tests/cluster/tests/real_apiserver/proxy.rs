//! A way to the API server that can be cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// They are closed, and new ones as well.
    Closed,
    /// They stay open and nothing comes through.
    Silent,
}

/// Carries bytes between a node and the API server.
pub(crate) struct Proxy {
    pub(crate) url: String,
    way: watch::Sender<Way>,
    accepting: JoinHandle<()>,
}

// === impl Proxy ===

impl Proxy {
    /// An open way to the server of this URL.
    pub(crate) async fn to(url: &str) -> Self {
        let server: SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let way = watch::Sender::new(Way::Open);
        let ways = way.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, server, ways.subscribe()));
            }
        });
        Self { url, way, accepting }
    }

    /// For the connections there are and those to come.
    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What was cut once stays cut: of its bytes some may be lost.
async fn carry(mut near: TcpStream, server: SocketAddr, mut way: watch::Receiver<Way>) {
    let Ok(mut far) = TcpStream::connect(server).await else { return };
    tokio::select! {
        biased;
        _ = way.wait_for(|way| *way != Way::Open) => {}
        _ = copy_bidirectional(&mut near, &mut far) => return,
    }
    let _ = way.wait_for(|way| *way != Way::Silent).await;
}
