//! Requests a stream, which the runtime has prepared, from the runtime's own server.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderValue, TRANSFER_ENCODING,
};
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use winddown_host::StreamServer;
use winddown_shared::error_chain;

use crate::answer::{self, Body};

/// How long the server may take to answer.
const SERVER_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a refusal that are passed on.
const LONGEST_REFUSAL: usize = 64 * 1024;

/// The client's headers that are not for the runtime: its credentials and those of this hop.
const NOT_PASSED: [hyper::header::HeaderName; 5] =
    [AUTHORIZATION, COOKIE, HOST, CONTENT_LENGTH, TRANSFER_ENCODING];

pub(super) enum ServerAnswer {
    /// The headers of the response, and the connection, which speaks another protocol from now on.
    Upgraded(HeaderMap, Upgraded),
    Refused(Response<Body>),
}

/// Forwards a client's upgrade request. The error is for display.
pub(super) async fn ask(
    server: &StreamServer,
    request: &Request<Incoming>,
) -> Result<ServerAnswer, String> {
    let asked = timeout(SERVER_ANSWER_TIMEOUT, exchange(server, request));
    asked.await.map_err(|_| format!("no answer within {} s", SERVER_ANSWER_TIMEOUT.as_secs()))?
}

async fn exchange(
    server: &StreamServer,
    request: &Request<Incoming>,
) -> Result<ServerAnswer, String> {
    let mut asked = Request::builder()
        .method(request.method())
        .uri(server.path())
        .body(Empty::<Bytes>::new())
        .map_err(|error| error_chain(&error))?;
    let headers = asked.headers_mut();
    headers.clone_from(request.headers());
    NOT_PASSED.iter().for_each(|name| drop(headers.remove(name)));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let host = HeaderValue::from_str(&server.address().to_string());
    headers.insert(HOST, host.map_err(|error| error_chain(&error))?);
    let stream = TcpStream::connect(server.address()).await.map_err(|error| error_chain(&error))?;
    let _ = stream.set_nodelay(true);
    let shaken = handshake(TokioIo::new(stream)).await.map_err(|error| error_chain(&error))?;
    let (mut sender, connection) = shaken;
    // The task ends with the response, or when the connection is upgraded.
    tokio::spawn(connection.with_upgrades());
    let answer = sender.send_request(asked).await.map_err(|error| error_chain(&error))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let headers = answer.headers().clone();
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| error_chain(&error))?;
        return Ok(ServerAnswer::Upgraded(headers, upgraded));
    }
    refusal(answer).await.map(ServerAnswer::Refused)
}

/// Passes the server's error response on. Redirects are not followed.
async fn refusal(answer: Response<Incoming>) -> Result<Response<Body>, String> {
    let status = answer.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return Err(format!("invalid upgrade response: status code {}", status.as_u16()));
    }
    let body = Limited::new(answer.into_body(), LONGEST_REFUSAL).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let mut response = answer::text(&String::from_utf8_lossy(&body));
    *response.status_mut() = status;
    Ok(response)
}
