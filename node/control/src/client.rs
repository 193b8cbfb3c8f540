//! The client of the control socket.

mod error;

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::respond::VERSION_HEADER;
use crate::api::{
    ConfigView, DrainRequest, ErrorBody, KillAnswer, KillBody, LogQuery, NoticeBody,
    PreemptionPlan, ReleaseAnswer, ReportList, StartPlan, Status, WithdrawAnswer,
};

pub use error::ClientError;

/// The most bytes of an answer, or of a line of one.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// How long the agent may take for an answer that needs no waiting for pods.
const CONTROL_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same to withdraw a notice or to end a drain: the agent waits up to 12 s for a run, the controller and the disk.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause before connecting again while the agent's accept queue is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(50);

/// A client of the control socket. Each call opens its own connection.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// A response stream of JSON objects, one per line.
#[derive(Debug)]
pub struct AnswerLines {
    socket: PathBuf,
    agent: String,
    body: BodyDataStream<Incoming>,
    buffer: Vec<u8>,
    /// The number of bytes at the front of `buffer` that are known to contain no line end.
    scanned: usize,
}

/// A response of bytes, as they come.
#[derive(Debug)]
pub struct AnswerBlocks {
    socket: PathBuf,
    body: BodyDataStream<Incoming>,
}

// === impl Client ===

impl Client {
    /// Creates a client for the agent that listens on `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// The error of an agent that has not answered within `after`.
    pub fn silent(&self, after: Duration) -> ClientError {
        ClientError::Silent { socket: self.socket.clone(), after }
    }

