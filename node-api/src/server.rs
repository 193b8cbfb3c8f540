//! Accepts connections, bounds their number and their waits, and answers requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use winddown_shared::error_chain;

use crate::answer::{self, Body, Failure};
use crate::body::in_blocks;
use crate::connection::{Connection, HELLO};
use crate::context::Context;
use crate::hangup::hangup;
use crate::places::ConnectionSlot;
use crate::route::Endpoint;
use crate::summary::summary;
use crate::tls::HTTP2;
use crate::{http2, logs, pods, resource_metrics, streams};

/// The most bytes of a request's head.
pub(crate) const LONGEST_HEAD: u32 = 32 * 1024;
/// How long to wait after a connection could not be accepted, e.g. for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Serves for as long as it is polled. Dropping it closes all connections.
pub(crate) async fn serve(context: Arc<Context>, listener: TcpListener) {
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
    context: Arc<Context>,
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
        tracing::debug!(%from, why, "a connection to the node API ended early");
    }
}

async fn talk<S>(context: Arc<Context>, stream: S, seat: ConnectionSlot) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tls = context.tls.acceptor().await.map_err(|error| error_chain(&error))?;
    let agreed = timeout(HELLO, tls.accept(stream)).await.map_err(|error| error.to_string())?;
    let stream = agreed.map_err(|error| error_chain(&error))?;
    let session = stream.get_ref().1;
    let shown = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = shown.map(|one| one.as_ref().to_vec());
    let speaks_http2 = session.alpn_protocol() == Some(HTTP2);
    let connection = Connection::new(context, seat, certificate);
    if speaks_http2 {
        http2::serve(connection, TokioIo::new(stream)).await
    } else {
        answer_one(&connection, stream).await
    }
}

/// Answers one request over HTTP/1.1 and closes the connection.
async fn answer_one<S>(connection: &Arc<Connection>, stream: S) -> Result<(), String>
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
        .header_read_timeout(HELLO)
        .max_buf_size(LONGEST_HEAD as usize)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await
        .map_err(|error| error_chain(&error))?;
    match connection.take_tunnel() {
        Some(tunnel) => tunnel.pass().await.map_err(|error| error_chain(&error)),
        None => Ok(()),
    }
}

/// Answers a request of an authorized client, or says why it is not answered.
pub(crate) async fn answer(
    connection: &Arc<Connection>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let open = connection.begin();
    let (response, place) = match connection.admit(&request).await {
        Ok((endpoint, place)) => (respond(connection, endpoint, &mut request).await, place),
        Err(failure) => (Err(failure), None),
    };
    let response = response.unwrap_or_else(Failure::answer);
    response.map(|body| in_blocks(body, (open, place)))
}

async fn respond(
    connection: &Connection,
    endpoint: Endpoint,
    request: &mut Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let context = &*connection.context;
    match endpoint {
        Endpoint::Health => Ok(answer::text("ok")),
        Endpoint::Pods => {
            let list = pods::list(&context.node.statuses());
            list.map(answer::json)
                .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
        }
        Endpoint::Logs(container_ref) => {
            let reading = logs::open(context, &container_ref, request.uri().query()).await?;
            let body = StreamBody::new(reading.into_stream()).boxed_unsync();
            Ok(answer::stream("text/plain; charset=utf-8", body))
        }
        Endpoint::Summary => {
            let query = request.uri().query().unwrap_or_default();
            let disks = !form_urlencoded::parse(query.as_bytes()).any(|(key, value)| {
                key == "only_cpu_and_memory" && matches!(&*value, "1" | "true")
            });
            let taken = context.figures.get(disks).await.map_err(|error| {
                Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error_chain(&error))
            })?;
            let summary = summary(&context.node_name, &taken, &context.node.statuses());
            Ok(answer::json(summary.to_string().into_bytes()))
        }
        Endpoint::Resources => {
            let taken = context.figures.get(false).await.inspect_err(|error| {
                tracing::warn!(error = error_chain(error), "cannot report what pods use");
            });
            let statuses = context.node.statuses();
            Ok(answer::metrics(resource_metrics::text(taken.ok().as_deref(), &statuses)))
        }
        Endpoint::Stream(target) => {
            let (response, tunnel) = streams::open(context, &target, request).await?;
            connection.keep_tunnel(tunnel);
            Ok(response)
        }
        Endpoint::Other(method) => {
            let text = format!("use {method} here");
            let mut response = Failure::new(StatusCode::METHOD_NOT_ALLOWED, text).answer();
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
            Ok(response)
        }
        Endpoint::Unknown => {
            Err(Failure::new(StatusCode::NOT_FOUND, "there is no such thing here"))
        }
    }
}
