//! The connection to the API server: credentials that change, a server that does not answer, a
//! certificate that has to be asked for first.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod bootstrap;
mod bursts;
mod exec;
mod outage;
mod rotation;
mod serving;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::json;
use tempfile::TempDir;
use winddown_api_client::{
    ApiHealth, ClusterConfig, Connection, ConnectionState, Credentials, RequestError,
};
use winddown_apiserver::{ApiServer, Identity};
use winddown_shared::WallClock;

/// A server, and a folder with credentials for it.
struct Scene {
    server: ApiServer,
    dir: TempDir,
}

/// The wall clock of this machine.
fn wall() -> WallClock {
    let read = || {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Timestamp::UNIX_EPOCH.checked_add(now).unwrap_or(Timestamp::UNIX_EPOCH)
    };
    WallClock::new(read)
}

const NODE: &str = "system:node:n1";
const HOUR: Duration = Duration::from_secs(3600);

impl Scene {
    async fn new() -> Self {
        Self { server: ApiServer::start().await.unwrap(), dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces a file as a whole, as everybody does who rotates credentials.
    fn write(&self, name: &str, text: &str) {
        let unfinished = self.path("unfinished");
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(unfinished, self.path(name)).unwrap();
    }

    /// Puts a new certificate of the node into `node.pem`.
    fn new_certificate(&self) -> Identity {
        let identity = self.server.new_identity(NODE, &["system:nodes"], HOUR).unwrap();
        self.write("node.pem", &identity.pem());
        identity
    }

    /// A kubeconfig that names `node.pem` or `token`, and `ca.crt`.
    fn kubeconfig(&self, user: &serde_json::Value) -> ClusterConfig {
        self.write("ca.crt", &self.server.ca_pem());
        let config = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": self.server.url(), "certificate-authority": "ca.crt",
            }}],
            "users": [{"name": "u", "user": user}],
        });
        self.write("kubeconfig", &config.to_string());
        let path = self.path("kubeconfig");
        ClusterConfig {
            answer_timeout: Duration::from_secs(10),
            ..ClusterConfig::new(Credentials::Kubeconfig { path, context: None })
        }
    }

    fn with_certificate(&self) -> ClusterConfig {
        self.new_certificate();
        self.kubeconfig(&json!({"client-certificate": "node.pem", "client-key": "node.pem"}))
    }

    fn pod(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}]},
        });
        self.server.apply(pod).unwrap();
    }
}

async fn open(config: ClusterConfig) -> Connection {
    Connection::open(config, wall()).await.unwrap()
}

async fn list(connection: &Connection) -> Result<usize, kube::Error> {
    let pods: Api<Pod> = Api::all(connection.client());
    pods.list(&ListParams::default()).await.map(|list| list.items.len())
}

/// What a request without an answer died of.
fn cause(error: &kube::Error) -> &RequestError {
    match error {
        kube::Error::Service(source) => source.downcast_ref().unwrap(),
        error => panic!("the server answered: {error}"),
    }
}

/// Waits for what nothing announces.
async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            match look() {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    match tokio::time::timeout(Duration::from_secs(30), looking).await {
        Ok(found) => found,
        Err(_) => panic!("not within 30 s: {what}"),
    }
}

async fn until_state(
    connection: &Connection,
    wanted: impl Fn(&ConnectionState) -> bool,
) -> ApiHealth {
    let mut health = connection.health();
    let found = health.wait_for(|health| wanted(&health.state));
    match tokio::time::timeout(Duration::from_secs(30), found).await {
        Ok(found) => found.unwrap().clone(),
        Err(_) => panic!("it stays {:?}", *connection.health().borrow()),
    }
}

fn text(state: &ConnectionState) -> Arc<str> {
    state.why().unwrap_or_else(|| panic!("{state}")).into()
}
