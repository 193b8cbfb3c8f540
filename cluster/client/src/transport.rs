//! Connections to the API server with one set of credentials.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as TransportError};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};

use super::bounded_body::BoundedBody;
use super::error::{CredentialsError, RequestError};
use super::material::Material;
use super::server_addresses::ServerAddresses;

/// The kernel detects a dead peer after about a minute, so this process needs no timer for it.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 3;
/// Connections kept for the next burst of writes, for 90 s: as many as a typical node stops pods at once. Without
/// them the next group's requests wait for TLS handshakes while the API server handles the ends of this one.
const IDLE_CONNECTIONS: usize = 100;

/// How requests are sent.
#[derive(Clone, Debug)]
pub(super) struct TransportConfig {
    pub(super) user_agent: HeaderValue,
    pub(super) connect_timeout: Duration,
    pub(super) answer_timeout: Duration,
}

/// Sends requests. Dropping it closes its idle connections; answers that are being read continue.
pub(super) struct Transport {
    send: Box<dyn Fn(Request<Body>) -> Answer + Send + Sync>,
}

type Answer = BoxFuture<'static, Result<Response<Incoming>, TransportError>>;

// === impl Transport ===

impl Transport {
    pub(super) fn new(
        material: &Material,
        config: &TransportConfig,
    ) -> Result<Self, CredentialsError> {
        let tcp = connector(config);
        let connector =
            material.config.rustls_https_connector_with_connector(tcp).map_err(|source| {
                let problem = "no TLS connection can be made with what is in them";
                CredentialsError::because(material.files.names(), problem, source)
            })?;
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self { send: Box::new(move |request| Box::pin(client.request(request))) })
    }

    /// Sends a request and waits for the head of the answer, whose body is bounded. Dropping the future closes the
    /// connection.
    pub(super) async fn send(
        &self,
        material: &Material,
        config: &TransportConfig,
        mut request: Request<Body>,
    ) -> Result<Response<BoundedBody<Incoming>>, RequestError> {
        let server = &material.config.cluster_url;
        *request.uri_mut() = full_address(server, request.uri())?;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, config.user_agent.clone());
        if let Some(authorization) = &material.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let address = request.uri().clone();
        let after = config.answer_timeout;
        match tokio::time::timeout(after, (self.send)(request)).await {
            Ok(Ok(answer)) => Ok(answer.map(|body| BoundedBody::new(body, &address))),
            Ok(Err(cause)) if cause.is_connect() => {
                Err(RequestError::Unreachable { server: server.to_string(), cause })
            }
            Ok(Err(cause)) => Err(RequestError::Lost { server: server.to_string(), cause }),
            Err(_) => Err(RequestError::Silent { server: server.to_string(), after }),
        }
    }
}

fn connector(config: &TransportConfig) -> HttpConnector<ServerAddresses> {
    let mut tcp = HttpConnector::new_with_resolver(ServerAddresses);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(config.connect_timeout));
    tcp.set_keepalive(Some(KEEPALIVE_TIME));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    tcp.set_tcp_user_timeout(Some(KEEPALIVE_TIME + KEEPALIVE_EVERY * KEEPALIVE_TRIES));
    tcp
}

/// The server's address, with the request's path appended to its own.
fn full_address(server: &Uri, request: &Uri) -> Result<Uri, RequestError> {
    let wrong = || RequestError::Address { path: request.to_string() };
    let base = server.path().trim_end_matches('/');
    let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
    let whole = if base.is_empty() { path.to_owned() } else { format!("{base}{path}") };
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(whole.parse().map_err(|_| wrong())?);
    Uri::from_parts(parts).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::spawn_blocking;
    use tokio::time::timeout;
    use tower_service::Service as _;

    use super::*;

    #[test]
    fn a_server_that_has_a_name_needs_none_of_the_threads_for_disks() {
        let limit = Duration::from_secs(10);
        let config = TransportConfig {
            user_agent: HeaderValue::from_static("agent"),
            connect_timeout: limit,
            answer_timeout: limit,
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
            let (go, gate) = std::sync::mpsc::channel::<()>();
            let hangs = spawn_blocking(move || gate.recv().is_ok());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
            let connected = connector(&config).call(address.parse().unwrap());
            let connected = timeout(limit, connected).await;
            drop(go);
            hangs.await.unwrap();
            connected.unwrap().unwrap();
        });
    }
}
