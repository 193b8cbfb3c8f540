mod limits;
mod requests;
mod sockets;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fake::FakeAgent;
use super::{Client, ControlSocket, Limits, Server};

/// A server on a socket of its own, with a fake agent behind it.
struct Running {
    agent: Arc<FakeAgent>,
    client: Client,
    path: PathBuf,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _directory: TempDir,
}

/// A timeout that no test reaches, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(20);

async fn serve(limits: Limits) -> Running {
    serve_with(limits, None).await
}

/// Starts a server whose socket also admits this group.
async fn serve_for(group: Option<u32>) -> Running {
    serve_with(Limits::default(), group).await
}

async fn serve_with(limits: Limits, group: Option<u32>) -> Running {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("winddown.sock");
    let socket = ControlSocket::bind(&path, group).await.expect("a socket");
    let agent = Arc::new(FakeAgent::new());
    let stop = CancellationToken::new();
    let server = Server::new(Arc::clone(&agent), limits, stop.clone());
    let task = tokio::spawn(server.serve(socket));
    Running { agent, client: Client::new(&path), path, stop, task, _directory: directory }
}

impl Running {
    /// Sends bytes as they are and reads until the server closes.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).await.expect("connect");
        // The server may have answered and closed before it read everything.
        let _ = stream.write_all(request).await;
        read_all(&mut stream).await
    }

    async fn get(&self, path: &str) -> String {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await
    }
}

async fn read_all(stream: &mut UnixStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // The server may reset the connection after the answer.
    let _ = tokio::time::timeout(PATIENCE, read).await.expect("the server closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Waits until `condition` holds; fails after a while.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
