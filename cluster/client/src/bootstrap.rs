//! TLS bootstrapping: requests, keeps and renews a client certificate of this node.
//!
//! As with the kubelet, the key never leaves this node, the cluster's approver of node certificates
//! signs the request, and the next request is made with the certificate itself. All that is needed
//! on disk are three files in one folder, each replaced atomically.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use winddown_shared::{Mutex, WallClock, error_chain};

use super::error::CredentialsError;
use super::health::ConnectionState;
use super::reloading::ConnectionShared;
use super::{ClusterConfig, Connection, Credentials};
use winddown_shared::{Backoff, fraction};

mod request;
mod serving;
mod step;
mod store;
#[cfg(test)]
mod tests;

use request::{AskError, Purpose, ask, waits};
pub use serving::ServingCertificate;
use step::{BootstrapStep, With, next};
use store::Store;

/// A certificate is renewed after a random share of its lifetime between these two, so that nodes
/// that were created together do not renew together.
const EARLIEST_RENEWAL: f64 = 0.7;
const LATEST_RENEWAL: f64 = 0.9;

/// How a node gets a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// The kubeconfig whose credentials may only request a certificate, and whose server the certificate is used with.
    /// Needed until there is one, and again if it could not be renewed in time.
    pub kubeconfig: PathBuf,
    /// The folder for the signed certificate, its key and the kubeconfig that refers to them.
    /// Created if it does not exist, readable only by its owner.
    pub folder: PathBuf,
    /// The node's name. The certificate's subject is `system:node:<name>` in `system:nodes`.
    pub node_name: String,
}

/// How requesting and renewing the client certificate goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenewalState {
    /// Why there is no new certificate although one is due, and what to do.
    pub problem: Option<Arc<str>>,
    /// The number of attempts that have failed, since the start of the agent.
    pub errors: u64,
}

/// Requests the certificate and renews it before it expires.
pub(super) struct Renewal {
    bootstrap: Bootstrap,
    store: Store,
    config: ClusterConfig,
    shared: Arc<ConnectionShared>,
    wall: WallClock,
    state: Mutex<RenewalState>,
}

// === impl Bootstrap ===

impl Bootstrap {
    /// The kubeconfig that refers to the signed certificate.
    pub fn signed_kubeconfig(&self) -> PathBuf {
        self.folder.join(store::KUBECONFIG)
    }
}

// === impl Renewal ===

