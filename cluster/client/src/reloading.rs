//! One shared client that uses the currently valid credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::{Mutex, WallClock, WallTime, error_chain};

use super::bounded_body::BoundedBody;
use super::draft::CredentialsDraft;
use super::error::{CredentialsError, RequestError};
use super::health::{AnswerVerdict, ConnectionHealth, ConnectionState, judge};
use super::limit::{RequestLimits, Urgency, urgency};
use super::material::Material;
use super::source::CredentialsSource;
use super::transport::{Transport, TransportConfig};
use super::within::Awaited;

#[cfg(test)]
mod tests;

/// How long a caller must have waited before it gave up for the server to count as silent.
const SERVER_SILENT_AFTER: Duration = Duration::from_secs(1);

type Answer = Response<BoundedBody<Incoming>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The rest of reading credentials, which may be a command that runs.
type Finishing = BoxFuture<'static, Result<Material, CredentialsError>>;

/// The service through which [`kube::Client`] sends its requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reloading(pub(super) Arc<ConnectionShared>);

pub(super) struct ConnectionShared {
    source: CredentialsSource,
    transport_config: TransportConfig,
    pauses: Pauses,
    pub(super) limits: RequestLimits,
    pub(super) health: ConnectionHealth,
    wall: WallClock,
    current: watch::Sender<Option<Arc<Current>>>,
    /// Locked while the files are read; others wait for it and find the work done. Holds the command that
    /// a caller started and no longer waits for: the next one waits for it instead of starting another.
    reading: tokio::sync::Mutex<Option<Finishing>>,
    looked: Mutex<Looked>,
    /// Whether the first credentials come from a command, which is run when they are needed.
    asks_command: AtomicBool,
    /// Whether the server's certificate is not verified, so that any host on the way can pose as
    /// the server.
    skips_tls_verify: AtomicBool,
}

/// How often credentials are checked.
#[derive(Clone, Copy)]
pub(super) struct Pauses {
    pub(super) look_every: Duration,
    pub(super) command_again_after: Duration,
}

/// The credentials in use.
pub(super) struct Current {
    /// Distinguishes these credentials from earlier and later ones.
    serial: u64,
    pub(super) material: Arc<Material>,
    transport: Transport,
}

struct Looked {
    at: Instant,
    /// When a command was last run for credentials.
    asked: Option<Instant>,
    /// The last log message about credentials that cannot be used.
    said: Option<String>,
}

/// Why newer credentials are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The regular check is due.
    Due,
    /// No connection could be made, which may be the fault of the credentials.
    Unreached,
    /// The server rejected the credentials.
    Refused,
}

// === impl Reloading ===

impl tower_service::Service<Request<Body>> for Reloading {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.send(request).await.map_err(BoxError::from) })
    }
}

/// A wait for an answer, which the caller may drop before it is over.
struct AnswerWait<'a> {
    shared: &'a ConnectionShared,
    current: &'a Current,
    since: Instant,
    is_over: bool,
}

impl Drop for AnswerWait<'_> {
    fn drop(&mut self) {
        let silence = self.shared.transport_config.answer_timeout.min(SERVER_SILENT_AFTER);
        // The other connections of the pool may lead to the same dead peer (k8s#48638).
        if !self.is_over && self.since.elapsed() >= silence {
            self.shared.health.gave_up(self.since, &self.current.material.config.cluster_url);
            self.shared.leave_connections(self.current);
        }
    }
}

// === impl ConnectionShared ===

impl ConnectionShared {
    pub(super) fn new(
        source: CredentialsSource,
        transport_config: TransportConfig,
        pauses: Pauses,
        limits: RequestLimits,
        wall: WallClock,
    ) -> Self {
        let now = Instant::now();
        Self {
            source,
            transport_config,
            pauses,
            limits,
            health: ConnectionHealth::new(now),
            wall,
            current: watch::Sender::new(None),
            reading: tokio::sync::Mutex::default(),
            looked: Mutex::new(Looked { at: now, asked: None, said: None }),
            asks_command: AtomicBool::new(false),
            skips_tls_verify: AtomicBool::new(false),
        }
    }

