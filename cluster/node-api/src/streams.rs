//! Streams into containers: exec, attach and port-forward.
//!
//! A runtime may serve streams at an address of its own on this machine: once the connection is upgraded (SPDY,
//! WebSocket), its bytes are relayed unchanged. Or the runtime prepares commands, whose streams are served here.

mod command;
mod options;
mod patience;
mod server;
mod tunnel;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Request, Response, StatusCode};
use winddown_host::{PodStream, StreamRequest};
use winddown_shared::status::StatusEntry;
use winddown_shared::{Pod, error_chain};

use crate::answer::{self, Body, FailureAnswer};
use crate::context::RequestContext;
use crate::route::{StreamKind, StreamTarget};

#[cfg(any(test, fuzzing))]
pub(crate) use options::read as options;
use server::ServerAnswer;
use tunnel::Far;
pub(crate) use tunnel::Tunnel;

/// Has the runtime open a stream. The caller runs the tunnel once the response has been sent; without a tunnel the
/// response is the whole answer.
pub(crate) async fn open(
    context: &RequestContext,
    target: &StreamTarget,
    request: &mut Request<Incoming>,
) -> Result<(Response<Body>, Option<Tunnel>), FailureAnswer> {
    let Ok(turn) = Arc::clone(&context.streams).try_acquire_owned() else {
        let text = "too many streams are open on this node: try again later";
        return Err(FailureAnswer::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let (stream, entry) = prepare(context, target, request).await?;
    let (response, far) = match stream {
        PodStream::Served(server) => {
            match server::ask(&server, request).await.map_err(|why| unserved(&why))? {
                ServerAnswer::Refused(response) => return Ok((response, None)),
                ServerAnswer::Upgraded(headers, server) => {
                    let mut response = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
                    *response.headers_mut() = headers;
                    (response, Far::Server(server))
                }
            }
        }
        PodStream::Command(stream) => (command::agree(request.headers())?, Far::Command(stream)),
    };
    let client: OnUpgrade = hyper::upgrade::on(request);
    let (node, pod) = (context.node.clone(), entry.pod.uid().clone());
    Ok((response, Some(Tunnel { client, far, node, pod, _turn: turn })))
}

/// Makes the checks of the kubelet, in its order and with its messages, and prepares the stream.
async fn prepare(
    context: &RequestContext,
    target: &StreamTarget,
    request: &Request<Incoming>,
) -> Result<(PodStream, StatusEntry), FailureAnswer> {
    let Some(streams) = &context.pod_streams else {
        let text = "this node does not serve exec, attach and port-forward";
        return Err(FailureAnswer::new(StatusCode::NOT_IMPLEMENTED, text));
    };
    let mut wanted = options::read(&target.kind, request.uri().query().unwrap_or_default())
        .map_err(|text| FailureAnswer::new(StatusCode::BAD_REQUEST, text))?;
    let StreamTarget { namespace, pod, uid, kind } = target;
    let not_found = |text| FailureAnswer::new(StatusCode::NOT_FOUND, text);
    let entry = context.pod(namespace, pod).ok_or_else(|| not_found("pod does not exist"))?;
    let is_other = uid.as_deref().is_some_and(|uid| entry.pod.uid().as_str() != uid);
    if is_other && *kind == StreamKind::PortForward {
        return Err(not_found("pod not found"));
    }
    if !wants_upgrade(request.headers()) {
        return Err(FailureAnswer::new(StatusCode::BAD_REQUEST, "Upgrade request required"));
    }
    if let StreamRequest::Attach { container, stdio } = &mut wanted {
        stdio.tty = has_tty(&entry.pod, container);
    }
    let stream = match is_other {
        true => None,
        false => streams.open(entry.pod.uid(), wanted).await.map_err(|error| {
            FailureAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error_chain(&error))
        })?,
    };
    let text = match kind {
        StreamKind::Exec(container) => format!("container not found ({container:?})"),
        StreamKind::Attach(container) => {
            format!("container {container} not found in pod {pod}_{namespace}")
        }
        StreamKind::PortForward => format!("pod not found (\"{pod}_{namespace}\")"),
    };
    let missing = || FailureAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    Ok((stream.ok_or_else(missing)?, entry))
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    let mut connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(UPGRADE)
        && connection.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Whether the container was started with a terminal, which an attach cannot change.
fn has_tty(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut all = containers
        .map(|one| (&one.name, one.tty))
        .chain(spec.ephemeral_containers.iter().flatten().map(|one| (&one.name, one.tty)));
    all.any(|(of, tty)| of == name && tty == Some(true))
}

/// The response if the runtime's streaming server does not answer as expected.
fn unserved(why: &str) -> FailureAnswer {
    let text = format!("the container runtime does not serve the stream: {why}");
    FailureAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}
