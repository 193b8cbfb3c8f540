//! The connection to the runtime, which reports when it closes, and who is at the other end.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tonic::codegen::Service;
use tonic::transport::Uri;
use winddown_shared::Mutex;

/// Connects to a socket, and notifies `lost` when a connection closes, which it does as soon as the peer dies.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    path: Arc<Path>,
    lost: Arc<Notify>,
    peer: RuntimePeer,
}

/// The process at the other end of the newest connection, while that lasts.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimePeer(Arc<Mutex<Weak<u32>>>);

/// A connection. hyper reads from it all the time, so it is dropped as soon as it breaks.
#[derive(Debug)]
pub(super) struct RuntimeConnection {
    stream: UnixStream,
    lost: Arc<Notify>,
    /// Keeps the peer known.
    _process: Arc<u32>,
}

impl Connector {
    pub(super) fn new(path: &Path, lost: Arc<Notify>, peer: RuntimePeer) -> Self {
        Self { path: path.into(), lost, peer }
    }
}

impl RuntimePeer {
    /// The PID; `None` without a connection.
    pub(super) fn process(&self) -> Option<u32> {
        self.0.lock().upgrade().map(|process| *process)
    }

    /// Records who is at the other end, for as long as the result lives. A process of another PID namespace has no PID
    /// here: the first process of this one stands for it.
    fn learn(&self, stream: &UnixStream) -> io::Result<Arc<u32>> {
        let pid = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
        let process = Arc::new(pid.filter(|pid| *pid > 0).unwrap_or(1));
        *self.0.lock() = Arc::downgrade(&process);
        Ok(process)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<RuntimeConnection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { path, lost, peer } = self.clone();
        Box::pin(async move {
            let stream = UnixStream::connect(path).await?;
            let _process = peer.learn(&stream)?;
            Ok(TokioIo::new(RuntimeConnection { stream, lost, _process }))
        })
    }
}

impl Drop for RuntimeConnection {
    fn drop(&mut self) {
        self.lost.notify_one();
    }
}

impl AsyncRead for RuntimeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for RuntimeConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
