//! Routes requests.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::LONGEST_NOTICE;

use super::respond::{self, Body};
use super::slots::Slots;
use super::{AgentApi, ApiError, Limits, Peer};
use crate::api::{
    DrainEvent, DrainRequest, Envelope, ErrorCode, Health, KillBody, LogQuery, NoticeBody, Status,
};

/// The minimum interval between two status lines for one watcher, so that a burst of changes causes one line.
const WATCH_PACE: Duration = Duration::from_millis(100);

/// State that all connections of a server share.
pub(super) struct ServerShared<A> {
    pub(super) api: Arc<A>,
    pub(super) limits: Limits,
    pub(super) slots: Arc<Slots>,
    pub(super) stop: CancellationToken,
}

type Answer = Result<Response<Body>, ApiError>;

pub(super) async fn answer<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let result = match segments.as_slice() {
        ["metrics"] => {
            if let Peer::Network(_) = peer {
                shared.slots.scrapes.turn().await;
            }
            shared.api.refresh().await;
            read(&request, || respond::metrics(shared.api.metrics()))
        }
        ["healthz"] => read(&request, || health("healthz", &shared.api.health(), &request)),
        ["readyz"] => read(&request, || health("readyz", &shared.api.readiness(), &request)),
        // The network may read numbers, never names.
        _ if matches!(peer, Peer::Network(_)) => Err(not_found(&path)),
        ["v1", "pods", namespace, name, "kill"] => {
            kill(shared, peer, request, namespace, name).await
        }
        ["v1", "pods", namespace, name, "release"] => {
            release(shared, peer, &request, namespace, name).await
        }
        ["v1", "pods", namespace, name, "log"] => {
            log(shared, peer, &request, namespace, name).await
        }
        ["v1", "plan", "preemption"] => preemption(shared, peer, request).await,
        ["v1", "drain"] => drain(shared, peer, request).await,
        ["v1", "notice"] => notice(shared, peer, request).await,
        ["v1", rest @ ..] => ask(shared, peer, &request, rest).await,
        _ => Err(not_found(&path)),
    };
    result.unwrap_or_else(|error| respond::failure(&error))
}

/// Handles requests that change nothing.
async fn ask<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: &Request<Incoming>,
    path: &[&str],
) -> Answer {
    let api = &shared.api;
    if !is_read(request) && !matches!(path, ["pods", ..]) {
        return Ok(respond::wrong_method("GET"));
    }
    match path {
        ["status"] if has_flag(request, "watch") => watch(shared, peer),
        ["status"] => {
            api.refresh().await;
            Ok(respond::json(&Envelope::new(api.status())))
        }
        #[cfg(feature = "shutdown")]
        ["plan", "shutdown"] => {
            let within = seconds(request, "seconds")?;
            Ok(respond::json(&Envelope::new(api.shutdown_plan(within).await)))
        }
        ["plan", "start"] => Ok(respond::json(&Envelope::new(api.start_plan()?))),
        #[cfg(feature = "eviction")]
        ["plan", "eviction"] => {
            let plan = api.eviction_plan(value(request, "signal")).await?;
            Ok(respond::json(&Envelope::new(plan)))
        }
        ["reports"] => Ok(respond::json(&Envelope::new(api.reports().await?))),
        ["reports", id] => Ok(respond::json(&api.report(id).await?)),
        ["config"] => Ok(respond::json(&api.config())),
        _ => Err(not_found(request.uri().path())),
    }
}

/// Handles preemption plans. A manifest in the body is only evaluated, so read access is enough to send one.
async fn preemption<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: Request<Incoming>,
) -> Answer {
    let strategy = value(&request, "strategy").map(str::to_owned);
    let strategy = strategy.as_deref();
    if is_read(&request) {
        return Ok(respond::json(&Envelope::new(shared.api.preemption_plan(None, strategy)?)));
    }
    if request.method() != Method::POST {
        return Ok(respond::wrong_method("GET, POST"));
    }
    let limits = shared.limits;
    let place = tokio::time::timeout(limits.read, shared.slots.manifests(peer).acquire());
    // Held until the answer is known.
    let _place = place.await.map_err(|_| {
        ApiError::new(ErrorCode::Unavailable, "the agent has too many manifests to read already")
            .with_hint("try again later")
    })?;
    let manifest = bytes(shared, request, limits.manifest_bytes).await?;
    Ok(respond::json(&Envelope::new(shared.api.preemption_plan(Some(&manifest), strategy)?)))
}

