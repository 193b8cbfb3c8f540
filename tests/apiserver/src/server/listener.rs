//! The port: accepts, refuses and closes connections.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gate::{Gate, Gated};
use crate::core::Shared;
use crate::serve::{BrokenOff, Connection, serve};

/// The length of the system's accept queue.
const BACKLOG: u32 = 1024;

/// What all connections need.
#[derive(Clone)]
pub(super) struct Hall {
    pub(super) shared: Arc<Shared>,
    pub(super) gate: Arc<Gate>,
    tls: Arc<Mutex<Arc<ServerConfig>>>,
}

impl Hall {
    pub(super) fn new(shared: Arc<Shared>, tls: Arc<ServerConfig>) -> Self {
        Self { shared, gate: Arc::default(), tls: Arc::new(Mutex::new(tls)) }
    }

    /// Sets the TLS configuration of new connections.
    pub(super) fn set_tls(&self, tls: Arc<ServerConfig>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A listening port. When dropped, it closes with all its connections.
pub(super) struct Door {
    close: CancellationToken,
    tasks: TaskTracker,
}

impl Door {
    pub(super) fn open(listener: TcpListener, hall: Hall) -> Self {
        let (close, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accept = accept(listener, hall, close.clone(), tasks.clone());
        tasks.spawn(close.clone().run_until_cancelled_owned(accept));
        Self { close, tasks }
    }

    /// Closes the port and all connections, and waits until they are closed.
    pub(super) async fn shut(self) {
        self.close.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close.cancel();
    }
}

/// Creates a socket that reserves an address without listening: connections are refused, and no other program gets the
/// port.
pub(super) fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

pub(super) fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, hall: Hall, close: CancellationToken, tasks: TaskTracker) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of file descriptors, which are freed as connections end.
            tokio::task::yield_now().await;
            continue;
        };
        hall.shared.with(|core| core.connections += 1);
        let all = hall.shared.with(|core| core.connections_closed.clone());
        let own = close.child_token();
        let hall = hall.clone();
        tasks.spawn(async move {
            let stop = own.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = all.cancelled() => own.cancel(),
                () = converse(stream, hall, own.clone()) => {}
            }
        });
    }
}

async fn converse(stream: TcpStream, hall: Hall, close: CancellationToken) {
    // Avoids delays of small answers.
    let _ = stream.set_nodelay(true);
    let gated = Gated { stream, gate: Arc::clone(&hall.gate) };
    let Ok(stream) = TlsAcceptor::from(hall.tls()).accept(gated).await else {
        // The client does not trust this server; it knows why.
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let connection = Connection {
        certificate: certificates.and_then(|all| all.first()).map(|der| Arc::from(der.as_ref())),
        close: close.clone(),
    };
    let service = service_fn(move |request| {
        let serving = serve(Arc::clone(&hall.shared), connection.clone(), request);
        let close = close.clone();
        async move { close.run_until_cancelled(serving).await.unwrap_or(Err(BrokenOff)) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1000);
    // How a connection ends is up to the client.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
