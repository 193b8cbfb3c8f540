//! The connection to the API server, and the credentials that it uses.
//!
//! [`Connection::open`] reads credentials without contacting the API server, so an agent starts
//! equally fast without one. [`Connection::open_early`] does not even need the credentials yet. All parts use the one [`kube::Client`] that it creates. This client
//! reads credentials again when their files change, switches to a renewed certificate, limits the
//! rate of ordinary requests, and derives [`ApiHealth`] from the results of all requests.
//!
//! Connections use HTTP/1.1: each watch has its own, the kernel detects dead peers, and no timer
//! runs while there are no requests.
//!
//! # Design
//!
//! `api-client` provides the one `kube::Client`. It re-reads credentials when a request shows the need, so no part holds
//! a stale client and an idle node does not wake. Until there are credentials it watches the directories on the way to
//! their files (`awaited.rs`). It does not retry; each part has its own back-off. Requests that the
//! node's state depends on bypass the rate limit; events come behind them, and at the end of a shutdown no request waits
//! for the rate. Every request updates `ApiHealth`, which logs one line per change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::WallClock;

mod awaited;
mod bootstrap;
mod bounded_body;
mod certificate;
mod draft;
pub mod equality;
mod error;
mod exec;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod in_cluster;
mod kubeconfig;
mod limit;
mod list_and_watch;
mod material;
pub mod node_pods;
pub mod outage;
mod pages;
mod peer;
pub mod refusal;
mod reloading;
mod reviews;
mod server_addresses;
mod source;
mod transport;
mod watch_backoff;
mod within;

pub use bootstrap::{Bootstrap, RenewalState, ServingCertificate};
pub use certificate::CertificateFacts;
pub use error::{CredentialsError, RequestError};
pub use health::{ApiHealth, ConnectionState};
pub use in_cluster::ServiceAccount;
pub use kubeconfig::{FileUse, NamedFile, files_of_kubeconfig};
pub use list_and_watch::{events_of, list_and_watch};
pub use pages::list_in_pages;
pub use reviews::ApiReviews;
pub use watch_backoff::WatchBackoff;
pub use within::within;

use bootstrap::Renewal;
use limit::RequestLimits;
use reloading::{ConnectionShared, Pauses, Reloading};
use source::CredentialsSource;
use transport::TransportConfig;

/// How to reach the API server.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The credentials of this agent.
    pub credentials: Credentials,
    /// The `User-Agent` header of requests.
    pub user_agent: String,
    /// Ordinary requests per second on average; at least 1. Updates of statuses and leases,
    /// deletions and evictions never wait.
    pub qps: u32,
    /// The number of ordinary requests that may be sent at once; at least 1.
    pub burst: u32,
    /// The timeout of a TCP connection attempt.
    pub connect_timeout: Duration,
    /// The timeout of an answer's head, including the time to connect. Bodies, such as a watch's,
    /// may take any time.
    pub answer_timeout: Duration,
    /// How often the credentials' files are checked for changes while there are requests to send.
    pub look_every: Duration,
    /// The shortest time between two runs of a command that supplies credentials, for example after
    /// it failed or its credentials were refused or expired.
    pub command_again_after: Duration,
}

/// The credentials with which this agent authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A kubeconfig and one of its contexts. A command that it names (`exec`) is run for the first
    /// request and when its credentials expire, with 30 s to answer.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; `None` for the current one.
        context: Option<String>,
    },
    /// The service account of the pod that this process runs in.
    InCluster(ServiceAccount),
    /// A certificate that is requested with other credentials, and renewed before it expires.
    Bootstrap(Bootstrap),
    /// None, and none will come: nothing says where they would be.
    Unknown {
        /// What is missing, and what to do.
        why: String,
    },
}

