//! An API server, and an agent that resolves pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_cluster::events::{Events, NodeRef};
use winddown_cluster::pods::{Prepare as _, PrepareError};
use winddown_pod_references::{Freshener, NodeAmounts, Resolver, ResolverConfig};
use winddown_shared::{BootClock, Pod, PodUid, WallClock, WallTime};

/// How old volumes may be in these tests.
pub(crate) const AGE: Duration = Duration::from_millis(100);
/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Bed {
    pub(crate) server: ApiServer,
    pub(crate) resolver: Resolver,
    pub(crate) events: Events,
    pub(crate) dir: TempDir,
    config: ResolverConfig,
    client: kube::Client,
    arrivals: Mutex<Option<mpsc::Receiver<PodUid>>>,
    cancel: CancellationToken,
}

impl Bed {
    /// A namespace `shop`, the service of the API server, and a resolver.
    pub(crate) async fn new() -> Self {
        Self::with_max_age(AGE).await
    }

    /// The same, with volumes that may be so old.
    pub(crate) async fn with_max_age(max_age: Duration) -> Self {
        let server = ApiServer::start().await.unwrap();
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "kubernetes", "namespace": "default"},
                "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 443, "name": "https"}]}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": "shop"}}),
        ] {
            server.apply(object).unwrap();
        }
        let client = crate::connect::client(&server.kubeconfig()).await;
        let dir = tempfile::tempdir().unwrap();
        let began = Instant::now();
        let config = ResolverConfig {
            node: Some(NodeAmounts { cpu_milli: 4000, ..NodeAmounts::default() }),
            max_age,
            request: Duration::from_secs(2),
            boot_clock: BootClock::new(move || began.elapsed()),
            ..ResolverConfig::new(dir.path().join("disk"), dir.path().join("memory"))
        };
        let events = Events::unwritten(NodeRef::new("n1"), 1000, wall());
        let (resolver, freshener) =
            Resolver::new(client.clone(), config.clone(), events.clone(), wall());
        let arrivals = Mutex::new(resolver.arrivals());
        let bed = Self {
            server,
            resolver,
            events,
            dir,
            config,
            client,
            arrivals,
            cancel: CancellationToken::new(),
        };
        bed.keep_fresh(freshener);
        bed
    }

    /// The next agent on the same node, which knows nothing.
    pub(crate) fn restart_agent(&mut self) {
        self.cancel.cancel();
        self.cancel = CancellationToken::new();
        let (client, config) = (self.client.clone(), self.config.clone());
        let (resolver, freshener) = Resolver::new(client, config, self.events.clone(), wall());
        self.arrivals = Mutex::new(resolver.arrivals());
        self.resolver = resolver;
        self.keep_fresh(freshener);
    }

    fn keep_fresh(&self, freshener: Freshener) {
        tokio::spawn(freshener.run(self.cancel.clone()));
    }

    pub(crate) fn map(&self, name: &str, data: &Value) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"}, "data": data});
        self.server.apply(map).unwrap();
    }

    /// `data` in plain text.
    pub(crate) fn secret(&self, name: &str, data: &[(&str, &str)]) {
        let bytes = |text: &str| {
            serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
        };
        let data: BTreeMap<&str, Value> = data.iter().map(|(k, v)| (*k, bytes(v))).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "shop"}, "data": data});
        self.server.apply(secret).unwrap();
    }

    /// Prepares a pod that is in the API.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        let _ = self.server.apply(serde_json::to_value(pod.object()).unwrap());
        timeout(LIMIT, self.resolver.prepare(pod)).await.unwrap()
    }

    /// The next pod whose object has come.
    pub(crate) async fn arrived(&self) -> String {
        let mut arrivals = self.arrivals.lock().unwrap().take().unwrap();
        let uid = timeout(LIMIT, arrivals.recv()).await.unwrap().unwrap();
        *self.arrivals.lock().unwrap() = Some(arrivals);
        uid.to_string()
    }

    /// Whether nothing has come.
    pub(crate) fn nothing_arrived(&self) -> bool {
        self.arrivals.lock().unwrap().as_mut().unwrap().try_recv().is_err()
    }

    /// Reasons and messages of the events so far.
    pub(crate) fn told(&self) -> Vec<(String, String)> {
        let drafts = std::iter::from_fn(|| self.events.take());
        drafts.map(|d| (d.reason.to_string(), d.message.to_string())).collect()
    }

    /// The files below one of the two directories, as containers see them.
    pub(crate) fn files(&self, root: &str) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        walk(&self.dir.path().join(root), "", &mut all);
        all
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !condition() {
            assert!(Instant::now() < deadline, "{what}: it never does");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn walk(dir: &Path, prefix: &str, all: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("..") {
            continue;
        }
        let (path, below) = (dir.join(&name), format!("{prefix}{name}"));
        match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => walk(&path, &format!("{below}/"), all),
            Ok(_) => drop(all.insert(below, std::fs::read_to_string(&path).unwrap_or_default())),
            Err(_) => {}
        }
    }
}

fn wall() -> WallClock {
    WallClock::fixed(WallTime::from_second(1_800_000_000).unwrap())
}

/// A pod of this spec; its container is called `main`. Its UID is `uid-<name>`.
pub(crate) fn pod(name: &str, spec: &Value, container: &Value) -> Pod {
    let mut one = json!({"name": "main", "image": "app:1"});
    one.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut whole = json!({"nodeName": "n1", "containers": [one]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "labels": {"app": name}},
        "spec": whole,
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

/// A pod whose only variable is key `k` of the ConfigMap or Secret.
pub(crate) fn pod_of_key(name: &str, reference: &str, object: &str, optional: bool) -> Pod {
    let source = json!({reference: {"name": object, "key": "k", "optional": optional}});
    pod(name, &json!({}), &json!({"env": [{"name": "V", "valueFrom": source}]}))
}

/// The literal value of a variable of the pod's container.
pub(crate) fn value(pod: &Pod, name: &str) -> Option<String> {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let var = container.env.iter().flatten().rfind(|var| var.name == name)?;
    assert!(var.value.is_some(), "{name} is literal");
    var.value.clone()
}
