//! HTTP/2 (RFC 9113), for everything that is no upgrade. The API server prefers it, as it does with a kubelet.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioExecutor;
use winddown_shared::error_chain;

use crate::answer;
use crate::connection::{ClientConnection, MAX_HEAD_BYTES};
use crate::request::answer;

/// The most requests at a time on the connection of a client with a certificate of the cluster; those of Go's server, and
/// so of the kubelet's. With more to ask, Go's client opens another connection.
const MAX_CONCURRENT_REQUESTS: u32 = 250;
/// The same without a certificate: anyone may open such a connection.
const REQUESTS_OF_STRANGERS: u32 = 8;
/// How much of a request's body, which nothing here reads, is taken in, in bytes: the least that every client expects.
const BODY_WINDOW_BYTES: u32 = 65_535;
/// The most bytes of an answer that wait for their client.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection until its client leaves or has to. Floods of resets, settings and continuations are bounded by
/// the library, with its defaults.
pub(crate) async fn serve<S>(connection: Arc<ClientConnection>, io: S) -> Result<(), String>
where
    S: Read + Write + Unpin,
{
    let most =
        if connection.is_of_cluster() { MAX_CONCURRENT_REQUESTS } else { REQUESTS_OF_STRANGERS };
    let of = Arc::clone(&connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let connection = Arc::clone(&of);
        async move {
            let request = without_headers(request);
            let wants_body = request.method() != Method::HEAD;
            let answered = answer(&connection, request).await;
            // HTTP/2 leaves it to its user that HEAD is answered without a body.
            Ok::<_, Infallible>(if wants_body {
                answered
            } else {
                answered.map(|_| answer::no_body())
            })
        }
    });
    let mut served = pin!(
        Builder::new(TokioExecutor::new())
            .max_concurrent_streams(most)
            .max_header_list_size(MAX_HEAD_BYTES)
            .initial_stream_window_size(BODY_WINDOW_BYTES)
            .initial_connection_window_size(BODY_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER)
            .serve_connection(io, service)
    );
    tokio::select! {
        ended = served.as_mut() => return ended.map_err(|error| error_chain(&error)),
        () = connection.is_over() => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        ended = served => ended.map_err(|error| error_chain(&error)),
        () = connection.has_overstayed() => Err("the client does not leave".to_owned()),
    }
}

/// Drops all headers but the token, so that requests that wait hold little memory: a header that is repeated takes a
/// byte of the client's and a hundred of ours.
fn without_headers(mut request: Request<Incoming>) -> Request<Incoming> {
    let tokens = request.headers().get_all(AUTHORIZATION).iter().take(2).cloned();
    *request.headers_mut() = HeaderMap::from_iter(tokens.map(|token| (AUTHORIZATION, token)));
    request
}