async fn kill<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: Request<Incoming>,
    namespace: &str,
    name: &str,
) -> Answer {
    if request.method() != Method::POST {
        return Ok(respond::wrong_method("POST"));
    }
    may_change(peer)?;
    let body: KillBody = body(shared, request).await?;
    at_least_one("graceSeconds", body.grace_seconds)?;
    let name = &*whole_name(shared, namespace, name);
    tracing::info!(%peer, namespace, name, grace_seconds = body.grace_seconds, "kill requested");
    tokio::select! {
        // First, so that the pod has been asked before this says that it is.
        biased;
        answer = shared.api.kill(namespace, name, body) => match answer {
            Err(error) => Err(unless_no_pod(shared, error, namespace, name)),
            Ok(answer) => Ok(respond::json(&Envelope::new(answer))),
        },
        () = shared.stop.cancelled() => Err(ApiError::kill_cut_short()),
    }
}

async fn release<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: &Request<Incoming>,
    namespace: &str,
    name: &str,
) -> Answer {
    if request.method() != Method::POST {
        return Ok(respond::wrong_method("POST"));
    }
    may_change(peer)?;
    let name = &*whole_name(shared, namespace, name);
    tracing::info!(%peer, namespace, name, "release of a pod's hold requested");
    Ok(respond::json(&Envelope::new(shared.api.release(namespace, name).await?)))
}

/// The whole name of the pod that is called so: that of a static pod may lack the node's at its end.
fn whole_name<A: AgentApi>(shared: &ServerShared<A>, namespace: &str, name: &str) -> String {
    let status = shared.api.status();
    status.pod(namespace, name).map_or_else(|| name.to_owned(), |pod| pod.name.clone())
}

/// Says of a pod that is not here, or not known yet, only that.
fn unless_no_pod<A: AgentApi>(
    shared: &ServerShared<A>,
    error: ApiError,
    namespace: &str,
    name: &str,
) -> ApiError {
    if error.code != ErrorCode::NotFound {
        return error;
    }
    let status = shared.api.status();
    match status.pods.iter().any(|pod| pod.namespace == namespace && pod.name == name) {
        // Of a pod that is here, something else was not found.
        true => error,
        false => status.no_pod(namespace, name),
    }
}

/// Sends the log of a container, which may have secrets: only those who may change the node's state may read it.
async fn log<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: &Request<Incoming>,
    namespace: &str,
    name: &str,
) -> Answer {
    if !is_read(request) {
        return Ok(respond::wrong_method("GET"));
    }
    may_change(peer)?;
    let tail_lines = value(request, "tailLines").map(str::parse::<u64>).transpose();
    let query = LogQuery {
        container: value(request, "container").map(str::to_owned),
        follow: has_flag(request, "follow"),
        previous: has_flag(request, "previous"),
        timestamps: has_flag(request, "timestamps"),
        tail_lines: tail_lines.map_err(|_| bad_request("tailLines: not a number".to_owned()))?,
    };
    let permit = shared.slots.watch(peer).ok_or_else(|| {
        ApiError::new(
            ErrorCode::Unavailable,
            "too many clients read logs or watch the status already",
        )
        .with_hint("stop following a log, or a `winddown status --watch`")
    })?;
    let name = &*whole_name(shared, namespace, name);
    let blocks = shared.api.log(namespace, name, query).await;
    let blocks = blocks.map_err(|error| unless_no_pod(shared, error, namespace, name))?;
    let blocks = blocks.map(move |block| {
        let _until_the_end = &permit;
        block.unwrap_or_else(|error| {
            format!("winddown: the log cannot be read further: {error}\n").into_bytes()
        })
    });
    Ok(respond::blocks(cut_off(blocks, shared.stop.clone())))
}