    pub(super) fn source(&self) -> &CredentialsSource {
        &self.source
    }

    pub(super) fn current(&self) -> Option<Arc<Current>> {
        self.current.borrow().clone()
    }

    /// The API server's time, as its answers show it; this node's before the first answer.
    pub(super) fn api_time(&self) -> WallTime {
        self.health.api_time().unwrap_or_else(|| self.wall.now())
    }

    /// Reads the credentials. If a command supplies them, it is run with the first request, so that
    /// no start waits for it. Returns the context's namespace.
    pub(super) async fn begin(&self) -> Result<String, CredentialsError> {
        let draft = self.source.draft().await?;
        let namespace = draft.default_namespace().to_owned();
        self.note_trust(&draft);
        if draft.plugin.is_some() {
            self.asks_command.store(true, Ordering::Relaxed);
        } else {
            self.take(draft.finish().await?)?;
        }
        Ok(namespace)
    }

    pub(super) fn look_every(&self) -> Duration {
        self.pauses.look_every
    }

    /// Whether there are credentials, or a command that supplies them.
    pub(super) fn has_begun(&self) -> bool {
        self.asks_command.load(Ordering::Relaxed) || self.current().is_some()
    }

    /// Reads the credentials and switches to them.
    pub(super) async fn read(&self) -> Result<(), CredentialsError> {
        let mut reading = self.reading.lock().await;
        self.read_alone(&mut reading).await.map(drop)
    }

    /// Sends a request, and repeats it with newer credentials if the old ones may be the problem. A GET
    /// is repeated if its connection ends before the answer: the server may have closed an idle one.
    async fn send(&self, request: Request<Body>) -> Result<Answer, RequestError> {
        let urgency = urgency(request.method(), request.uri().path());
        let evicts = request.uri().path().ends_with("/eviction");
        let reads = request.method() == Method::GET;
        Awaited::Turn.begins();
        let _under_way = self.limits.admit(urgency).await;
        Awaited::Credentials(self.health.watch()).begins();
        self.look_if_due().await;
        let current = self.current_or_wait().await?;
        let (again, request) = twice(request);
        let mut result = self.attempt(&current, request).await;
        let doubt = match &result {
            Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => Some(Doubt::Refused),
            Err(error) if error.doubts_credentials() => Some(Doubt::Unreached),
            _ => None,
        };
        let credentials = match doubt {
            Some(doubt) => self.newer_than(&current, doubt).await,
            None if reads && matches!(result, Err(RequestError::Lost { .. })) => Some(current),
            None => None,
        };
        if let (Some(credentials), Some(again)) = (credentials, again) {
            result = self.attempt(&credentials, again).await;
        }
        self.learn(&result, urgency, evicts);
        result
    }

    async fn attempt(
        &self,
        current: &Arc<Current>,
        request: Request<Body>,
    ) -> Result<Answer, RequestError> {
        Awaited::Answer.begins();
        let since = Instant::now();
        let mut wait = AnswerWait { shared: self, current, since, is_over: false };
        let result =
            current.transport.send(&current.material, &self.transport_config, request).await;
        wait.is_over = !matches!(result, Err(RequestError::Silent { .. }));
        result
    }

