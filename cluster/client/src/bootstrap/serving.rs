//! The certificate that the node's own server presents to clients.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use winddown_host::regular;
use winddown_shared::{Backoff, WallClock, error_chain};

use super::random_share;
use super::request::{AskError, Purpose, ask, waits};
use super::step::{BootstrapStep, LONGEST_SLEEP, next};
use super::store::Store;
use crate::CertificateFacts;

/// The beginning of the file's first line, which states the names that the certificate is for.
const NOTE: &str = "for ";
/// What is between those names.
const SEPARATOR: &str = ", ";
/// Why there is no request yet.
const NO_ADDRESS: &str =
    "a certificate is requested once this machine has an address: connect it, or set nodeIP";

/// A certificate for the node's own server: requested, kept in one file with its key, and renewed.
///
/// The signer `kubernetes.io/kubelet-serving` issues it only to a client that authenticates as the
/// node itself. Kubernetes does not approve such requests by itself.
#[derive(Clone, Debug)]
pub struct ServingCertificate {
    /// The folder that it is kept in. Created if it does not exist, readable only by its owner.
    pub folder: PathBuf,
    /// The node's name.
    pub node_name: String,
    /// The host names and addresses of the node, with every change. No certificate is requested before one of them is
    /// an IP address, because that is how API servers reach a node. One that lacks any of them is replaced, and stays in
    /// use until then.
    pub names: watch::Receiver<Vec<String>>,
}

/// What a run remembers from one round to the next.
struct Rounds {
    backoff: Backoff,
    /// The share of its lifetime after which the certificate is renewed.
    share: f64,
    /// When it was issued, if known.
    made: Option<Timestamp>,
}

impl ServingCertificate {
    /// The file with the chain and then its key, in PEM.
    pub fn file(&self) -> PathBuf {
        self.store().identity()
    }

    /// Requests and renews the certificate for as long as it is polled. `told` receives the reason that there is no
    /// certificate for the present names, or an empty string while there is one. Dropping the future leaves nothing
    /// half done on disk.
    pub async fn run(self, client: kube::Client, wall: WallClock, told: watch::Sender<String>) {
        let mut names = self.names.clone();
        let backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        let mut rounds = Rounds { backoff, share: random_share(), made: None };
        loop {
            let wanted: BTreeSet<String> = names.borrow_and_update().iter().cloned().collect();
            let round = async {
                let wait = self.round(&mut rounds, &wanted, &client, &wall, &told).await;
                tokio::time::sleep(wait).await;
            };
            tokio::select! {
                () = round => {}
                // The request for the names of before, if there is one, is of no use any more.
                Ok(()) = names.changed() => {}
            }
        }
    }

    /// Does what is due, and returns how long to wait after that.
    async fn round(
        &self,
        rounds: &mut Rounds,
        names: &BTreeSet<String>,
        client: &kube::Client,
        wall: &WallClock,
        told: &watch::Sender<String>,
    ) -> Duration {
        let facts = self.kept(names).await;
        match next(facts.as_ref(), &self.node_name, wall.now(), rounds.share, rounds.made) {
            BootstrapStep::Wait(wait) => {
                tell(told, String::new());
                return wait;
            }
            BootstrapStep::Ask(_) if !names.iter().any(|name| name.parse::<IpAddr>().is_ok()) => {
                tell(told, NO_ADDRESS.to_owned());
                return LONGEST_SLEEP;
            }
            BootstrapStep::Ask(_) => {}
        }
        match self.renew(names, client, told, wall.now()).await {
            Ok(()) => {
                rounds.backoff.reset();
                rounds.made = Some(wall.now());
                rounds.share = random_share();
                Duration::ZERO
            }
            Err(error) => {
                let why = error_chain(&error);
                if tell(told, why.clone()) {
                    tracing::warn!("the node has no new serving certificate: {why}");
                }
                let least = error.is_refusal().then_some(Duration::from_secs(300));
                rounds.backoff.after_failure(least)
            }
        }
    }

    async fn renew(
        &self,
        names: &BTreeSet<String>,
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
        let names: Vec<String> = names.iter().cloned().collect();
        let purpose = Purpose::serving(&names);
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
        let note = format!("{NOTE}{}\n", names.join(SEPARATOR));
        store.keep_identity(&chain, &key, &note).await?;
        store.forget_pending().await?;
        tracing::info!(file = %self.file().display(), "the node has a new serving certificate");
        Ok(())
    }

    /// The stored certificate, if it is for all these names.
    async fn kept(&self, names: &BTreeSet<String>) -> Option<CertificateFacts> {
        let (file, names) = (self.file(), names.clone());
        let read = move || read(&file, &names);
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    fn store(&self) -> Store {
        Store::new(&self.folder, "server")
    }
}

fn read(file: &Path, names: &BTreeSet<String>) -> Option<CertificateFacts> {
    let text = regular::read_to_string(file, regular::MAX_CONFIGURATION_BYTES).ok()?;
    let (note, certificate) = text.strip_prefix(NOTE)?.split_once('\n')?;
    let kept: BTreeSet<&str> = note.split(SEPARATOR).collect();
    let is_for_all = names.iter().all(|name| kept.contains(name.as_str()));
    is_for_all.then(|| CertificateFacts::of_pem(certificate.as_bytes())).flatten()
}

/// Publishes the reason. Returns whether it is a new one.
fn tell(told: &watch::Sender<String>, why: String) -> bool {
    told.send_if_modified(move |now| {
        let is_new = *now != why;
        *now = why;
        is_new
    })
}
