//! A small kubelet: it says that its pods run, ends those that are deleted, and removes them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use winddown_companion::{Inside, LocalNode, Unasked};
use winddown_shared::{PodUid, PodUidMap, StoppedContainer};

/// What runs, as the container runtime would tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Containers(
    Arc<Mutex<HashMap<PodUid, Running>>>,
    /// How those ended that do not run any more.
    Arc<Mutex<HashMap<PodUid, i32>>>,
);

#[derive(Debug, Default)]
struct Running {
    /// The shortest grace that was heard of, and when it is over.
    grace: Option<(Duration, Instant)>,
    since: Option<Instant>,
}

/// Runs the pods of `node` until it is dropped. Containers end `takes` after SIGTERM.
pub(crate) struct Kubelet(tokio::task::JoinHandle<()>);

// === impl Kubelet ===

impl Kubelet {
    pub(crate) fn start(
        client: kube::Client,
        node: &str,
        containers: Containers,
        takes: Duration,
    ) -> Self {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Self(tokio::spawn(async move {
            loop {
                // An API server that is away is tried again.
                if let Ok(pods) = Api::<Pod>::all(client.clone()).list(&of_node).await {
                    let uids = pods.items.iter().filter_map(|pod| pod.metadata.uid.clone());
                    containers.keep_only(&uids.map(PodUid::new).collect());
                    for pod in pods.items {
                        look_after(&client, &containers, pod, takes).await;
                    }
                }
                sleep(Duration::from_millis(50)).await;
            }
        }))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn look_after(client: &kube::Client, containers: &Containers, pod: Pod, takes: Duration) {
    let (meta, spec) = (pod.metadata, pod.spec.unwrap_or_default());
    let uid = PodUid::new(meta.uid.clone().unwrap_or_default());
    let api: Api<Pod> =
        Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or("default"));
    let name = meta.name.unwrap_or_default();
    let mirror =
        meta.annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
    let status = |state: Value| {
        let ready = state.get("running").is_some();
        let one = |container: &k8s_openapi::api::core::v1::Container| {
            json!({
                "name": container.name, "image": "x", "imageID": "", "restartCount": 0,
                "ready": ready, "state": state,
            })
        };
        let all: Vec<Value> = spec.containers.iter().map(one).collect();
        Patch::Strategic(json!({
            "metadata": {"uid": uid.as_str()},
            "status": {
                "phase": "Running", "containerStatuses": all,
                // An eviction asks no budget about a pod that is not ready.
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            },
        }))
    };
    let params = PatchParams::default();
    if containers.begin(&uid) {
        let running = status(json!({"running": {"startedAt": "2030-01-01T00:00:00Z"}}));
        let _ = api.patch_status(&name, &params, &running).await;
    }
    if meta.deletion_timestamp.is_none() || mirror {
        return;
    }
    let grace = meta.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
    let Some(exit_code) = containers.ends(&uid, Duration::from_secs(grace.unwrap_or(0)), takes)
    else {
        return;
    };
    let ended = status(json!({"terminated": {"exitCode": exit_code, "reason": "Error"}}));
    let _ = api.patch_status(&name, &params, &ended).await;
    let uid = Some(uid.as_str().to_owned());
    let params = DeleteParams::default()
        .grace_period(0)
        .preconditions(Preconditions { uid, resource_version: None });
    let _ = api.delete(&name, &params).await;
}

// === impl Containers ===

impl Containers {
    /// What the API server has no more is ended.
    pub(crate) fn keep_only(&self, uids: &HashSet<PodUid>) {
        self.0.lock().unwrap().retain(|uid, _| uids.contains(uid));
    }

    /// Starts a pod; whether it did not run before.
    fn begin(&self, uid: &PodUid) -> bool {
        let mut all = self.0.lock().unwrap();
        let new = !all.contains_key(uid);
        all.entry(uid.clone()).or_insert_with(|| Running { since: None, grace: None });
        new
    }

    /// Goes on ending a pod: its exit code, once it has ended.
    fn ends(&self, uid: &PodUid, grace: Duration, takes: Duration) -> Option<i32> {
        let mut all = self.0.lock().unwrap();
        let now = Instant::now();
        let running = all.get_mut(uid)?;
        let since = *running.since.get_or_insert(now);
        if running.grace.is_none_or(|(known, _)| grace < known) {
            running.grace = Some((grace, now + grace));
        }
        let killed = running.grace.is_some_and(|(_, at)| at <= now);
        let ended = since + takes <= now;
        (killed || ended).then(|| {
            all.remove(uid);
            let exit_code = if ended { 0 } else { 137 };
            self.1.lock().unwrap().insert(uid.clone(), exit_code);
            exit_code
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl LocalNode for Containers {
    async fn look(&self) -> Result<PodUidMap<Inside>, Unasked> {
        let all = self.0.lock().unwrap();
        let inside = || Inside { running: vec!["a".to_owned()], has_sandbox: true };
        Ok(all.keys().map(|uid| (uid.clone(), inside())).collect())
    }

    async fn exits(&self, uid: &PodUid) -> Result<Vec<StoppedContainer>, Unasked> {
        let exit_code = self.1.lock().unwrap().get(uid).copied();
        let ended = exit_code.map(|exit_code| StoppedContainer {
            name: "a".into(),
            exit_code,
            forced: exit_code == 137,
        });
        Ok(ended.into_iter().collect())
    }

    async fn stop(&self, uid: &PodUid, _: Duration) -> Result<(), Unasked> {
        self.0.lock().unwrap().remove(uid);
        Ok(())
    }
}
