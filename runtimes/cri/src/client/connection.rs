//! The connection to the runtime, which reports when it closes.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tonic::codegen::Service;
use tonic::transport::Uri;

/// Connects to a socket, and notifies `lost` when a connection closes, which it does as soon as the peer dies.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    path: Arc<Path>,
    lost: Arc<Notify>,
}

/// A connection. hyper reads from it all the time, so it is dropped as soon as it breaks.
#[derive(Debug)]
pub(super) struct RuntimeConnection {
    stream: UnixStream,
    lost: Arc<Notify>,
}

impl Connector {
    pub(super) fn new(path: &Path, lost: Arc<Notify>) -> Self {
        Self { path: path.into(), lost }
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
        let Self { path, lost } = self.clone();
        Box::pin(async move {
            let stream = UnixStream::connect(path).await?;
            Ok(TokioIo::new(RuntimeConnection { stream, lost }))
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
