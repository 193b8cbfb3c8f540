//! Builds HTTP responses.

use std::io;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use crate::who::RefusedClient;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// An error response.
#[derive(Debug)]
pub(crate) struct FailureAnswer {
    pub(crate) status: StatusCode,
    /// The reason, in one line for display.
    pub(crate) text: String,
}

pub(crate) fn text(text: &str) -> Response<Body> {
    of("text/plain; charset=utf-8", text.to_owned().into_bytes())
}

pub(crate) fn json(bytes: Vec<u8>) -> Response<Body> {
    of("application/json", bytes)
}

/// Metrics in the text format of Prometheus.
pub(crate) fn metrics(text: String) -> Response<Body> {
    of("text/plain; version=0.0.4; charset=utf-8", text.into_bytes())
}

fn of(kind: &'static str, bytes: Vec<u8>) -> Response<Body> {
    stream(kind, Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync())
}

pub(crate) fn no_body() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(no_body());
    *response.status_mut() = status;
    response
}

pub(crate) fn stream(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl FailureAnswer {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn answer(self) -> Response<Body> {
        let mut response = text(&format!("{}\n", self.text));
        *response.status_mut() = self.status;
        response
    }
}

impl From<RefusedClient> for FailureAnswer {
    fn from(refused: RefusedClient) -> Self {
        match refused {
            RefusedClient::Unauthorized => Self::new(StatusCode::UNAUTHORIZED, "Unauthorized"),
            RefusedClient::Forbidden { user, verb, subresources } => Self::new(
                StatusCode::FORBIDDEN,
                format!(
                    "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)={subresources:?})"
                ),
            ),
            // The cause is in the node's log: an unauthorized client must not see it.
            RefusedClient::Unjudged(error) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
        }
    }
}
