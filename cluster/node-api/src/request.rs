//! Answers one request, whichever version of HTTP it came over.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Request, Response, StatusCode};
use winddown_shared::error_chain;

use crate::answer::{self, Body, FailureAnswer};
use crate::body::in_blocks;
use crate::connection::ClientConnection;
use crate::route::RequestedEndpoint;
use crate::summary::summary;
use crate::{logs, pods, resource_metrics, streams};

/// Answers a request of an authorized client, or says why it is not answered.
pub(crate) async fn answer(
    connection: &Arc<ClientConnection>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let open = connection.begin();
    let (response, place) = match connection.admit(&request).await {
        Ok((endpoint, place)) => (respond(connection, endpoint, &mut request).await, place),
        Err(failure) => {
            connection.refuse();
            (Err(failure), None)
        }
    };
    let response = response.unwrap_or_else(FailureAnswer::answer);
    response.map(|body| in_blocks(body, (open, place)))
}

async fn respond(
    connection: &ClientConnection,
    endpoint: RequestedEndpoint,
    request: &mut Request<Incoming>,
) -> Result<Response<Body>, FailureAnswer> {
    let context = &*connection.context;
    match endpoint {
        RequestedEndpoint::Health => Ok(answer::text("ok")),
        RequestedEndpoint::Pods => {
            let list = pods::list(&context.node.statuses());
            list.map(answer::json).map_err(|error| {
                FailureAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            })
        }
        RequestedEndpoint::Logs(container_ref) => {
            let reading = logs::open(context, &container_ref, request.uri().query()).await?;
            let frames = reading.into_stream().map_ok(|block| Frame::data(Bytes::from(block)));
            let body = StreamBody::new(frames).boxed_unsync();
            Ok(answer::stream("text/plain; charset=utf-8", body))
        }
        RequestedEndpoint::Summary => {
            let query = request.uri().query().unwrap_or_default();
            let disks = !form_urlencoded::parse(query.as_bytes()).any(|(key, value)| {
                key == "only_cpu_and_memory" && matches!(&*value, "1" | "true")
            });
            let taken = context.figures.get(disks).await.map_err(|error| {
                FailureAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error_chain(&error))
            })?;
            let summary = summary(&context.node_name, &taken, &context.node.statuses());
            Ok(answer::json(summary.to_string().into_bytes()))
        }
        RequestedEndpoint::Resources => {
            let taken = context.figures.get(false).await.inspect_err(|error| {
                tracing::warn!(error = error_chain(error), "cannot report what pods use");
            });
            let statuses = context.node.statuses();
            Ok(answer::metrics(resource_metrics::text(taken.ok().as_deref(), &statuses)))
        }
        RequestedEndpoint::Stream(target) => {
            let (response, tunnel) = streams::open(context, &target, request).await?;
            connection.keep_tunnel(tunnel);
            Ok(response)
        }
        RequestedEndpoint::Other(method) => {
            let text = format!("use {method} here");
            let mut response = FailureAnswer::new(StatusCode::METHOD_NOT_ALLOWED, text).answer();
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
            Ok(response)
        }
        RequestedEndpoint::Unknown => {
            Err(FailureAnswer::new(StatusCode::NOT_FOUND, "there is no such path"))
        }
    }
}