    fn learn(&self, result: &Result<Answer, RequestError>, urgency: Urgency, evicts: bool) {
        let answer = match result {
            Ok(answer) => answer,
            Err(RequestError::Address { .. } | RequestError::Unsigned { .. }) => return,
            Err(error) => {
                let (why, is_tls) = (error_chain(error).into(), error.refuses_certificate());
                return self.health.set(match is_tls {
                    true => ConnectionState::Untrusted { why },
                    false => ConnectionState::Unreachable { why },
                });
            }
        };
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        match judge(answer.status(), answer.headers().contains_key("audit-id")) {
            AnswerVerdict::Up => self.health.set(ConnectionState::Connected),
            AnswerVerdict::Unauthorized => {
                self.health.set(ConnectionState::Unauthorized { why: self.not_accepted().into() });
            }
            AnswerVerdict::Down(why) => {
                self.health.set(ConnectionState::Unreachable { why: why.into() });
            }
        }
        self.health.clock(text(header::DATE), || self.wall.now());
        // An eviction refused by a disruption budget has a `Retry-After`, too, but is no overload.
        let overloaded = matches!(answer.status().as_u16(), 429 | 503) && !evicts;
        let asked = text(header::RETRY_AFTER).and_then(|value| value.parse().ok());
        if let Some(seconds) = asked.filter(|_| overloaded && urgency != Urgency::Urgent) {
            self.limits.pause(Duration::from_secs(seconds));
        }
    }

    fn not_accepted(&self) -> String {
        let Some(current) = self.current() else {
            return "the answer is 401".into();
        };
        let files = current.material.origin();
        if current.material.command.is_some() {
            // The reason that there are no newer ones says more.
            if let Some(said) = self.looked.lock().said.clone() {
                return said;
            }
            return format!(
                "{files}: the API server rejected the credentials that it printed (401): check which user they are for"
            );
        }
        match &current.material.certificate {
            Some(facts) if facts.not_after < self.wall.now() => {
                format!("the certificate in {files} expired at {}: renew it", facts.not_after)
            }
            None if current.material.authorization.is_some() => format!(
                "the answer to the token in {files} is 401: make another; one that is bound to a Node ends when that is deleted"
            ),
            _ => format!("the answer to the credentials in {files} is 401: renew them"),
        }
    }

    /// Checks once a minute or after expiry, and only when there is something to send: an idle node never wakes.
    async fn look_if_due(&self) {
        let Some(current) = self.current() else {
            return;
        };
        {
            let mut looked = self.looked.lock();
            let expired = current.material.has_expired(self.wall.now());
            if looked.at.elapsed() < self.pauses.look_every && !(expired && self.may_ask(&looked)) {
                return;
            }
            looked.at = Instant::now();
        }
        self.newer_than(&current, Doubt::Due).await;
    }

    /// Returns the credentials that replaced `seen`. Reads them now if their files have changed, or
    /// if a command has to be run again.
    async fn newer_than(&self, seen: &Current, doubt: Doubt) -> Option<Arc<Current>> {
        let mut reading = self.reading.lock().await;
        let current = self.current()?;
        if current.serial != seen.serial {
            return Some(current);
        }
        let material = Arc::clone(&current.material);
        let changed = tokio::task::spawn_blocking(move || material.files.changed()).await;
        let material = &current.material;
        let outdated = material.command.is_some()
            && (material.has_expired(self.wall.now()) || doubt == Doubt::Refused)
            && self.may_ask(&self.looked.lock());
        if reading.is_none() && !changed.unwrap_or(false) && !outdated {
            return None;
        }
        match self.read_alone(&mut reading).await {
            Ok(current) => {
                tracing::info!(files = %current.material.origin(), "new credentials in use");
                Some(current)
            }
            Err(error) => {
                // The files may be in the middle of being written.
                self.log_once(error_chain(&error));
                None
            }
        }
    }

    async fn read_alone(
        &self,
        reading: &mut Option<Finishing>,
    ) -> Result<Arc<Current>, CredentialsError> {
        let finishing = match reading {
            Some(finishing) => finishing,
            None => {
                let draft = self.source.draft().await?;
                self.note_trust(&draft);
                if draft.plugin.is_some() {
                    self.looked.lock().asked = Some(Instant::now());
                }
                reading.insert(Box::pin(draft.finish()))
            }
        };
        let material = finishing.await;
        *reading = None;
        self.take(material?)
    }