    /// Gets the current status of the node.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status").await
    }

    /// Streams the status of the node, now and after every change: lines of [`Status`].
    pub async fn watch(&self) -> Result<AnswerLines, ClientError> {
        let answer = self.send(Method::GET, "/v1/status?watch=1", None);
        let response = self.within(CONTROL_ANSWER_TIMEOUT, answer).await?;
        Ok(self.lines(response))
    }

    /// Gets the plan of a shutdown, optionally as if the node were gone in `within` (in whole seconds).
    #[cfg(feature = "shutdown")]
    pub async fn shutdown_plan(
        &self,
        within: Option<Duration>,
    ) -> Result<crate::api::ShutdownPlan, ClientError> {
        let query = within.map(|within| format!("?seconds={}", within.as_secs()));
        self.get(&format!("/v1/plan/shutdown{}", query.unwrap_or_default())).await
    }

    /// Gets the order in which the pods would be started after a boot.
    pub async fn start_plan(&self) -> Result<StartPlan, ClientError> {
        self.get("/v1/plan/start").await
    }

    /// Gets the free resources of the node, and what would be done for the pod of `manifest`.
    pub async fn preemption_plan(
        &self,
        manifest: Option<Vec<u8>>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ClientError> {
        let query = strategy.map(|strategy| format!("?strategy={strategy}"));
        let path = format!("/v1/plan/preemption{}", query.unwrap_or_default());
        let method = if manifest.is_some() { Method::POST } else { Method::GET };
        self.ask(method, &path, manifest).await
    }

    /// Gets the pods that would be evicted if `signal`, by default the one nearest to its threshold, were met.
    #[cfg(feature = "eviction")]
    pub async fn eviction_plan(
        &self,
        signal: Option<&str>,
    ) -> Result<crate::api::EvictionPlan, ClientError> {
        let query = signal.map(|signal| format!("?signal={signal}"));
        self.get(&format!("/v1/plan/eviction{}", query.unwrap_or_default())).await
    }

    /// Stops a pod; resolves when the pod is gone or the agent has stopped waiting.
    pub async fn kill(
        &self,
        namespace: &str,
        name: &str,
        body: &KillBody,
    ) -> Result<KillAnswer, ClientError> {
        let path = format!("/v1/pods/{namespace}/{name}/kill");
        let response = self.send(Method::POST, &path, Some(encode(body)?)).await?;
        self.decode(response).await
    }

    /// Reads the log of a container.
    pub async fn log(
        &self,
        namespace: &str,
        name: &str,
        query: &LogQuery,
    ) -> Result<AnswerBlocks, ClientError> {
        let mut path = format!("/v1/pods/{namespace}/{name}/log?");
        let flags = [
            ("follow", query.follow),
            ("previous", query.previous),
            ("timestamps", query.timestamps),
        ];
        for (flag, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            path.push_str(flag);
            path.push('&');
        }
        if let Some(container) = &query.container {
            path.push_str(&format!("container={container}&"));
        }
        if let Some(lines) = query.tail_lines {
            path.push_str(&format!("tailLines={lines}"));
        }
        let start = if query.follow { LogQuery::START_TIMEOUT } else { Duration::ZERO };
        let answer = self.send(Method::GET, &path, None);
        let response = self.within(CONTROL_ANSWER_TIMEOUT + start, answer).await?;
        let body = response.into_body().into_data_stream();
        Ok(AnswerBlocks { socket: self.socket.clone(), body })
    }

    /// Lets shutdowns proceed although a pod blocks them.
    pub async fn release(&self, namespace: &str, name: &str) -> Result<ReleaseAnswer, ClientError> {
        let path = format!("/v1/pods/{namespace}/{name}/release");
        self.ask(Method::POST, &path, None).await
    }

    /// Stops the node's pods in shutdown order: lines of [`DrainEvent`](crate::api::DrainEvent).
    pub async fn drain(&self, request: &DrainRequest) -> Result<AnswerLines, ClientError> {
        let body = Some(encode(request)?);
        let answer = self.send(Method::POST, "/v1/drain", body);
        let response = self.within(CONTROL_ANSWER_TIMEOUT, answer).await?;
        Ok(self.lines(response))
    }

    /// Announces that the node will go away: lines of [`DrainEvent`](crate::api::DrainEvent).
    pub async fn give_notice(&self, body: &NoticeBody) -> Result<AnswerLines, ClientError> {
        let body = Some(encode(body)?);
        let answer = self.send(Method::POST, "/v1/notice", body);
        let response = self.within(CONTROL_ANSWER_TIMEOUT, answer).await?;
        Ok(self.lines(response))
    }

    /// Withdraws the notice.
    pub async fn withdraw_notice(&self) -> Result<WithdrawAnswer, ClientError> {
        self.ask_for(WITHDRAW_TIMEOUT, Method::DELETE, "/v1/notice", None).await
    }

    /// Lists the shutdown reports that are kept.
    pub async fn reports(&self) -> Result<ReportList, ClientError> {
        self.get("/v1/reports").await
    }

    /// Gets a report; the ID `latest` names the newest.
    pub async fn report(&self, id: &str) -> Result<serde_json::Value, ClientError> {
        self.get(&format!("/v1/reports/{id}")).await
    }

    /// Gets the effective configuration.
    pub async fn config(&self) -> Result<ConfigView, ClientError> {
        self.get("/v1/config").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, None).await
    }

    /// Sends a request that the agent answers without waiting for a pod.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, ClientError> {
        self.ask_for(CONTROL_ANSWER_TIMEOUT, method, path, body).await
    }

    /// The same of a request that the agent may take longer to answer.
    async fn ask_for<T: DeserializeOwned>(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, ClientError> {
        self.within(limit, async {
            let response = self.send(method, path, body).await?;
            self.decode(response).await
        })
        .await
    }

    /// Waits for `answer`, for longer than the agent itself may wait before it answers.
    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let answer = tokio::time::timeout(limit, answer).await;
        answer.unwrap_or_else(|_| Err(self.silent(limit)))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let io = TokioIo::new(self.connect().await?);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(|e| self.broken(e))?;
        // The task ends when the response has been read or dropped.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, "winddown");
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|e| self.io(io::Error::new(io::ErrorKind::InvalidInput, e)))?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        let end = Instant::now() + CONTROL_ANSWER_TIMEOUT;
        loop {
            match UnixStream::connect(&self.socket).await {
                // The accept queue is full: the agent is alive but busy.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                    sleep(FULL_QUEUE_PAUSE).await;
                }
                connected => return connected.map_err(|error| self.connect_error(error)),
            }
        }
    }

    async fn refusal(&self, response: Response<Incoming>) -> ClientError {
        let status = response.status();
        let agent = version_of(&response);
        let bytes = match self.whole(response).await {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => ClientError::Agent { status: status.as_u16(), body },
            // hyper itself answers requests that are not HTTP, with an empty body.
            Err(_) if bytes.is_empty() => {
                ClientError::Agent { status: status.as_u16(), body: bare(status) }
            }
            Err(source) => ClientError::Skew { agent, source },
        }
    }

    async fn decode<T: DeserializeOwned>(
        &self,
        response: Response<Incoming>,
    ) -> Result<T, ClientError> {
        let agent = version_of(&response);
        let bytes = self.whole(response).await?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Skew { agent, source })
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Vec<u8>, ClientError> {
        let (mut body, mut whole) = (response.into_body().into_data_stream(), Vec::new());
        while let Some(data) = body.next().await {
            let data = data.map_err(|error| self.broken(error))?;
            append(&mut whole, &data).map_err(|error| self.io(error))?;
        }
        Ok(whole)
    }

    fn lines(&self, response: Response<Incoming>) -> AnswerLines {
        AnswerLines {
            socket: self.socket.clone(),
            agent: version_of(&response),
            body: response.into_body().into_data_stream(),
            buffer: Vec::new(),
            scanned: 0,
        }
    }

    fn connect_error(&self, error: io::Error) -> ClientError {
        let socket = self.socket.clone();
        match error.kind() {
            io::ErrorKind::NotFound => ClientError::Missing { socket },
            io::ErrorKind::ConnectionRefused => match not_a_socket(&socket) {
                Some(what) => ClientError::NotASocket { socket, what },
                None => ClientError::NotListening { socket },
            },
            io::ErrorKind::PermissionDenied => {
                ClientError::Denied { group: group_of(&socket), socket }
            }
            io::ErrorKind::WouldBlock => {
                ClientError::Silent { socket, after: CONTROL_ANSWER_TIMEOUT }
            }
            // The standard library's error names a C constant.
            io::ErrorKind::InvalidInput => {
                self.io(io::Error::new(io::ErrorKind::InvalidInput, "its path is too long"))
            }
            _ => self.io(error),
        }
    }

    fn broken(&self, error: hyper::Error) -> ClientError {
        broken(&self.socket, error)
    }

    fn io(&self, source: io::Error) -> ClientError {
        ClientError::Io { socket: self.socket.clone(), source }
    }
}

