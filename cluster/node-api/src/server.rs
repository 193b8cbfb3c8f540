//! Accepts connections, and bounds their number and their waits.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use winddown_shared::error_chain;

use crate::connection::{ClientConnection, HANDSHAKE_TIMEOUT, MAX_HEAD_BYTES};
use crate::context::RequestContext;
use crate::hangup::hangup;
use crate::http2;
use crate::places::ConnectionSlot;
use crate::request::answer;
use crate::tls::HTTP2;

/// How long to wait after a connection could not be accepted, e.g. for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Serves for as long as it is polled. Dropping it closes all connections.
pub(crate) async fn serve(context: Arc<RequestContext>, listener: TcpListener) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, from)) => {
                keep_alive(&stream);
                let seat = context.places.guests.take_slot(from.ip());
                let hung_up = hangup(&stream);
                let answered = converse(Arc::clone(&context), stream, from, seat);
                connections.spawn(async move {
                    tokio::select! {
                        () = answered => {}
                        () = hung_up => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the node API cannot accept a connection"
                );
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// Turns on TCP keepalive, so that a client whose machine is gone does not hold its place for ever.
fn keep_alive(stream: &TcpStream) {
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &60);
    let _ = stream.set_nodelay(true);
}

/// Answers the requests of one connection.
pub(crate) async fn converse<S>(
    context: Arc<RequestContext>,
    stream: S,
    from: SocketAddr,
    seat: ConnectionSlot,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let leave = seat.leave.clone();
    let answered = leave.run_until_cancelled(talk(context, stream, seat)).await;
    if let Some(Err(why)) = answered {
        // Debug level, because unauthorized clients could flood the journal otherwise.
        tracing::debug!(%from, why, "a connection to the node API was closed early");
    }
}

async fn talk<S>(
    context: Arc<RequestContext>,
    stream: S,
    seat: ConnectionSlot,
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    context.places.handshakes.turn().await;
    let tls = context.tls.acceptor().await.map_err(|error| error_chain(&error))?;
    let agreed =
        timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await.map_err(|error| error.to_string())?;
    let stream = agreed.map_err(|error| error_chain(&error))?;
    let session = stream.get_ref().1;
    let shown = session.peer_certificates().filter(|chain| !chain.is_empty());
    let certificate = shown.map(|chain| chain.iter().map(|one| one.clone().into_owned()).collect());
    let speaks_http2 = session.alpn_protocol() == Some(HTTP2);
    let connection = ClientConnection::new(context, seat, certificate);
    if speaks_http2 {
        http2::serve(connection, TokioIo::new(stream)).await
    } else {
        answer_one(&connection, stream).await
    }
}

/// Answers one request over HTTP/1.1 and closes the connection.
async fn answer_one<S>(connection: &Arc<ClientConnection>, stream: S) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| async {
        let mut answered = answer(connection, request).await;
        if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
            answered.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok::<_, Infallible>(answered)
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        // A client that has sent all it has to say may close its half; `hangup` notices one that is gone.
        .half_close(true)
        .max_buf_size(MAX_HEAD_BYTES as usize)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await
        .map_err(|error| error_chain(&error))?;
    match connection.take_tunnel() {
        Some(tunnel) => tunnel.pass().await.map_err(|error| error_chain(&error)),
        None => Ok(()),
    }
}