    /// Warns when the credentials begin to skip the verification of the server.
    fn note_trust(&self, draft: &CredentialsDraft) {
        let skips = !draft.assembly.verifies_server();
        if skips && !self.skips_tls_verify.swap(skips, Ordering::Relaxed) {
            tracing::warn!(
                files = %draft.files.names(),
                "insecure-skip-tls-verify: the API server's certificate is not verified; who answers at \
                 its address gets this node's credentials and decides what runs here"
            );
        }
        self.skips_tls_verify.store(skips, Ordering::Relaxed);
    }

    /// Whether the server's certificate is verified.
    pub(super) fn verifies_server(&self) -> bool {
        !self.skips_tls_verify.load(Ordering::Relaxed)
    }

    fn take(&self, material: Material) -> Result<Arc<Current>, CredentialsError> {
        let material = Arc::new(material);
        let transport = Transport::new(&material, &self.transport_config)?;
        let serial = self.current().map_or(1, |current| current.serial + 1);
        let current = Arc::new(Current { serial, material, transport });
        self.current.send_replace(Some(Arc::clone(&current)));
        let mut looked = self.looked.lock();
        looked.at = Instant::now();
        looked.said = None;
        Ok(current)
    }

    fn leave_connections(&self, seen: &Current) {
        let Ok(transport) = Transport::new(&seen.material, &self.transport_config) else {
            return;
        };
        self.current.send_if_modified(|slot| {
            let same = slot.as_ref().is_some_and(|current| current.serial == seen.serial);
            if same {
                let material = Arc::clone(&seen.material);
                let serial = seen.serial + 1;
                *slot = Some(Arc::new(Current { serial, material, transport }));
            }
            same
        });
    }

    /// Runs a command for the first credentials. Concurrent callers wait for the same run.
    async fn ask_first(&self) -> Option<Arc<Current>> {
        let mut reading = self.reading.lock().await;
        if let Some(current) = self.current() {
            return Some(current);
        }
        if reading.is_none() && !self.may_ask(&self.looked.lock()) {
            return None;
        }
        let error = match self.read_alone(&mut reading).await {
            Ok(current) => return Some(current),
            Err(error) => error_chain(&error),
        };
        self.health.set(ConnectionState::Unsigned { why: error.into() });
        None
    }

    /// Returns the credentials. Waits for them as long as for an answer: they may be about to be signed.
    async fn current_or_wait(&self) -> Result<Arc<Current>, RequestError> {
        if self.asks_command.load(Ordering::Relaxed) && self.current().is_none() {
            return self.ask_first().await.ok_or_else(|| self.unsigned());
        }
        let mut watch = self.current.subscribe();
        let wait = watch.wait_for(Option::is_some);
        let found = tokio::time::timeout(self.transport_config.answer_timeout, wait).await;
        if let Ok(Ok(current)) = found
            && let Some(current) = current.as_ref()
        {
            return Ok(Arc::clone(current));
        }
        Err(self.unsigned())
    }

    fn unsigned(&self) -> RequestError {
        self.health.watch().borrow().state.unsigned()
    }

    fn log_once(&self, text: String) {
        let mut looked = self.looked.lock();
        if looked.said.as_ref() != Some(&text) {
            tracing::warn!("cannot use the newer credentials; keeping the earlier ones: {text}");
            looked.said = Some(text);
        }
    }

    /// Whether enough time has passed since the command was last run.
    fn may_ask(&self, looked: &Looked) -> bool {
        looked.asked.is_none_or(|at| at.elapsed() >= self.pauses.command_again_after)
    }
}

/// Returns the request and a copy, if its body can be cloned. Bodies are shared, not copied.
fn twice(request: Request<Body>) -> (Option<Request<Body>>, Request<Body>) {
    let (parts, body) = request.into_parts();
    let again = body.try_clone().map(|body| Request::from_parts(parts.clone(), body));
    (again, Request::from_parts(parts, body))
}
