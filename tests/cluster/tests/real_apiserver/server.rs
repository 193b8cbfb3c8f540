//! A real API server, with the rights of `cluster/rbac` in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::core::discovery::ApiResource;
use serde_json::json;
use tokio::sync::OnceCell;
use winddown_api_client::{ClusterConfig, Connection, Credentials};
use winddown_node_tests::Bridge;
use winddown_shared::WallClock;

use super::authority::{Authority, Issued};
use super::processes::{Running, START, folder, free_port, start};

/// A kube-apiserver with Node and RBAC authorization, NodeRestriction, and no other programs in the cluster
/// but the controllers that a test asks for.
pub(crate) struct RealApi {
    pub(crate) url: String,
    pub(crate) authority: Authority,
    pub(crate) folder: PathBuf,
    etcd: Running,
    server: Mutex<Running>,
    /// The server's program, and its arguments.
    program: PathBuf,
    arguments: Vec<String>,
    admin: OnceLock<Issued>,
    ready: OnceCell<Result<(), String>>,
    controllers: OnceLock<Running>,
    scheduler: OnceLock<Running>,
}

/// What the server is called in messages.
const SERVER: &str = "kube-apiserver";
/// The controllers of a cluster whose nodes go down and come back.
const WORKLOADS: &str = "daemonset,deployment,disruption,endpointslice,garbage-collector-controller,job,\
     node-lifecycle-controller,pod-garbage-collector-controller,replicaset,statefulset,\
     taint-eviction-controller";
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Signed into the group of bootstrap tokens.
pub(crate) const BOOTSTRAP_TOKEN: &str = "bootstrap-token-of-the-test";

/// The wall clock of this machine.
pub(crate) fn wall() -> WallClock {
    WallClock::new(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Timestamp::UNIX_EPOCH.checked_add(now).unwrap_or(Timestamp::UNIX_EPOCH)
    })
}

