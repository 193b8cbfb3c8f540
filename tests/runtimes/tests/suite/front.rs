//! The node API over a runtime of the suite, and an API server of a few lines before it, for `kubectl`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider};
use winddown_cri::CriRuntime;
use winddown_node_api::{NodeApi, NodeUsageStats, StatsProvider, TlsFiles};
use winddown_shared::status::StatusStore;
use winddown_shared::testing::FakeKiller;
use winddown_shared::{
    ContainerState, GateReasons, NodeHandle, NodeHandleParts, Plugin as _, PluginName,
    PluginStatusLines, Pod, ReviewError, Reviews, Runtime as _, RuntimeError, VictimLock,
};

use crate::bed::{clock, eventually};

/// Any token is the API server's, which may do anything.
struct ApiServer;

impl Reviews for ApiServer {
    fn certificate(&self, _: &[u8]) -> Option<UserInfo> {
        None
    }

    fn token(&self, token: String) -> BoxFuture<'_, Result<Option<UserInfo>, ReviewError>> {
        async { Ok(Some(UserInfo { username: Some(token), ..UserInfo::default() })) }.boxed()
    }

    fn access(&self, _: SubjectAccessReviewSpec) -> BoxFuture<'_, Result<bool, ReviewError>> {
        async { Ok(true) }.boxed()
    }
}

/// What its runtime's pods use, and nothing of the node.
struct PodFigures(Arc<CriRuntime>);

impl StatsProvider for PodFigures {
    fn measure(&self, disks: bool) -> BoxFuture<'_, Result<NodeUsageStats, RuntimeError>> {
        async move {
            let pods = self.0.pod_stats(disks.then_some(Duration::ZERO)).await?;
            let pods = pods.unwrap_or_default();
            Ok(NodeUsageStats { pods, ..NodeUsageStats::default() })
        }
        .boxed()
    }
}

/// Where a node of this process serves its API: at an IP address of its own, so that no other test takes the port.
fn node_address() -> SocketAddr {
    static NODES: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high, low, NODES.fetch_add(1, Ordering::Relaxed));
    SocketAddr::new(IpAddr::V4(ip), 10_250)
}

/// A node with one pod, and what stands before it.
pub(crate) struct Front {
    node: SocketAddr,
    tls: TlsConnector,
    /// Where `kubectl` finds its API server.
    server: SocketAddr,
    dir: TempDir,
}

impl Front {
    /// Before a pod of this runtime, which runs.
    pub(crate) async fn before(
        runtime: &Arc<CriRuntime>,
        pod: &Pod,
        log_dir: std::path::PathBuf,
    ) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("node.pem"), issued.cert.pem() + &issued.signing_key.serialize_pem())
            .unwrap();
        let statuses = StatusStore::default();
        statuses.set(pod.clone(), serde_json::from_value(status(runtime, pod).await).unwrap());
        let parts = NodeHandleParts {
            killer: Arc::new(FakeKiller::with([])),
            victims: VictimLock::new(),
            gate: watch::Sender::new(GateReasons::default()).subscribe(),
            statuses,
            recorder: Arc::new(()),
            wall: clock(),
            notes: PluginStatusLines::default(),
        };
        let node = node_address();
        let api = NodeApi {
            address: node,
            node_name: "n1".to_owned(),
            log_dir,
            log_max_bytes: 10 * 1024 * 1024,
            tls: TlsFiles {
                certificate: at("node.pem"),
                key: at("node.pem"),
                client_authority: None,
            },
            waits_for: watch::Sender::new(String::new()).subscribe(),
            reviews: Arc::new(ApiServer),
            figures: Arc::new(PodFigures(Arc::clone(runtime))),
            streams: Some(Arc::clone(runtime) as _),
        };
        tokio::spawn(Box::new(api).run(NodeHandle::new(PluginName::new("node-api"), parts)));
        eventually("the node API listens", || std::net::TcpStream::connect(node).is_ok()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let front = Arc::new(Self { node, tls: connector(issued.cert.der()), server, dir });
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": pod.metadata, "spec": pod.spec,
            "status": {"phase": "Running"},
        });
        let serving = Arc::clone(&front);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (front, object) = (Arc::clone(&serving), object.to_string());
                tokio::spawn(async move { front.answer(client, &object).await });
            }
        });
        front
    }

    /// A connection to the node API that has said this.
    pub(crate) async fn ask(&self, head: &str) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.node).await.unwrap();
        let mut stream = self.tls.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// `kubectl` that speaks SPDY to this API server.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg(format!("--server=http://{}", self.server));
        command.arg(format!("--cache-dir={}", self.dir.path().display())).args(args);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false").env("KUBECONFIG", "/dev/null");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Does what an API server does with a request: answers it, or has the node answer.
    async fn answer(&self, mut client: TcpStream, pod: &str) {
        let Some(head) = read_head(&mut client).await else { return };
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        if let Some(path) = on_the_node(path) {
            let rest = head.split_once("\r\n").unwrap().1;
            let head =
                format!("{method} {path} HTTP/1.1\r\nAuthorization: Bearer api-server\r\n{rest}");
            let mut node = self.ask(&head).await;
            let _ = copy_bidirectional(&mut client, &mut node).await;
            return;
        }
        let path = path.split('?').next().unwrap();
        let body = match path {
            "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}).to_string(),
            "/apis" => {
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}).to_string()
            }
            "/api/v1" => json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
                "resources": [{"name": "pods", "singularName": "pod", "namespaced": true,
                    "kind": "Pod", "shortNames": ["po"], "verbs": ["get", "list"]}],
            })
            .to_string(),
            "/api/v1/namespaces/default/pods/web" => pod.to_owned(),
            _ => "{}".to_owned(),
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        let _ = client.write_all(answer.as_bytes()).await;
    }
}

/// The path on the node for one of the API server's.
fn on_the_node(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/api/v1/namespaces/default/pods/web/")?;
    let (what, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match what {
        "exec" | "attach" => format!("/{what}/default/web/main"),
        "portforward" => "/portForward/default/web".to_owned(),
        "log" => "/containerLogs/default/web/main".to_owned(),
        _ => return None,
    };
    let mut query = query.to_owned();
    for (theirs, nodes) in
        [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")]
    {
        query = query.replace(&format!("{theirs}=true"), &format!("{nodes}=1"));
    }
    Some(format!("{path}?{query}"))
}

pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// What the node says of a pod that runs.
async fn status(runtime: &CriRuntime, pod: &Pod) -> Value {
    let status = runtime.pod_status(pod.uid()).await.unwrap();
    let containers = status.containers.iter().map(|one| {
        assert!(matches!(one.state, ContainerState::Running { .. }), "{one:?}");
        json!({"name": *one.name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": one.id, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    });
    json!({"phase": "Running", "containerStatuses": containers.collect::<Vec<_>>()})
}

fn connector(certificate: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}
