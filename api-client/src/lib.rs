//! How the API server is reached, and with whose name.
//!
//! [`Connection::open`] reads credentials and asks the API server nothing, so an agent starts as
//! fast without one. All parts use the one [`kube::Client`] it makes. Behind that client
//! credentials are read again when their files change, a renewed certificate is taken into use,
//! ordinary requests are held to a rate, and [`ApiHealth`] follows what all requests show.
//!
//! Connections speak HTTP/1.1: each watch has one of its own, the kernel notices dead peers, and no
//! timer runs while nothing is asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::SignedDuration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::WallClock;

mod bootstrap;
mod certificate;
mod draft;
mod error;
mod exec;
mod files;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod in_cluster;
mod kubeconfig;
mod limit;
mod material;
pub mod node_pods;
pub mod outage;
pub mod refusal;
mod reloading;
mod reviews;
mod source;
mod transport;

pub use bootstrap::{Bootstrap, ServingCertificate};
pub use certificate::CertificateFacts;
pub use error::{CredentialsError, RequestError};
pub use health::{ApiHealth, ApiState};
pub use in_cluster::ServiceAccount;
pub use reviews::ApiReviews;

use bootstrap::Renewal;
use limit::Limits;
use reloading::{Pauses, Reloading, Shared};
use source::Source;
use transport::Manner;

/// How to reach the API server.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Who this agent is.
    pub credentials: Credentials,
    /// What it calls itself in the API server's logs.
    pub user_agent: String,
    /// Ordinary requests per second on average; at least 1. Statuses, leases, deletions and evictions
    /// never wait.
    pub qps: u32,
    /// Ordinary requests at once; at least 1.
    pub burst: u32,
    /// How long making a TCP connection may take.
    pub connect_timeout: Duration,
    /// How long the head of an answer may take, connecting included. Bodies, such as a watch's, may
    /// take for ever.
    pub answer_timeout: Duration,
    /// How often the files of the credentials are looked at, when there is something to send.
    pub look_every: Duration,
    /// How long a command that gives credentials is left alone after it failed, or after its answer was
    /// refused or had ended.
    pub command_again_after: Duration,
}

/// Who this agent is to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A kubeconfig, and which of its contexts; none means the current one. A command that it names
    /// (`exec`) is run for the first request and when its credentials end, with 30 s to answer.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context.
        context: Option<String>,
    },
    /// The service account of the pod that this process runs in.
    InCluster(ServiceAccount),
    /// A certificate that is asked for with other credentials, and renewed before it ends.
    Bootstrap(Bootstrap),
}

/// The way to the API server. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    client: kube::Client,
    shared: Arc<Shared>,
    renewal: Option<Arc<Renewal>>,
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// The kubelet's limits, and patience for a slow server.
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
    /// Reads the credentials. The API server is not asked anything. Must be called within a tokio
    /// runtime.
    ///
    /// With [`Credentials::Bootstrap`] and no certificate yet, requests wait for one, which
    /// [`run`](Self::run) asks for.
    ///
    /// # Errors
    /// See [`CredentialsError`]; it names the file and the field. Credentials that cannot be used later
    /// on are no error: the earlier ones stay in use.
    pub async fn open(config: ClusterConfig, wall: WallClock) -> Result<Self, CredentialsError> {
        let user_agent = HeaderValue::from_str(&config.user_agent).map_err(|source| {
            CredentialsError::because("the user agent", "it is not one line of text", source)
        })?;
        let manner = Manner {
            user_agent,
            connect_timeout: config.connect_timeout,
            answer_timeout: config.answer_timeout,
        };
        let limits = Limits::new(config.qps, config.burst, Instant::now());
        let (source, bootstrap) = match config.credentials.clone() {
            Credentials::Kubeconfig { path, context } => {
                (Source::Kubeconfig { path, context }, None)
            }
            Credentials::InCluster(account) => (Source::InCluster(account), None),
            Credentials::Bootstrap(bootstrap) => {
                let path = bootstrap.signed_kubeconfig();
                (Source::Kubeconfig { path, context: None }, Some(bootstrap))
            }
        };
        let pauses = Pauses {
            look_every: config.look_every,
            command_again_after: config.command_again_after,
        };
        let shared = Arc::new(Shared::new(source, manner, pauses, limits, wall.clone()));
        let mut namespace = "default".to_owned();
        let renewal = match bootstrap {
            None => {
                namespace = shared.begin().await?;
                None
            }
            Some(bootstrap) => {
                let renewal = Renewal::new(bootstrap, config, Arc::clone(&shared), wall);
                renewal.take_what_is_there().await?;
                Some(Arc::new(renewal))
            }
        };
        if let Some(current) = shared.now() {
            namespace.clone_from(&current.material.config.default_namespace);
        }
        let client = kube::Client::new(Reloading(Arc::clone(&shared)), namespace);
        Ok(Self { client, shared, renewal })
    }

    /// The shared client.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// How it stands with the API server.
    pub fn health(&self) -> watch::Receiver<ApiHealth> {
        self.shared.health.watch()
    }

    /// When the API server last answered.
    pub fn last_contact(&self) -> Option<Instant> {
        self.shared.health.last_contact()
    }

    /// How far the API server's clock was ahead of this node's when they were last compared, to about a second.
    pub fn clock_skew(&self) -> Option<SignedDuration> {
        self.shared.health.skew()
    }

    /// The API server's clock, as its answers show it; this node's own before the first. A step of this node's
    /// clock does not move it. The ends of graces are stated by it.
    pub fn api_clock(&self) -> WallClock {
        let shared = Arc::clone(&self.shared);
        WallClock::new(move || shared.api_time())
    }

    /// The client certificate in use.
    pub fn certificate(&self) -> Option<CertificateFacts> {
        self.shared.now().and_then(|current| current.material.certificate.clone())
    }

    /// Whether the API server's certificate is verified: not with `insecure-skip-tls-verify`, where any server
    /// that answers at its address gets the credentials.
    pub fn verifies_server(&self) -> bool {
        self.shared.verifies_server()
    }

    /// Until then no request waits for the rate: a node that goes down has little time left. A server that asks to be
    /// left alone still is.
    pub fn hurry(&self, until: Instant) {
        self.shared.limits.hurry(until);
    }

    /// Requests held back by the rate at this moment.
    pub fn waiting(&self) -> usize {
        self.shared.limits.waiting()
    }

    /// Has the certificate signed and renewed, if these credentials are of that kind, until
    /// `stop`. Never fails: what goes wrong is tried again, and told by [`health`](Self::health) and
    /// the log. Dropping the future stops it; nothing on disk is left half done.
    pub async fn run(&self, stop: CancellationToken) {
        match &self.renewal {
            None => stop.cancelled().await,
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
