//! Accepts connections and bounds their number and duration.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use winddown_shared::error_chain;

use super::connection::WriteDeadline;
use super::route::ServerShared;
use super::slots::{Slot, Slots};
use super::{AgentApi, ControlSocket, Limits, Peer, respond, route};
use crate::api::ErrorCode;

/// Serves the control API. Cheap to clone; clones share the limits.
pub struct Server<A> {
    shared: Arc<ServerShared<A>>,
}

/// How long open connections may continue after the server was told to stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait after a failed accept, for example without a free file descriptor.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

impl<A> Clone for Server<A> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<A: AgentApi> Server<A> {
    /// Creates a server that answers from `api` until `stop` is cancelled.
    pub fn new(api: Arc<A>, limits: Limits, stop: CancellationToken) -> Self {
        let slots = Arc::new(Slots::new(limits));
        let shared = ServerShared { api, limits, slots, stop };
        Self { shared: Arc::new(shared) }
    }

    /// Serves the control socket, and makes it again if somebody removes it. After `stop` is cancelled, removes the socket's file and returns when all open
    /// connections are done, or after a second.
    pub async fn serve(self, socket: ControlSocket) {
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        let mut socket = socket.keep();
        loop {
            let accepted = tokio::select! {
                () = self.shared.stop.cancelled() => break,
                accepted = socket.accept() => accepted,
            };
            let Some(stream) = taken(accepted).await else { continue };
            match Peer::of(&stream, socket.group()) {
                Ok(peer) => self.start(stream, peer, &tasks, &abort),
                Err(error) => tracing::debug!(
                    error = error_chain(&error),
                    "a control client disconnected before it was identified"
                ),
            }
        }
        // From here on a new command finds no socket and reports that the agent is not running.
        drop(socket);
        drain_connections(tasks, abort).await;
    }

    /// Serves metrics and health, and nothing else, on a TCP address. Returns like [`serve`](Self::serve).
    pub async fn serve_metrics(self, listener: TcpListener) {
        let tasks = TaskTracker::new();
        let abort = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                () = self.shared.stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            if let Some((stream, from)) = taken(accepted).await {
                self.start(stream, Peer::Network(from.ip()), &tasks, &abort);
            }
        }
        drop(listener);
        drain_connections(tasks, abort).await;
    }

    /// Serves one request on an established connection.
    #[cfg(any(test, fuzzing))]
    pub(super) async fn serve_connection<S>(&self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(slot) = Slots::take(&self.shared.slots, peer) {
            serve_connection(&self.shared, stream, peer, &slot).await;
        }
    }

    fn start<S>(&self, stream: S, peer: Peer, tasks: &TaskTracker, abort: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(slot) = Slots::take(&self.shared.slots, peer) else {
            // Only at debug level: otherwise a local user could fill the journal.
            tracing::debug!(%peer, "too many control connections, one was closed");
            return;
        };
        let abort = abort.clone();
        let shared = Arc::clone(&self.shared);
        tasks.spawn(async move {
            tokio::select! {
                () = abort.cancelled() => {}
                () = slot.leave.cancelled() => {}
                () = serve_connection(&shared, stream, peer, &slot) => {}
            }
        });
    }
}

async fn serve_connection<A, S>(shared: &Arc<ServerShared<A>>, stream: S, peer: Peer, slot: &Slot)
where
    A: AgentApi,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = shared.limits;
    let head = match peer {
        Peer::Local { .. } => limits.read,
        Peer::Network(_) => limits.network_head,
    };
    let may_pause = Arc::new(AtomicBool::new(false));
    let pauses = &may_pause;
    let service = service_fn(|request| async move {
        let response = if slot.refused {
            respond::failure(&too_many())
        } else {
            route::answer(shared, peer, request).await
        };
        pauses.store(respond::reader_may_pause(&response), Ordering::Relaxed);
        Ok::<_, Infallible>(response)
    });
    let io = TokioIo::new(WriteDeadline::new(stream, limits.write, Arc::clone(&may_pause)));
    let result = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(limits.head_bytes.max(8192))
        .keep_alive(false)
        .serve_connection(io, service)
        .await;
    if let Err(error) = result {
        tracing::debug!(error = error_chain(&error), %peer, "a control connection was closed early");
    }
}

fn too_many() -> super::ApiError {
    super::ApiError::new(ErrorCode::Unavailable, "the agent has too many control connections")
        .with_hint("close some (`winddown status --watch` holds one), or try again later")
}

/// Returns the connection, or waits after an error: running out of descriptors must not become a busy loop.
async fn taken<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "cannot accept a control connection");
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            None
        }
    }
}

async fn drain_connections(tasks: TaskTracker, abort: CancellationToken) {
    tasks.close();
    if tokio::time::timeout(CLOSE_TIMEOUT, tasks.wait()).await.is_err() {
        abort.cancel();
        tasks.wait().await;
    }
}
