//! Tests of the server with real TLS, its clients, and a fake that knows the cluster's users.

mod clients;
mod commands;
mod figures;
mod http2;
mod logs;
mod rights;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use k8s_openapi::api::core::v1::PodStatus;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use winddown_host::SharedWatch;
use winddown_host::pod_logs::PodLogs;
use winddown_shared::status::StatusStore;
use winddown_shared::testing::FakeKiller;
use winddown_shared::{
    GateReasons, NodeHandle, NodeHandleParts, Plugin as _, PluginName, PluginStatusLines, Pod,
    ReviewError, Reviews, VictimLock, WallClock,
};

use crate::NodeApi;
use crate::context::RequestContext;
use crate::figures::SharedMeasurement;
use crate::places::ClientPlaces;
use crate::tls::{Tls, TlsFiles};
use crate::who::Gatekeeper;

/// A fake that knows users, their tokens and permissions, and records the reviews that it is asked for.
#[derive(Default)]
struct Cluster {
    /// The users, by token.
    tokens: BTreeMap<String, &'static str>,
    /// The permissions: user, verb and subresource.
    rights: BTreeSet<(&'static str, &'static str, &'static str)>,
    asked: Mutex<Vec<String>>,
    is_silent: Mutex<bool>,
    /// Whether no question about rights is ever answered.
    hangs: bool,
}

impl Cluster {
    fn ask(&self, what: String) -> Result<(), ReviewError> {
        self.asked.lock().unwrap().push(what);
        if *self.is_silent.lock().unwrap() {
            return Err(ReviewError("it is away".into()));
        }
        Ok(())
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Reviews for Cluster {
    fn certificate(&self, der: &[u8]) -> Option<UserInfo> {
        // The certificate contains the name as plain text.
        let text = String::from_utf8_lossy(der);
        let known =
            ["api-server", "reader", "outsider"].into_iter().find(|name| text.contains(name));
        known.map(|name| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() })
    }

    fn token(&self, token: String) -> BoxFuture<'_, Result<Option<UserInfo>, ReviewError>> {
        async move {
            self.ask(format!("token {token}"))?;
            let user = self.tokens.get(&token);
            Ok(user
                .map(|user| UserInfo { username: Some((*user).to_owned()), ..UserInfo::default() }))
        }
        .boxed()
    }

    fn access(&self, asked: SubjectAccessReviewSpec) -> BoxFuture<'_, Result<bool, ReviewError>> {
        async move {
            let user = asked.user.unwrap();
            let of = asked.resource_attributes.unwrap();
            assert_eq!((of.resource.as_deref(), of.name.as_deref()), (Some("nodes"), Some("n1")));
            assert_eq!(asked.groups.unwrap(), ["system:authenticated"]);
            let (verb, subresource) = (of.verb.unwrap(), of.subresource.unwrap());
            self.ask(format!("{user} {verb} {subresource}"))?;
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(self.rights.contains(&(&*user, &*verb, &*subresource)))
        }
        .boxed()
    }
}

