//! The API that a node serves to the API server over TLS: container logs, streams into containers, the node's pods
//! and their usage, and the node's health.
//!
//! It is a [plug-in](Plugin). It gets the pods from the node's handle and their logs from files; [`PodStreams`] opens
//! streams, [`StatsProvider`] measures usage, and [`Reviews`] authenticates and authorizes clients. There is no
//! anonymous access: a client presents a certificate of the cluster's client CA or a bearer token, and needs a
//! permission on this node's subresources.
//!
//! # Behaviour
//! The server listens once there is a certificate, and reports until then why it does not. Certificate files may be
//! replaced at any time. The server continues while the node shuts down, until the agent exits.
//!
//! # Protocols
//! HTTP/2, and HTTP/1.1 for upgrades and clients without HTTP/2, with one request for each connection. A body ends apart
//! from its data, because the API server drops data that it reads together with the end of a log.
//!
//! # Limits
//! Clients that are not authorized yet share 128 connections, each with 10 s for the TLS handshake and 10 s for the
//! request; a client that is refused has to leave. An authorized one may keep a connection for 90 s without a request,
//! with 250 requests at a time, or 8 without a certificate, whose heads take at most 512 KiB while they wait to be
//! authorized. At most 2048 requests are answered at a time, among them 1536 logs and 256 streams. A log is read as its
//! client takes it, one block at a time, and no reader has a thread of its own or keeps others from reading.
//!
//! # Design
//!
//! `node-api` speaks HTTP/2, and HTTP/1.1 for upgrades; a body's end is sent apart from its data (`body.rs`). It gets pods
//! from the node's handle and logs from their files, whatever runs the pods. A reader finds the file
//! that follows the one it holds, however often the log was rotated (`logs/file.rs`). A log is read as its client takes
//! it; one inotify watch wakes all followers, and a container's status tells them its end. `ServingCertificate` of
//! `api-client` only writes a file: the server checks its files before each connection. The container runtime serves a
//! stream (exec, attach, port-forward) at a loopback address that it names for one connection; the node API passes the
//! bytes on. An exec in a program of the host is a command that the runtime starts beside it; the node API speaks the
//! channels of a WebSocket to its client. Usage of pods is measured on request, as for eviction (`Runtime::pod_stats`),
//! and reused for five seconds.

mod answer;
mod body;
mod cache;
mod connection;
mod context;
mod figures;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hangup;
mod http2;
mod logs;
mod places;
mod pods;
mod request;
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
pub use winddown_host::PodStreams;
use winddown_host::pod_logs::PodLogs;
use winddown_host::{SharedWatch, Watch};
use winddown_shared::{NodeHandle, Plugin, PluginName, Reviews, error_chain};

use context::RequestContext;
use figures::SharedMeasurement;
pub use figures::{NodeUsageStats, StatsProvider};
use places::{ClientPlaces, MAX_ANSWERED_CLIENTS};
use tls::Tls;
pub use tls::TlsFiles;
use who::Gatekeeper;

/// How long to wait before trying again to bind the address.
const BIND_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The most streams that are open at the same moment.
const MAX_OPEN_STREAMS: usize = 256;
/// The most logs that are open at the same moment, so that places are left for streams and measurements: clients that
/// take nothing of a log may keep it open for ever.
const MAX_OPEN_LOGS: usize = MAX_ANSWERED_CLIENTS - 512;
/// How often to check for certificates if no event reports them.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The node API, a plug-in for a node.
pub struct NodeApi {
    /// The address to listen on; the kubelet's port is 10250.
    pub address: SocketAddr,
    /// The name of the Node object on whose subresources clients need permissions.
    pub node_name: String,
    /// The parent of the pods' log directories.
    pub log_dir: PathBuf,
    /// The size in bytes at which a log is rotated: the last lines of a log are looked for in twice as many,
    /// and at least 16 MiB.
    pub log_max_bytes: u64,
    /// The certificate files.
    pub tls: TlsFiles,
    /// Why there is no certificate yet, or no new one, for display; empty if the error of reading the files explains it.
    pub waits_for: watch::Receiver<String>,
    /// Authenticates and authorizes clients.
    pub reviews: Arc<dyn Reviews>,
    /// Measures the node and its pods on request.
    pub figures: Arc<dyn StatsProvider>,
    /// Opens streams into pods; if `None`, they are refused.
    pub streams: Option<Arc<dyn PodStreams>>,
}

impl Plugin for NodeApi {
    fn name(&self) -> PluginName {
        const { PluginName::new("node-api") }
    }

    fn run(self: Box<Self>, node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (growth, teller) = match SharedWatch::open() {
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
    async fn listen(self, node: NodeHandle, growth: Option<SharedWatch>) {
        let Self { address, node_name, log_dir, log_max_bytes, tls: files, waits_for, .. } = self;
        let mut waits_for = waits_for;
        let tls = Tls::new(files.clone());
        certificates(&tls, &files, &mut waits_for, &node).await;
        let listener = bind(address, &node).await;
        tracing::info!(%address, "the node API is served");
        let gatekeeper = Gatekeeper::new(self.reviews, node_name.clone());
        let places = ClientPlaces::new();
        let context = RequestContext {
            node: node.clone(),
            gatekeeper,
            tls,
            places,
            node_name,
            figures: SharedMeasurement::new(self.figures, node.clone()),
            pod_streams: self.streams,
            streams: Arc::new(Semaphore::new(MAX_OPEN_STREAMS)),
            logs: PodLogs::new(log_dir, log_max_bytes, MAX_OPEN_LOGS, growth),
        };
        let served = server::serve(Arc::new(context), listener);
        tokio::join!(served, show(address, waits_for, &node));
    }
}

/// Waits until the certificate files can be used.
async fn certificates(
    tls: &Tls,
    files: &TlsFiles,
    waits_for: &mut watch::Receiver<String>,
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
        node.set_status_line(format!("not listening: {why}"));
        tokio::select! {
            _ = timeout(CERTIFICATE_CHECK_INTERVAL, watch.next()) => {}
            Ok(()) = waits_for.changed() => {}
        }
    }
}

/// Keeps the status line of a server that listens: a certificate that a person has to approve may be its next one.
async fn show(address: SocketAddr, mut waits_for: watch::Receiver<String>, node: &NodeHandle) {
    loop {
        let why = waits_for.borrow_and_update().clone();
        let next = if why.is_empty() { why } else { format!("; no new certificate: {why}") };
        node.set_status_line(format!("listening on {address}{next}"));
        if waits_for.changed().await.is_err() {
            return;
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
                    node.set_status_line(format!("not listening: {address}: {error}"));
                    tracing::error!(%address, error, "the node API cannot listen");
                }
                tokio::time::sleep(BIND_RETRY_DELAY).await;
            }
        }
    }
}