impl Renewal {
    pub(super) fn new(
        bootstrap: Bootstrap,
        config: ClusterConfig,
        shared: Arc<ConnectionShared>,
        wall: WallClock,
    ) -> Self {
        let store = Store::new(&bootstrap.folder, "client");
        Self { bootstrap, store, config, shared, wall, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> RenewalState {
        self.state.lock().clone()
    }

    /// Loads the certificate that an earlier run of the agent got. A missing one is no error as
    /// long as one can be requested.
    pub(super) async fn take_what_is_there(&self) -> Result<(), CredentialsError> {
        let found = self.shared.read().await;
        if let (Ok(()), BootstrapStep::Ask(With::Bootstrap)) =
            (&found, self.step(LATEST_RENEWAL, None))
        {
            // Useless, but no reason to fail: a new one can be requested.
            tracing::warn!(
                folder = %self.bootstrap.folder.display(),
                "the stored certificate has expired or belongs to another node"
            );
        }
        if found.is_err() {
            let why = "no certificate has been requested";
            self.shared.health.set(ConnectionState::Unsigned { why: why.into() });
            self.bootstrap_source().draft().await.map(drop)?;
        }
        Ok(())
    }

    /// Requests and renews the certificate forever.
    pub(super) async fn run(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        let mut share = random_share();
        let mut made = None;
        let mut said = None;
        loop {
            // A certificate that expired while the machine was suspended is first noticed by the API server: also if that
            // is while the step is decided.
            let mut health = self.shared.health.watch();
            let with = match self.step(share, made) {
                BootstrapStep::Wait(wait) => {
                    self.state.lock().problem = None;
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        Ok(()) = health.changed() => {}
                    }
                    continue;
                }
                BootstrapStep::Ask(with) => with,
            };
            match self.renew(with).await {
                Ok(()) => {
                    backoff.reset();
                    made = Some(self.wall.now());
                    said = None;
                    share = random_share();
                    self.state.lock().problem = None;
                }
                Err(error) => {
                    let text = error_chain(&error);
                    self.state.lock().errors += 1;
                    if said.as_ref() != Some(&text) {
                        tracing::warn!("no new certificate yet: {text}");
                        self.not_yet(&text);
                    }
                    said = Some(text);
                    // Repeating the request every ten seconds does not change a person's decision.
                    let least = error.is_refusal().then_some(Duration::from_secs(300));
                    tokio::time::sleep(backoff.after_failure(least)).await;
                }
            }
        }
    }

    fn step(&self, share: f64, made: Option<Timestamp>) -> BootstrapStep {
        let current = self.shared.current();
        let facts = current.as_ref().and_then(|current| current.material.certificate.as_ref());
        next(facts, &self.bootstrap.node_name, self.wall.now(), share, made)
    }

    async fn renew(&self, with: With) -> Result<(), AskError> {
        // The bootstrap kubeconfig may be gone once it has served, as it is for the kubelet: nothing after the first
        // certificate needs it, and its server is read before a person is asked to approve anything.
        let (client, cluster) = match with {
            With::Own => {
                let own = super::Reloading(Arc::clone(&self.shared));
                (kube::Client::new(own, "default"), None)
            }
            With::Bootstrap => {
                let cluster = store::cluster_of(&self.bootstrap.kubeconfig).await?;
                let credentials = Credentials::Kubeconfig {
                    path: self.bootstrap.kubeconfig.clone(),
                    context: None,
                };
                let config = ClusterConfig { credentials, ..self.config.clone() };
                let opened = Box::pin(Connection::open(config, self.wall.clone())).await?;
                (opened.client(), Some(cluster))
            }
        };
        let key = self.store.pending_key().await?;
        let waiting = |name: &str| {
            tracing::info!(request = name, "waiting for the certificate to be approved");
            self.not_yet(&waits(name));
        };
        let node = &self.bootstrap.node_name;
        let chain = match ask(&client, &key, node, Purpose::CLIENT, waiting).await {
            Ok(chain) => chain,
            Err(error) => {
                if error.is_refusal() {
                    // The request's name is derived from the key, so it would be refused forever.
                    self.store.forget_pending().await?;
                }
                return Err(error);
            }
        };
        self.store.keep_identity(&chain, &key, "").await?;
        if let Some(cluster) = cluster {
            self.store.keep_kubeconfig(cluster).await?;
        }
        self.shared.read().await?;
        self.store.forget_pending().await?;
        if self.step(LATEST_RENEWAL, Some(self.wall.now())) == BootstrapStep::Ask(With::Bootstrap) {
            return Err(AskError::Useless);
        }
        tracing::info!(folder = %self.bootstrap.folder.display(), "a new client certificate is in use");
        Ok(())
    }

    /// Reports why there is no new certificate, and without an old one that there is none.
    fn not_yet(&self, why: &str) {
        self.state.lock().problem = Some(why.into());
        if self.shared.current().is_none() {
            self.shared.health.set(ConnectionState::Unsigned { why: why.into() });
        }
    }

    fn bootstrap_source(&self) -> super::CredentialsSource {
        super::CredentialsSource::Kubeconfig {
            path: self.bootstrap.kubeconfig.clone(),
            context: None,
        }
    }
}

/// The share of its lifetime after which a certificate is renewed.
fn random_share() -> f64 {
    EARLIEST_RENEWAL + (LATEST_RENEWAL - EARLIEST_RENEWAL) * fraction()
}
