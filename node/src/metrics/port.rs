//! Metrics and health over TCP, if configured.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use winddown_shared::error_chain;

use winddown_control::{AgentApi, Server};

/// How long to wait before trying again to bind the address; see [`serve_over_tcp`].
pub const BIND_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Serves metrics and health on `address` until `stop` is cancelled.
///
/// If the address cannot be bound (in use, or of an interface that is not up yet), this is logged once and retried
/// every `again`, and `problem` gets the text: a node must lose neither its protection nor, for good, its metrics because of a port.
pub async fn serve_over_tcp<A: AgentApi>(
    server: Server<A>,
    address: SocketAddr,
    again: Duration,
    stop: CancellationToken,
    problem: impl Fn(Option<String>) + Send,
) {
    let mut said = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if !said => {
                said = true;
                problem(Some(format!(
                    "metricsAddress: cannot serve metrics on {address}: {}; retrying every {again:?}: free \
                     the port, or set another address",
                    error_chain(&error)
                )));
                tracing::error!(%address, error = error_chain(&error),
                    "metricsAddress: cannot serve metrics over TCP; retrying every {again:?}");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(again) => {}
            () = stop.cancelled() => return,
        }
    };
    problem(None);
    tracing::info!(%address, "metrics are served over TCP");
    server.serve_metrics(listener).await;
}