impl RealApi {
    /// The server of this run, with the manifests of `cluster/rbac` applied. `None`: there is none, and
    /// that has been said.
    pub(crate) async fn get() -> Option<&'static Self> {
        static SHARED: OnceLock<RealApi> = OnceLock::new();
        let program = program()?;
        SHARED.get_or_init(|| Self::start(program, folder("shared"))).prepared().await
    }

    /// A server that only the test of this name has, and may kill and stop. It ends with this process.
    pub(crate) async fn own(test: &str) -> Option<&'static Self> {
        let server: &'static Self = Box::leak(Box::new(Self::start(program()?, folder(test))));
        server.prepared().await
    }

    async fn prepared(&'static self) -> Option<&'static Self> {
        match self.ready.get_or_init(|| self.prepare()).await {
            Ok(()) => Some(self),
            Err(why) => panic!("{why}"),
        }
    }

    /// The same with the controllers of budgets, DaemonSets and ReplicaSets, in a kube-controller-manager.
    pub(crate) async fn with_controllers(test: &str) -> Option<&'static Self> {
        let program = named(test, "WINDDOWN_KUBE_CONTROLLER_MANAGER")?;
        let server = Self::get().await?;
        server.control(&program, "disruption,daemonset,replicaset").await;
        Some(server)
    }

    /// A server that only this test has, with the controllers of workloads and nodes, and a scheduler.
    pub(crate) async fn cluster(test: &str) -> Option<&'static Self> {
        let controllers = named(test, "WINDDOWN_KUBE_CONTROLLER_MANAGER")?;
        let scheduler = named(test, "WINDDOWN_KUBE_SCHEDULER")?;
        let server = Self::own(test).await?;
        server.control(&controllers, WORKLOADS).await;
        server.scheduler.get_or_init(|| {
            start(&server.folder, "kube-scheduler", &scheduler, &server.as_admin())
        });
        Some(server)
    }

    async fn control(&self, program: &Path, controllers: &str) {
        self.admin().await;
        self.controllers.get_or_init(|| {
            let mut arguments = self.as_admin();
            arguments.push(format!("--controllers={controllers}"));
            start(&self.folder, "kube-controller-manager", program, &arguments)
        });
    }

    /// How a program of the control plane is told to work for this server, alone.
    fn as_admin(&self) -> Vec<String> {
        let kubeconfig = self.folder.join("admin.kubeconfig");
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ]
    }

    /// Ends what `cluster` started.
    pub(crate) fn stop(&self) {
        let server = self.server.lock().unwrap();
        let others = [self.controllers.get(), self.scheduler.get()].into_iter().flatten();
        for running in others.chain([&*server, &self.etcd]) {
            running.process().kill().unwrap();
        }
    }

    /// The end of the controllers' log.
    pub(crate) fn said_by_controllers(&self) -> String {
        self.controllers.get().map(Running::tail).unwrap_or_default()
    }

    fn start(program: PathBuf, folder: PathBuf) -> Self {
        let authority = Authority::new();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("ca.crt", &authority.pem());
        let wire = Bridge::WIRE.to_string();
        let served = authority.server(&["127.0.0.1", &wire, "localhost", "kubernetes.default.svc"]);
        write("server.crt", &served.certificate);
        write("server.key", &served.key);
        let accounts = rcgen::KeyPair::generate().unwrap();
        write("accounts.key", &accounts.serialize_pem());
        write("accounts.pub", &accounts.public_key_pem());
        let bootstrapper =
            format!("{BOOTSTRAP_TOKEN},system:bootstrap:test,bootstrap,\"system:bootstrappers\"\n");
        write("tokens.csv", &bootstrapper);
        // As who it asks nodes.
        let asks = authority.client("kube-apiserver-kubelet-client", &["system:masters"], HOUR);
        write("asks.crt", &asks.certificate);
        write("asks.key", &asks.key);

        let etcd_port = free_port();
        let etcd = format!("http://127.0.0.1:{etcd_port}");
        let peers = format!("http://127.0.0.1:{}", free_port());
        let program_etcd = std::env::var_os("WINDDOWN_ETCD").unwrap_or_else(|| "etcd".into());
        let arguments = [
            "--data-dir=etcd".to_owned(),
            // A busy disk is not what is tested.
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={etcd}"),
            format!("--advertise-client-urls={etcd}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ];
        let etcd_running = start(&folder, "etcd", Path::new(&program_etcd), &arguments);

        let port = free_port();
        let arguments = [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--etcd-servers={etcd}"),
            "--tls-cert-file=server.crt".to_owned(),
            "--tls-private-key-file=server.key".to_owned(),
            "--client-ca-file=ca.crt".to_owned(),
            "--token-auth-file=tokens.csv".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-account-key-file=accounts.pub".to_owned(),
            "--service-account-signing-key-file=accounts.key".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--kubelet-certificate-authority=ca.crt".to_owned(),
            "--kubelet-client-certificate=asks.crt".to_owned(),
            "--kubelet-client-key=asks.key".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
        ];
        let running = start(&folder, SERVER, &program, &arguments);
        Self {
            url: format!("https://127.0.0.1:{port}"),
            authority,
            folder,
            etcd: etcd_running,
            server: Mutex::new(running),
            program,
            arguments: arguments.into(),
            admin: OnceLock::new(),
            ready: OnceCell::new(),
            controllers: OnceLock::new(),
            scheduler: OnceLock::new(),
        }
    }

    async fn prepare(&self) -> Result<(), String> {
        let admin = self.admin().await;
        let ready = async {
            let request = || http::Request::get("/readyz").body(Vec::new()).unwrap();
            while admin.request_text(request()).await.is_err() {
                if self.etcd.has_ended() || self.server.lock().unwrap().has_ended() {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            true
        };
        if tokio::time::timeout(START, ready).await != Ok(true) {
            let logs = self.server.lock().unwrap().tail() + &self.etcd.tail();
            return Err(format!("the API server does not become ready within {START:?}\n{logs}"));
        }
        self.namespace("kube-node-lease").await;
        // Not cluster-mode, which gives the same account more, nor node-extra, which a node does not need from 1.35 on.
        for file in ["bootstrap", "own-node", "companion-mode"] {
            self.apply(&super::rights::manifest(file)).await;
        }
        Ok(())
    }

    /// Kills the server and starts it again on what etcd has. It answers again some seconds later.
    pub(crate) async fn kill_and_start_again(&self) {
        self.server.lock().unwrap().process().kill().unwrap();
        while !self.server.lock().unwrap().has_ended() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        *self.server.lock().unwrap() = start(&self.folder, SERVER, &self.program, &self.arguments);
    }

    /// Stops the server where it stands for so long. The kernel goes on taking what is sent to it: no connection ends,
    /// and new ones come about.
    pub(crate) async fn hang_for(&self, time: Duration) {
        self.server.lock().unwrap().process().hang().unwrap();
        tokio::time::sleep(time).await;
        self.server.lock().unwrap().process().go_on().unwrap();
    }

    /// Applies objects as the administrator.
    pub(crate) async fn apply(&self, objects: &[serde_json::Value]) {
        self.apply_as(objects, &PatchParams::apply("winddown-test").force()).await;
    }

    /// Has the server check objects as if they were applied, strictly, and keeps none.
    pub(crate) async fn would_take(&self, objects: &[serde_json::Value]) {
        let params = PatchParams::apply("winddown-test").force().dry_run().validation_strict();
        self.apply_as(objects, &params).await;
    }

    async fn apply_as(&self, objects: &[serde_json::Value], params: &PatchParams) {
        let admin = self.admin().await;
        for object in objects {
            let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let types = object.types.clone().unwrap();
            let kind = GroupVersionKind::try_from(&types).unwrap();
            let resource = ApiResource::from_gvk(&kind);
            let name = object.metadata.name.clone().unwrap();
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
                None => Api::all_with(admin.clone(), &resource),
            };
            if let Err(error) = api.patch(&name, params, &Patch::Apply(&object)).await {
                panic!("{} {name}: {error}", kind.kind);
            }
        }
    }

    /// Who may do everything.
    pub(crate) async fn admin(&self) -> kube::Client {
        let issued =
            self.admin.get_or_init(|| self.authority.client("admin", &["system:masters"], HOUR));
        self.open("admin", issued).await.client()
    }

    /// A connection with a node's certificate.
    pub(crate) async fn node(&self, name: &str) -> Connection {
        self.node_at(&self.url, name).await
    }

    /// The same, to the server as it is reached by this URL.
    pub(crate) async fn node_at(&self, url: &str, name: &str) -> Connection {
        let user = format!("system:node:{name}");
        let issued = self.authority.client(&user, &["system:nodes"], HOUR);
        self.open_at(url, &user, &issued).await
    }

    /// A connection with this certificate, kept in `<name>.pem`.
    pub(crate) async fn open(&self, name: &str, issued: &Issued) -> Connection {
        self.open_at(&self.url, name, issued).await
    }

    async fn open_at(&self, url: &str, name: &str, issued: &Issued) -> Connection {
        let identity =
            self.write(&format!("{name}.pem"), &format!("{}{}", issued.certificate, issued.key));
        let user = json!({"client-certificate": identity, "client-key": identity});
        Connection::open(self.config_at(url, name, &user), wall()).await.unwrap()
    }

    /// A configuration for a `user` of a kubeconfig, kept in `<name>.kubeconfig`.
    pub(crate) fn config(&self, name: &str, user: &serde_json::Value) -> ClusterConfig {
        self.config_at(&self.url, name, user)
    }

    fn config_at(&self, url: &str, name: &str, user: &serde_json::Value) -> ClusterConfig {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": url, "certificate-authority": self.folder.join("ca.crt"),
            }}],
            "users": [{"name": "u", "user": user}],
        });
        let path = self.write(&format!("{name}.kubeconfig"), &text.to_string());
        let credentials = Credentials::Kubeconfig { path, context: None };
        // The tests are many clients at once, and nobody is to be protected from them.
        ClusterConfig { qps: 10_000, burst: 10_000, ..ClusterConfig::new(credentials) }
    }

    /// Replaces a file of the run's folder as a whole: tests run side by side.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let (unfinished, path) =
            (self.folder.join(format!("{number}.new")), self.folder.join(name));
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(unfinished, &path).unwrap();
        path
    }

    /// Makes a namespace with the ServiceAccount that pods need.
    pub(crate) async fn namespace(&self, name: &str) {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        });
        self.apply(&[space, account]).await;
    }

    /// Makes a pod that is bound to a node, as the scheduler would.
    pub(crate) async fn pod(&self, namespace: &str, name: &str, node: &str) -> Pod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "nodeName": node, "restartPolicy": "Never",
                "containers": [{"name": "a", "image": "x"}],
            },
        });
        let api: Api<Pod> = Api::namespaced(self.admin().await, namespace);
        api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Removes what a test made.
    pub(crate) async fn remove(&self, namespace: &str, node: &str) {
        let admin = self.admin().await;
        let params = DeleteParams::default();
        let _ = Api::<Namespace>::all(admin.clone()).delete(namespace, &params).await;
        let _ = Api::<Node>::all(admin).delete(node, &params).await;
    }
}

/// The server's program. None, after saying so for each test that asks, where there is none.
fn program() -> Option<PathBuf> {
    let thread = std::thread::current();
    named(thread.name().unwrap_or("a test of the real kube-apiserver"), "WINDDOWN_KUBE_APISERVER")
}

/// The program that a variable names. None, after saying so, where it names none.
pub(crate) fn named(test: &str, variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable);
    if program.is_none() {
        // Not failed where nothing may be skipped: no package registry has the program.
        let name = variable.trim_start_matches("WINDDOWN_").to_lowercase().replace('_', "-");
        println!("SKIPPED: {test}: {variable} names no {name}");
    }
    program.map(PathBuf::from)
}