/// What is at the path if it is something else than a socket. Nothing listens there, nor will.
fn not_a_socket(path: &Path) -> Option<&'static str> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    match kind.is_dir() {
        true => Some("a directory"),
        false => (!kind.is_socket()).then_some("a file"),
    }
}

// === impl AnswerBlocks ===

impl AnswerBlocks {
    /// Returns the next bytes; none after the last ones. Cancel-safe.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.body.next().await.transpose().map_err(|error| broken(&self.socket, error))
    }
}

// === impl AnswerLines ===

impl AnswerLines {
    /// The error for a stream that ended too early.
    pub fn closed(&self) -> ClientError {
        ClientError::Closed { socket: self.socket.clone() }
    }

    /// Returns the next object; none when the agent has ended the response. Cancel-safe.
    ///
    /// # Errors
    /// The connection was lost, or the line could not be parsed.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
            if let Some(end) = unseen.iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(self.scanned + end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                self.scanned = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|source| ClientError::Skew { agent: self.agent.clone(), source });
            }
            self.scanned = self.buffer.len();
            match self.body.next().await {
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(self.closed()),
                Some(Err(error)) => return Err(broken(&self.socket, error)),
                Some(Ok(data)) => append(&mut self.buffer, &data)
                    .map_err(|source| ClientError::Io { socket: self.socket.clone(), source })?,
            }
        }
    }
}

/// Adds to an answer, or to a line of one, which is bounded.
fn append(whole: &mut Vec<u8>, data: &[u8]) -> io::Result<()> {
    if whole.len().saturating_add(data.len()) > MAX_ANSWER_BYTES {
        let why = format!("the answer is longer than {} MiB", MAX_ANSWER_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    whole.extend_from_slice(data);
    Ok(())
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(value)
        .map_err(|source| ClientError::Skew { agent: "not asked".to_owned(), source })
}

fn broken(socket: &Path, error: hyper::Error) -> ClientError {
    let socket = socket.to_owned();
    let cut = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    let reset = std::error::Error::source(&error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            matches!(source.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
        });
    if cut || reset {
        return ClientError::Closed { socket };
    }
    ClientError::Io { socket, source: io::Error::other(error) }
}

fn version_of(response: &Response<Incoming>) -> String {
    response
        .headers()
        .get(VERSION_HEADER)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("of an unknown version")
        .to_owned()
}

fn bare(status: StatusCode) -> ErrorBody {
    ErrorBody {
        code: crate::api::ErrorCode::Internal,
        error: format!("the agent answered {status}"),
        hint: String::new(),
    }
}

/// The name of the group that may use the socket, or its number if it has no name.
fn group_of(socket: &Path) -> Option<String> {
    let facts = std::fs::metadata(socket).ok()?;
    if facts.mode() & 0o020 == 0 {
        return None;
    }
    let gid = nix::unistd::Gid::from_raw(facts.gid());
    let named = nix::unistd::Group::from_gid(gid).ok().flatten();
    Some(named.map_or_else(|| gid.to_string(), |group| group.name))
}