/// A certificate authority, and a node with one pod and a server.
struct Bench {
    context: Arc<RequestContext>,
    cluster: Arc<Cluster>,
    statuses: StatusStore,
    authority: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key as PEM.
fn signed(
    by: &CertifiedIssuer<'static, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
    change: impl FnOnce(&mut CertificateParams),
) -> String {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    format!("{}{}", params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

fn client(by: &CertifiedIssuer<'static, KeyPair>, name: &str) -> String {
    signed(by, name, ExtendedKeyUsagePurpose::ClientAuth, |_| {})
}

/// The handle of a node with these statuses and status lines.
fn handle(statuses: &StatusStore, notes: PluginStatusLines) -> NodeHandle {
    let parts = NodeHandleParts {
        killer: Arc::new(FakeKiller::with([])),
        victims: VictimLock::new(),
        gate: watch::Sender::new(GateReasons::default()).subscribe(),
        statuses: statuses.clone(),
        recorder: Arc::new(()),
        wall: WallClock::fixed("2026-01-01T00:00:00Z".parse().unwrap()),
        notes,
    };
    NodeHandle::new(PluginName::new("node-api"), parts)
}

impl Bench {
    fn new() -> Self {
        let all = ["get", "create"];
        let rights =
            ["proxy", "log"].into_iter().flat_map(|of| all.map(|verb| ("api-server", verb, of)));
        Self::with(Cluster {
            tokens: BTreeMap::from([
                ("good".to_owned(), "reader"),
                ("figures".to_owned(), "scraper"),
            ]),
            rights: rights
                .chain([("reader", "get", "log"), ("scraper", "get", "metrics")])
                .chain([("scraper", "get", "stats")])
                .collect(),
            ..Cluster::default()
        })
    }

    fn with(cluster: Cluster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = authority();
        let at = |name: &str| directory.path().join(name);
        let server = signed(&authority, "node", ExtendedKeyUsagePurpose::ServerAuth, |_| {});
        std::fs::write(at("server.pem"), server).unwrap();
        std::fs::write(at("clients.pem"), authority.pem()).unwrap();
        let files = TlsFiles {
            certificate: at("server.pem"),
            key: at("server.pem"),
            client_authority: Some(at("clients.pem")),
        };
        let statuses = StatusStore::default();
        let (growth, teller) = SharedWatch::open().unwrap();
        tokio::spawn(teller.run());
        let cluster = Arc::new(cluster);
        let node = handle(&statuses, PluginStatusLines::default());
        let context = RequestContext {
            node: node.clone(),
            gatekeeper: Gatekeeper::new(Arc::clone(&cluster) as _, "n1".to_owned()),
            tls: Tls::new(files),
            places: ClientPlaces::new(),
            node_name: "n1".to_owned(),
            figures: SharedMeasurement::new(Arc::new(figures::Measures::default()), node.clone()),
            pod_streams: None,
            streams: Arc::new(Semaphore::new(crate::MAX_OPEN_STREAMS)),
            logs: PodLogs::new(at("logs"), 1024 * 1024, crate::MAX_OPEN_LOGS, Some(growth)),
        };
        Self { context: Arc::new(context), cluster, statuses, authority, directory }
    }

    /// Sets the status of a pod with one container, which is in this run or waits with this reason.
    fn pod(&self, runs: Result<u32, &str>) -> Pod {
        let pod = Pod::new(
            serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "ns", "uid": "u1", "annotations":
                    {"kubectl.kubernetes.io/last-applied-configuration": "SECRET"}},
                "spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "SECRET"}]}]},
            }))
            .unwrap(),
        )
        .unwrap();
        let (state, id) = match runs {
            Ok(run) => (json!({"running": {}}), json!(format!("cri://{run}"))),
            Err(reason) => (json!({"waiting": {"reason": reason}}), json!(null)),
        };
        let last = match runs {
            Err("CrashLoopBackOff") => json!({"terminated": {"exitCode": 1}}),
            _ => json!(null),
        };
        let status: PodStatus = serde_json::from_value(json!({"containerStatuses": [{
            "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": id, "state": state, "lastState": last,
        }]}))
        .unwrap();
        self.statuses.set(pod.clone(), status);
        pod
    }

    /// The path of a log file with this name.
    fn log(&self, name: &str) -> PathBuf {
        let folder = self.context.logs.directory().join("ns_web_u1/main");
        std::fs::create_dir_all(&folder).unwrap();
        folder.join(name)
    }

    /// The node API as a plug-in, on a free port, with a certificate that says this of itself.
    fn plugin(&self, waits_for: watch::Receiver<String>) -> NodeApi {
        let at = |name: &str| self.directory.path().join(name);
        NodeApi {
            address: "127.0.0.1:0".parse().unwrap(),
            node_name: "n1".to_owned(),
            log_dir: at("logs"),
            log_max_bytes: 1024 * 1024,
            tls: TlsFiles {
                certificate: at("server.pem"),
                key: at("server.pem"),
                client_authority: None,
            },
            waits_for,
            reviews: Arc::clone(&self.cluster) as _,
            figures: Arc::new(figures::Measures::default()),
            streams: None,
        }
    }

    /// Serves on a free port and returns it.
    async fn serve(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(crate::server::serve(Arc::clone(&self.context), listener));
        port
    }
}

#[tokio::test]
async fn the_status_of_a_server_that_listens_names_the_request_for_its_next_certificate() {
    let bench = Bench::new();
    let (told, waits_for) = watch::channel(String::new());
    let notes = PluginStatusLines::default();
    let api = Box::new(bench.plugin(waits_for));
    let served = tokio::spawn(api.run(handle(&bench.statuses, notes.clone())));
    let mut lines = notes.changes();
    let mut shows = async |line: &str| {
        let shown = lines.wait_for(|lines| lines.iter().any(|one| &*one.line == line));
        timeout(Duration::from_secs(60), shown).await.unwrap().unwrap();
    };
    shows("listening on 127.0.0.1:0").await;
    told.send_replace("node-csr-1 waits to be approved".to_owned());
    shows("listening on 127.0.0.1:0; no new certificate: node-csr-1 waits to be approved").await;
    told.send_replace(String::new());
    shows("listening on 127.0.0.1:0").await;
    served.abort();
}