/// The connection to the API server. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    client: kube::Client,
    shared: Arc<ConnectionShared>,
    renewal: Option<Arc<Renewal>>,
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// The kubelet's rate limits, and timeouts that allow for a slow server.
    pub fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            user_agent: concat!("winddown/", env!("CARGO_PKG_VERSION")).into(),
            qps: 50,
            burst: 100,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            look_every: Duration::from_secs(60),
            command_again_after: Duration::from_secs(10),
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Reads the credentials without contacting the API server. Must be called within a tokio
    /// runtime.
    ///
    /// With [`Credentials::Bootstrap`] and no certificate yet, requests wait for one, which
    /// [`run`](Self::run) obtains.
    ///
    /// # Errors
    /// See [`CredentialsError`]; it names the file and the field. Credentials that become unusable
    /// later are no error: the earlier ones stay in use.
    pub async fn open(config: ClusterConfig, wall: WallClock) -> Result<Self, CredentialsError> {
        let (connection, read) = Self::prepare(config, wall).await?;
        read.map(|()| connection)
    }

    /// Does the same before the credentials can be read: [`run`](Self::run) then waits for their files and reads them
    /// again whenever they change. Until it has them, requests wait for them as for an answer, and
    /// [`health`](Self::health) names what is missing.
    ///
    /// # Errors
    /// The user agent is not one line of text.
    pub async fn open_early(
        config: ClusterConfig,
        wall: WallClock,
    ) -> Result<Self, CredentialsError> {
        let (connection, read) = Self::prepare(config, wall).await?;
        if let Err(error) = read {
            connection.shared.not_yet(&error);
        }
        Ok(connection)
    }

    /// The connection, and whether credentials for it were found.
    async fn prepare(
        config: ClusterConfig,
        wall: WallClock,
    ) -> Result<(Self, Result<(), CredentialsError>), CredentialsError> {
        let user_agent = HeaderValue::from_str(&config.user_agent).map_err(|source| {
            CredentialsError::because("the user agent", "it is not one line of text", source)
        })?;
        let transport_config = TransportConfig {
            user_agent,
            connect_timeout: config.connect_timeout,
            answer_timeout: config.answer_timeout,
        };
        let limits = RequestLimits::new(config.qps, config.burst, Instant::now());
        let (source, bootstrap) = match config.credentials.clone() {
            Credentials::Kubeconfig { path, context } => {
                (CredentialsSource::Kubeconfig { path, context }, None)
            }
            Credentials::InCluster(account) => (CredentialsSource::InCluster(account), None),
            Credentials::Bootstrap(bootstrap) => {
                let path = bootstrap.signed_kubeconfig();
                (CredentialsSource::Kubeconfig { path, context: None }, Some(bootstrap))
            }
            Credentials::Unknown { why } => (CredentialsSource::Unknown { why }, None),
        };
        let pauses = Pauses {
            look_every: config.look_every,
            command_again_after: config.command_again_after,
        };
        let shared =
            Arc::new(ConnectionShared::new(source, transport_config, pauses, limits, wall.clone()));
        let mut namespace = "default".to_owned();
        let (renewal, read) = match bootstrap {
            None => (None, shared.begin().await.map(|of_context| namespace = of_context)),
            Some(bootstrap) => {
                let renewal = Renewal::new(bootstrap, config, Arc::clone(&shared), wall);
                let read = renewal.take_what_is_there().await;
                (Some(Arc::new(renewal)), read)
            }
        };
        if let Some(current) = shared.current() {
            namespace.clone_from(&current.material.config.default_namespace);
        }
        let client = kube::Client::new(Reloading(Arc::clone(&shared)), namespace);
        Ok((Self { client, shared, renewal }, read))
    }

    /// The shared client.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The health of the connection, as it changes.
    pub fn health(&self) -> watch::Receiver<ApiHealth> {
        self.shared.health.watch()
    }

    /// When the API server last answered.
    pub fn last_contact(&self) -> Option<Instant> {
        self.shared.health.last_contact()
    }

    /// The API server's clock, as its answers show it; this node's own before the first answer.
    /// Steps of this node's clock do not affect it. The ends of grace periods refer to it.
    pub fn api_clock(&self) -> WallClock {
        let shared = Arc::clone(&self.shared);
        WallClock::new(move || shared.api_time())
    }

    /// The client certificate in use.
    pub fn certificate(&self) -> Option<CertificateFacts> {
        self.shared.current().and_then(|current| current.material.certificate.clone())
    }

    /// How requesting and renewing the client certificate goes; `None` unless the credentials are
    /// [`Credentials::Bootstrap`].
    pub fn renewal(&self) -> Option<RenewalState> {
        self.renewal.as_ref().map(|renewal| renewal.state())
    }

    /// Whether the API server's certificate is verified. It is not with `insecure-skip-tls-verify`,
    /// so that any server at its address gets the credentials.
    pub fn verifies_server(&self) -> bool {
        self.shared.verifies_server()
    }

    /// Suspends the rate limit until this time, because a node that goes down has little time left.
    /// A `Retry-After` of the server is still respected.
    pub fn hurry(&self, until: Instant) {
        self.shared.limits.hurry(until);
    }

    /// The number of requests that the rate limit holds back at the moment.
    pub fn waiting(&self) -> usize {
        self.shared.limits.waiting()
    }

    /// Waits for credentials that could not be read yet; obtains and renews the certificate, if the credentials are
    /// [`Credentials::Bootstrap`]; until `stop`. Never fails: errors are retried, and reported by [`health`](Self::health) and the
    /// log. Dropping the future stops it and leaves nothing half done on disk.
    pub async fn run(&self, stop: CancellationToken) {
        match &self.renewal {
            None => {
                stop.run_until_cancelled(self.shared.await_credentials()).await;
                stop.cancelled().await;
            }
            Some(renewal) => {
                stop.run_until_cancelled(renewal.run()).await;
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("source", self.shared.source()).finish_non_exhaustive()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
