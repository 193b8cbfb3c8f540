//! The certificate that the node's own server presents to clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use winddown_host::regular;
use winddown_shared::{Backoff, WallClock, error_chain, fraction};

use super::request::{AskError, Purpose, ask, waits};
use super::step::{BootstrapStep, next};
use super::store::Store;
use super::{EARLIEST_RENEWAL, LATEST_RENEWAL};
use crate::CertificateFacts;

/// A certificate for the node's own server: requested, kept in one file with its key, and renewed.
///
/// The signer `kubernetes.io/kubelet-serving` issues it only to a client that authenticates as the
/// node itself. Kubernetes does not approve such requests by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingCertificate {
    /// The folder that it is kept in. Created if it does not exist, readable only by its owner.
    pub folder: PathBuf,
    /// The node's name.
    pub node_name: String,
    /// The host names and addresses of the node. A certificate for other ones is replaced.
    pub names: Vec<String>,
}

impl ServingCertificate {
    /// The file with the chain and then its key, in PEM.
    pub fn file(&self) -> PathBuf {
        self.store().identity()
    }

    /// Requests and renews the certificate for as long as it is polled. `told` receives the reason that there is no
    /// certificate, or an empty string while there is one. Dropping the future leaves nothing half done on disk.
    pub async fn run(self, client: kube::Client, wall: WallClock, told: watch::Sender<String>) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        let mut share = EARLIEST_RENEWAL + (LATEST_RENEWAL - EARLIEST_RENEWAL) * fraction();
        let mut made = None;
        loop {
            let facts = self.kept().await;
            let wait = match next(facts.as_ref(), &self.node_name, wall.now(), share, made) {
                BootstrapStep::Wait(wait) => {
                    tell(&told, String::new());
                    wait
                }
                BootstrapStep::Ask(_) => match self.renew(&client, &told, wall.now()).await {
                    Ok(()) => {
                        backoff.reset();
                        made = Some(wall.now());
                        share = EARLIEST_RENEWAL + (LATEST_RENEWAL - EARLIEST_RENEWAL) * fraction();
                        continue;
                    }
                    Err(error) => {
                        let why = error_chain(&error);
                        if tell(&told, why.clone()) {
                            tracing::warn!("the node has no new serving certificate: {why}");
                        }
                        let least = error.is_refusal().then_some(Duration::from_secs(300));
                        backoff.after_failure(least)
                    }
                },
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn renew(
        &self,
        client: &kube::Client,
        told: &watch::Sender<String>,
        now: Timestamp,
    ) -> Result<(), AskError> {
        let store = self.store();
        let key = store.pending_key().await?;
        let waiting = |name: &str| {
            let why = waits(name);
            tracing::info!("{why}");
            tell(told, why);
        };
        let purpose = Purpose::serving(&self.names);
        let chain = match ask(client, &key, &self.node_name, purpose, waiting).await {
            Err(error) if error.is_refusal() => {
                // The request's name is derived from the key, so it would be refused forever.
                store.forget_pending().await?;
                return Err(error);
            }
            asked => asked?,
        };
        if CertificateFacts::of_pem(&chain).is_none_or(|facts| facts.not_after <= now) {
            return Err(AskError::Useless);
        }
        store.keep_identity(&chain, &key, &self.note()).await?;
        store.forget_pending().await?;
        tracing::info!(file = %self.file().display(), "the node has a new serving certificate");
        Ok(())
    }

    /// The stored certificate, if it is for these names.
    async fn kept(&self) -> Option<CertificateFacts> {
        let (file, note) = (self.file(), self.note());
        let read = move || read(&file, &note);
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// The first line of the file, which states the names that the certificate is for.
    fn note(&self) -> String {
        format!("for {}\n", self.names.join(", "))
    }

    fn store(&self) -> Store {
        Store::new(&self.folder, "server")
    }
}

fn read(file: &Path, note: &str) -> Option<CertificateFacts> {
    let text = regular::read(file, regular::MAX_CONFIGURATION_BYTES).ok()?;
    CertificateFacts::of_pem(text.strip_prefix(note.as_bytes())?)
}

/// Publishes the reason. Returns whether it is a new one.
fn tell(told: &watch::Sender<String>, why: String) -> bool {
    told.send_if_modified(move |now| {
        let is_new = *now != why;
        *now = why;
        is_new
    })
}