/// The blocks, and an error if the agent stops before the last one: the log goes on without it.
fn cut_off(
    blocks: impl Stream<Item = Vec<u8>> + Send + 'static,
    stop: CancellationToken,
) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    stream::unfold((Box::pin(blocks), stop), |(mut blocks, stop)| async move {
        let block = tokio::select! {
            biased;
            block = blocks.next() => Ok(block?),
            () = stop.cancelled() => Err(io::Error::other("the agent is stopping")),
        };
        Some((block, (blocks, stop)))
    })
}

async fn drain<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: Request<Incoming>,
) -> Answer {
    if request.method() != Method::POST {
        return Ok(respond::wrong_method("POST"));
    }
    may_change(peer)?;
    let body = DrainRequest { by: Some(peer), ..body(shared, request).await? };
    at_least_one("timeoutSeconds", body.timeout_seconds)?;
    if let Some(seconds) = body.timeout_seconds {
        within_clock("timeoutSeconds", seconds)?;
    }
    tracing::info!(%peer, timeout_seconds = body.timeout_seconds, "drain requested");
    let events = shared.api.drain(body).await?;
    Ok(respond::json_lines(drain_lines(events, shared.stop.clone()).map(Envelope::new)))
}

async fn notice<A: AgentApi>(
    shared: &Arc<ServerShared<A>>,
    peer: Peer,
    request: Request<Incoming>,
) -> Answer {
    match *request.method() {
        Method::POST => {
            may_change(peer)?;
            let body = NoticeBody { by: Some(peer), ..body(shared, request).await? };
            tracing::info!(
                %peer,
                deadline = body.deadline.map(tracing::field::display),
                in_seconds = body.in_seconds,
                "notice requested"
            );
            let events = shared.api.give_notice(body).await?;
            Ok(respond::json_lines(drain_lines(events, shared.stop.clone()).map(Envelope::new)))
        }
        Method::DELETE => {
            may_change(peer)?;
            tracing::info!(%peer, "undrain requested");
            Ok(respond::json(&Envelope::new(shared.api.withdraw_notice().await)))
        }
        _ => Ok(respond::wrong_method("POST, DELETE")),
    }
}

fn watch<A: AgentApi>(shared: &Arc<ServerShared<A>>, peer: Peer) -> Answer {
    let permit = shared.slots.watch(peer).ok_or_else(|| {
        ApiError::new(ErrorCode::Unavailable, "too many clients watch the status already")
            .with_hint("stop a `winddown status --watch`, or ask without --watch")
    })?;
    let watcher = Watcher {
        api: Arc::clone(&shared.api),
        changes: shared.api.changes(),
        look: shared.limits.look,
        stop: shared.stop.clone(),
        last: None,
        _permit: permit,
    };
    Ok(respond::json_lines(watcher.lines().map(Envelope::new)))
}

/// A client that follows every change.
struct Watcher<A> {
    api: Arc<A>,
    changes: watch::Receiver<u64>,
    look: Duration,
    stop: CancellationToken,
    last: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

impl<A: AgentApi> Watcher<A> {
    fn lines(self) -> impl Stream<Item = Status> + Send + 'static {
        stream::unfold(self, |mut watcher| async move {
            let status = watcher.next().await?;
            Some((status, watcher))
        })
    }

    async fn next(&mut self) -> Option<Status> {
        if let Some(last) = self.last {
            loop {
                tokio::select! {
                    () = self.stop.cancelled() => return None,
                    changed = self.changes.changed() => break changed.ok()?,
                    // What has changed meanwhile counts as a change.
                    () = tokio::time::sleep(self.look) => self.api.refresh().await,
                }
            }
            tokio::time::sleep_until(last + WATCH_PACE).await;
        }
        self.api.refresh().await;
        // Marked as seen before the status is read: a change in between causes one extra line.
        self.changes.borrow_and_update();
        self.last = Some(Instant::now());
        Some(self.api.status())
    }
}

