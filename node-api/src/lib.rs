//! What the API server asks of a node, over TLS: the logs of its containers, streams into them, its pods and what
//! they use, its health.
//!
//! A [plug-in](Plugin). It knows the pods by the node's handle and their logs by their files, has [`PodStreams`] open
//! streams and [`Figures`] measure, and asks [`Reviews`] who a client is and what it may do. There is no anonymous
//! access: a client shows a certificate of the cluster's authority for clients or a bearer token, and has a right on
//! this node's subresources.
//!
//! # Behaviour
//! It listens once there is a certificate, and says until then why it does not. Files of certificates may be
//! replaced at any time. It goes on while the node shuts down, until the agent ends.
//!
//! # Limits
//! Strangers share 128 connections, of which each has 10 s to agree on TLS and 10 s to ask; answers go to 2048 clients
//! at a time. A log is read as its client takes it, one block at a time, and no reader has a thread of its own. At most
//! 256 streams are open.

mod answer;
mod cache;
mod context;
mod figures;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
mod logs;
mod places;
mod pods;
mod resource_metrics;
mod route;
mod server;
mod streams;
mod summary;
#[cfg(test)]
mod tests;
mod tls;
mod who;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use winddown_files::{Growth, Watch};
use winddown_shared::{NodeHandle, Plugin, PluginName, PodStreams, Reviews, error_chain};

use context::Context;
use figures::Kept;
pub use figures::{Figures, NodeFigures};
use places::Places;
use tls::Tls;
pub use tls::TlsFiles;
use who::Gatekeeper;

/// How long a port that cannot be had is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// Streams that are open at the same moment.
const STREAMS: usize = 256;
/// Logs that are read at the same moment.
const READS: usize = 8;
/// How often it is looked for certificates where no event tells of them.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The node API. Give it to a node as a plug-in.
pub struct NodeApi {
    /// Where it listens; the kubelet's port is 10250.
    pub address: SocketAddr,
    /// The name of the Node object that rights are on.
    pub node_name: String,
    /// Below it is a directory for each pod's logs.
    pub log_dir: PathBuf,
    /// Its certificates.
    pub tls: TlsFiles,
    /// Why there is no certificate yet, for people; empty where the files say that themselves.
    pub waits_for: watch::Receiver<String>,
    /// Who clients are, and what they may.
    pub reviews: Arc<dyn Reviews>,
    /// Measures the node and its pods, when someone asks.
    pub figures: Arc<dyn Figures>,
    /// Opens streams into pods; without it they are refused.
    pub streams: Option<Arc<dyn PodStreams>>,
}

impl Plugin for NodeApi {
    fn name(&self) -> PluginName {
        const { PluginName::of("node-api") }
    }

    fn run(self: Box<Self>, node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (growth, teller) = match Growth::open() {
                Ok((growth, teller)) => (Some(growth), Some(teller)),
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "logs cannot be followed through the node API");
                    (None, None)
                }
            };
            let telling = async {
                if let Some(teller) = teller {
                    teller.run().await;
                }
                std::future::pending::<()>().await;
            };
            tokio::join!(telling, self.listen(node, growth));
        })
    }
}

impl NodeApi {
    async fn listen(self, node: NodeHandle, growth: Option<Growth>) {
        let Self { address, node_name, log_dir, tls: files, waits_for, .. } = self;
        let tls = Tls::new(files.clone());
        certificates(&tls, &files, waits_for, &node).await;
        let listener = bind(address, &node).await;
        tracing::info!(%address, "the node API is served");
        node.say(format!("listening on {address}"));
        let gatekeeper = Gatekeeper::new(self.reviews, node_name.clone());
        let places = Places::new();
        let reads = Arc::new(Semaphore::new(READS));
        let context = Context {
            node: node.clone(),
            gatekeeper,
            tls,
            places,
            growth,
            reads,
            node_name,
            figures: Kept::new(self.figures, node.clone()),
            pod_streams: self.streams,
            streams: Arc::new(Semaphore::new(STREAMS)),
            log_dir,
        };
        server::serve(Arc::new(context), listener).await;
    }
}

/// Waits until TLS can be spoken.
async fn certificates(
    tls: &Tls,
    files: &TlsFiles,
    mut waits_for: watch::Receiver<String>,
    node: &NodeHandle,
) {
    let TlsFiles { certificate, key, client_authority } = files;
    let all = [Some(certificate), Some(key), client_authority.as_ref()];
    let folders: Vec<PathBuf> =
        all.into_iter().flatten().filter_map(|path| Some(path.parent()?.to_owned())).collect();
    let (mut watch, _) = Watch::open();
    loop {
        if let Some(mut watcher) = watch.watcher() {
            let folders = folders.clone();
            let add = move || folders.iter().map(|folder| watcher.add(folder)).collect();
            watch.follow(tokio::task::spawn_blocking(add).await.unwrap_or_default());
        }
        let why = waits_for.borrow_and_update().clone();
        let Err(error) = tls.acceptor().await else { return };
        let why = if why.is_empty() { error_chain(&error) } else { why };
        node.say(format!("not listening: {why}"));
        tokio::select! {
            _ = timeout(LOOK_AGAIN, watch.next()) => {}
            Ok(()) = waits_for.changed() => {}
        }
    }
}

async fn bind(address: SocketAddr, node: &NodeHandle) -> TcpListener {
    let mut said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    let error = error_chain(&error);
                    node.say(format!("not listening: {address}: {error}"));
                    tracing::error!(%address, error, "the node API cannot listen");
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}
