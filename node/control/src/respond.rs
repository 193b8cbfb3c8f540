//! Builds responses.

use std::io;

use futures_util::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::ApiError;
use crate::api::{ErrorBody, ErrorCode};

/// An error cuts the response off, and the client learns that it is incomplete.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Marks a response that a person may page through.
#[derive(Clone, Copy)]
struct ReaderMayPause;

/// Tells clients the version of the agent.
pub(super) const VERSION_HEADER: &str = "winddown-version";

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn json(value: &impl Serialize) -> Response<Body> {
    match crate::json::line(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            respond(StatusCode::OK, "application/json", full(bytes))
        }
        Err(error) => failure(&ApiError::new(ErrorCode::Internal, error.to_string())),
    }
}

pub(super) fn text(status: StatusCode, text: String) -> Response<Body> {
    respond(status, "text/plain; charset=utf-8", full(text.into_bytes()))
}

pub(super) fn metrics(text: String) -> Response<Body> {
    respond(StatusCode::OK, OPENMETRICS, full(text.into_bytes()))
}

/// Responds with one JSON object per line, for as long as the stream lasts.
pub(super) fn json_lines<T: Serialize>(
    lines: impl Stream<Item = T> + Send + 'static,
) -> Response<Body> {
    let frames = lines.map(|line| {
        let mut bytes = crate::json::line(&line).unwrap_or_default();
        bytes.push(b'\n');
        Ok(Frame::data(Bytes::from(bytes)))
    });
    respond(StatusCode::OK, "application/jsonl", StreamBody::new(frames).boxed_unsync())
}

/// Responds with text in blocks, for as long as the stream lasts and however slowly it is read.
pub(super) fn blocks(
    blocks: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
) -> Response<Body> {
    let frames = blocks.map(|block| block.map(|block| Frame::data(Bytes::from(block))));
    let body = StreamBody::new(frames).boxed_unsync();
    let mut response = respond(StatusCode::OK, "text/plain; charset=utf-8", body);
    response.extensions_mut().insert(ReaderMayPause);
    response
}

/// Whether the response may stay unread for any time.
pub(super) fn reader_may_pause(response: &Response<Body>) -> bool {
    response.extensions().get::<ReaderMayPause>().is_some()
}

pub(super) fn failure(error: &ApiError) -> Response<Body> {
    let body =
        ErrorBody { code: error.code, error: error.message.clone(), hint: error.hint.clone() };
    let bytes = serde_json::to_vec(&body).unwrap_or_default();
    respond(status_of(error.code), "application/json", full(bytes))
}

pub(super) fn wrong_method(allowed: &'static str) -> Response<Body> {
    let error = ApiError::new(ErrorCode::BadRequest, format!("use {allowed} here"));
    let mut response = failure(&error);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Conflict => StatusCode::CONFLICT,
        ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn full(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync()
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}