fn drain_lines(
    events: mpsc::UnboundedReceiver<DrainEvent>,
    stop: CancellationToken,
) -> impl Stream<Item = DrainEvent> + Send + 'static {
    stream::unfold((events, stop), |(mut events, stop)| async move {
        let event = tokio::select! {
            event = events.recv() => event?,
            () = stop.cancelled() => return None,
        };
        Some((event, (events, stop)))
    })
}

fn health(endpoint: &str, health: &Health, request: &Request<Incoming>) -> Response<Body> {
    let status = if health.ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond::text(status, health.text(endpoint, has_flag(request, "verbose")))
}

fn read(request: &Request<Incoming>, answer: impl FnOnce() -> Response<Body>) -> Answer {
    Ok(if is_read(request) { answer() } else { respond::wrong_method("GET") })
}

fn is_read(request: &Request<Incoming>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Whether a flag is set: by `?name`, `?name=1` or `?name=true`.
fn has_flag(request: &Request<Incoming>, name: &str) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| match pair.split_once('=') {
        None => pair == name,
        Some((key, value)) => key == name && matches!(value, "" | "1" | "true"),
    })
}

/// The value of a query parameter.
fn value<'r>(request: &'r Request<Incoming>, name: &str) -> Option<&'r str> {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// A whole number of seconds in a query parameter.
#[cfg(feature = "shutdown")]
fn seconds(request: &Request<Incoming>, name: &str) -> Result<Option<Duration>, ApiError> {
    let wrong = |_| {
        ApiError::new(ErrorCode::BadRequest, format!("{name}: not a whole number of seconds"))
            .with_hint(format!("write for example ?{name}=30"))
    };
    let Some(text) = value(request, name) else { return Ok(None) };
    let seconds = text.parse::<u64>().map_err(wrong)?;
    within_clock(name, seconds)?;
    Ok(Some(Duration::from_secs(seconds)))
}

/// Refuses no time at all, as the command line does: pods would be killed at once.
fn at_least_one(name: &str, seconds: Option<u64>) -> Result<(), ApiError> {
    match seconds {
        Some(0) => Err(bad_request(format!("{name}: at least 1"))),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a time that is further ahead than a notice may be: it would overflow the clock of the agent that adds it.
fn within_clock(name: &str, seconds: u64) -> Result<(), ApiError> {
    let most = LONGEST_NOTICE.as_secs();
    if seconds > most {
        return Err(bad_request(format!("{name}: at most {most}")));
    }
    Ok(())
}

fn may_change(peer: Peer) -> Result<(), ApiError> {
    if peer.may_change() {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::Forbidden,
        "permission denied: this user may read the node's state, not change it",
    )
    .with_hint(
        "run it again with sudo; controlSocketGroup in the configuration gives a group access",
    ))
}

async fn body<A, T: DeserializeOwned + Default>(
    shared: &ServerShared<A>,
    request: Request<Incoming>,
) -> Result<T, ApiError> {
    let bytes = bytes(shared, request, shared.limits.body_bytes).await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| bad_request(format!("the request's body: {error}")))
}

/// Reads the whole body, of at most `most` bytes, within the time that it may take.
async fn bytes<A>(
    shared: &ServerShared<A>,
    request: Request<Incoming>,
    most: usize,
) -> Result<Vec<u8>, ApiError> {
    let within = shared.limits.read;
    let body = Limited::new(request.into_body(), most);
    match tokio::time::timeout(within, copied(body)).await {
        Err(_) => Err(bad_request(format!("the request's body did not arrive within {within:?}"))),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(bad_request(format!("the request's body is larger than {most} bytes")))
        }
        Ok(Err(error)) => Err(bad_request(format!("the request's body: {error}"))),
        Ok(Ok(bytes)) => Ok(bytes),
    }
}

/// Copies a body piece by piece. Collected as they are, pieces of one byte would each keep the 8 KiB that hyper read
/// them into.
async fn copied(body: Limited<Incoming>) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let (mut body, mut bytes) = (body.into_data_stream(), Vec::new());
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

fn bad_request(message: String) -> ApiError {
    ApiError::new(ErrorCode::BadRequest, message)
}

fn not_found(path: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no path {path:?}"))
        .with_hint("the command and the agent may be of different versions: `winddown status`")
}
