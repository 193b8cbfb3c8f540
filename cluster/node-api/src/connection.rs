//! One client's connection: whether the client is authorized, what it holds, and when it has to leave.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::answer::FailureAnswer;
use crate::context::RequestContext;
use crate::places::ConnectionSlot;
use crate::route::{RequestedEndpoint, route};
use crate::streams::Tunnel;
use winddown_shared::Mutex;

/// The most bytes of a request's head.
pub(crate) const MAX_HEAD_BYTES: u32 = 32 * 1024;
/// The most bytes of the heads of requests on one connection that wait to be authorized.
pub(crate) const MOST_WAITING: u32 = 512 * 1024;
/// How long a client may take for the TLS handshake, again for the head of its request, and again to leave.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an authorized client may keep a connection without a request; the kubelet's time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) struct ClientConnection {
    pub(crate) context: Arc<RequestContext>,
    seat: ConnectionSlot,
    /// The client's certificate, valid when the connection was made, and its intermediates.
    certificate: Option<Vec<CertificateDer<'static>>>,
    /// Has the requests wait for each other until one of them is authorized; closed from then on.
    first: Semaphore,
    /// The bytes that heads of requests may take while they wait.
    heads: Semaphore,
    /// Held until the connection is closed, and the place of its first answer.
    place: OnceLock<OwnedSemaphorePermit>,
    tunnel: Mutex<Option<Tunnel>>,
    usage: watch::Sender<Usage>,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    /// The requests whose answers have not been sent yet.
    requests: usize,
    is_authorized: bool,
    /// A request was refused or given up before any was authorized.
    was_refused: bool,
}

/// A request until the body of its answer has ended.
pub(crate) struct OpenRequest(Arc<ClientConnection>);

/// What an authorized request holds until the body of its answer has ended; the place is `None` if it is that of the
/// connection.
pub(crate) type Place = Option<OwnedSemaphorePermit>;

// === impl ClientConnection ===

impl ClientConnection {
    pub(crate) fn new(
        context: Arc<RequestContext>,
        seat: ConnectionSlot,
        certificate: Option<Vec<CertificateDer<'static>>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            seat,
            certificate,
            first: Semaphore::new(1),
            heads: Semaphore::new(MOST_WAITING as usize),
            place: OnceLock::new(),
            tunnel: Mutex::default(),
            usage: watch::Sender::default(),
        })
    }

    /// Whether the client has proven with a certificate that it is one of the cluster's.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.certificate.is_some()
    }

    /// Counts a request that has been received.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.usage.send_modify(|usage| usage.requests += 1);
        OpenRequest(Arc::clone(self))
    }

    /// Authorizes a request, and finds it a place. Until one is authorized the requests of a connection are judged one
    /// by one, so that no client asks the API server more than one question at a time through us.
    pub(crate) async fn admit(
        &self,
        request: &Request<Incoming>,
    ) -> Result<(RequestedEndpoint, Place), FailureAnswer> {
        let (endpoint, right) = route(request.method(), request.uri().path());
        let Ok(_head) = self.heads.try_acquire_many(length(request)) else {
            let text = "too many requests of this connection wait to be authorized";
            return Err(FailureAnswer::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
        };
        let _turn = self.first.acquire().await;
        let certificate = self.valid_certificate().await;
        self.context.gatekeeper.admit(certificate, request.headers(), &right).await?;
        let Some(place) = self.context.places.answer(&self.seat) else {
            let text = "this node already serves as many clients as it can: try again later";
            return Err(FailureAnswer::new(StatusCode::SERVICE_UNAVAILABLE, text));
        };
        self.usage.send_if_modified(|usage| !std::mem::replace(&mut usage.is_authorized, true));
        self.first.close();
        Ok((endpoint, self.place.set(place).err()))
    }

    async fn valid_certificate(&self) -> Option<&[u8]> {
        let chain = self.certificate.as_deref()?;
        if self.context.tls.trusts(chain).await { chain.first().map(|own| &**own) } else { None }
    }

    /// Notes that a request is refused: a client that is not authorized has to leave, also if it never takes the answer.
    pub(crate) fn refuse(&self) {
        self.usage.send_modify(|usage| usage.was_refused |= !usage.is_authorized);
    }

    /// Keeps the tunnel that the connection becomes once the response has been sent.
    pub(crate) fn keep_tunnel(&self, tunnel: Option<Tunnel>) {
        *self.tunnel.lock() = tunnel;
    }

    pub(crate) fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel.lock().take()
    }

    /// Resolves when the client should leave: it was refused, or has not sent a request for some time.
    pub(crate) async fn is_over(&self) {
        let mut usage = self.usage.subscribe();
        loop {
            let Usage { requests, is_authorized, was_refused } = *usage.borrow_and_update();
            if was_refused && !is_authorized {
                return;
            }
            let most = match (requests, is_authorized) {
                (0, true) => IDLE_TIMEOUT,
                (0, false) => HANDSHAKE_TIMEOUT,
                (1.., _) => Duration::MAX,
            };
            if timeout(most, usage.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Resolves when a client that was told to leave has had the time for it. An authorized one gets its answers first.
    pub(crate) async fn has_overstayed(&self) {
        sleep(HANDSHAKE_TIMEOUT).await;
        let mut usage = self.usage.subscribe();
        if usage.borrow().is_authorized {
            let _ = usage.wait_for(|usage| usage.requests == 0).await;
            sleep(HANDSHAKE_TIMEOUT).await;
        }
    }
}

// === impl OpenRequest ===

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.usage.send_modify(|usage| {
            usage.requests -= 1;
            usage.was_refused |= !usage.is_authorized;
        });
    }
}

/// How many bytes the head of a request holds.
fn length(request: &Request<Incoming>) -> u32 {
    let asked = request.uri().path_and_query().map_or(0, |asked| asked.as_str().len());
    let headers: usize = request.headers().values().map(HeaderValue::len).sum();
    u32::try_from(asked + headers).unwrap_or(u32::MAX)
}
