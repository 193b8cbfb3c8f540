//! A small kubelet: it says that its pods run, ends those that are deleted, and removes them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use winddown_companion::{
    ContainerStop, LocalContainers, LocalHolds, LocalHooks, LocalKubelet, NodeError,
    RuntimePodState,
};
use winddown_shared::{FoundPod, PodUid, PodUidMap, StoppedContainer, StoppedContainers};

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
    stage: Stage,
}

/// What the kubelet does one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Runs,
    /// With this exit code; the sandbox is there.
    Ended(i32),
    /// Of which the API server is told next.
    TakenDown(i32),
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
    let mirror = "kubernetes.io/config.mirror";
    let mirror = meta.annotations.as_ref().is_some_and(|all| all.contains_key(mirror));
    let status = |phase: &str, state: Value| {
        let ready = state.get("running").is_some();
        let condition = match ready {
            true => json!({"type": "Ready", "status": "True"}),
            false => json!({"type": "Ready", "status": "False", "reason": "PodCompleted"}),
        };
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
                "phase": phase, "containerStatuses": all,
                // An eviction asks no budget about a pod that is not ready.
                "conditions": [condition],
            },
        }))
    };
    let params = PatchParams::default();
    if containers.begin(&uid) {
        let running = status("Running", json!({"running": {"startedAt": "2030-01-01T00:00:00Z"}}));
        let _ = api.patch_status(&name, &params, &running).await;
    }
    if meta.deletion_timestamp.is_none() {
        return;
    }
    let now = DeleteParams::default().grace_period(0);
    if mirror {
        // Its containers are the manifest's.
        let _ = api.delete(&name, &now).await;

        let metadata = ObjectMeta {
            name: Some(name),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: meta.owner_references,
            ..ObjectMeta::default()
        };
        let again = Pod { metadata, spec: Some(spec), status: None };
        let _ = api.create(&PostParams::default(), &again).await;
        return;
    }
    let grace = meta.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
    let Some(exit_code) = containers.ends(&uid, Duration::from_secs(grace.unwrap_or(0)), takes)
    else {
        return;
    };
    let (phase, reason) =
        if exit_code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let ended = status(phase, json!({"terminated": {"exitCode": exit_code, "reason": reason}}));
    let _ = api.patch_status(&name, &params, &ended).await;
    let uid = Some(uid.as_str().to_owned());
    let only = Preconditions { uid, resource_version: None };
    let _ = api.delete(&name, &now.preconditions(only)).await;
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
        all.entry(uid.clone()).or_default();
        new
    }

    /// Goes on ending a pod: its exit code, once it has ended and its sandbox is taken down.
    fn ends(&self, uid: &PodUid, grace: Duration, takes: Duration) -> Option<i32> {
        let mut all = self.0.lock().unwrap();
        let now = Instant::now();
        let running = all.get_mut(uid)?;
        match running.stage {
            Stage::Runs => {}
            Stage::Ended(exit_code) => {
                running.stage = Stage::TakenDown(exit_code);
                return None;
            }
            Stage::TakenDown(exit_code) => return Some(exit_code),
        }
        let since = *running.since.get_or_insert(now);
        if running.grace.is_none_or(|(known, _)| grace < known) {
            running.grace = Some((grace, now + grace));
        }
        let killed = running.grace.is_some_and(|(_, at)| at <= now);
        let ended = since + takes <= now;
        if killed || ended {
            let exit_code = if ended { 0 } else { 137 };
            running.stage = Stage::Ended(exit_code);
            self.1.lock().unwrap().insert(uid.clone(), exit_code);
        }
        None
    }

    /// How many pods run.
    pub(crate) fn count(&self) -> usize {
        let all = self.0.lock().unwrap();
        all.values().filter(|running| running.stage == Stage::Runs).count()
    }
}

impl LocalContainers for Containers {
    async fn look(&self) -> Result<PodUidMap<RuntimePodState>, NodeError> {
        let all = self.0.lock().unwrap();
        let inside = |(uid, running): (&PodUid, &Running)| {
            let runs = running.stage == Stage::Runs;
            let has_sandbox = !matches!(running.stage, Stage::TakenDown(_));
            let running = runs.then(|| "a".to_owned()).into_iter().collect();
            (uid.clone(), RuntimePodState { running, has_sandbox })
        };
        Ok(all.iter().map(inside).collect())
    }

    async fn pods(&self) -> Result<Vec<FoundPod>, NodeError> {
        Err(NodeError::because("no container runtime is configured"))
    }

    fn ends(&self, _: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        Vec::new()
    }

    async fn exits(&self, uid: &PodUid) -> Result<Vec<StoppedContainer>, NodeError> {
        let exit_code = self.1.lock().unwrap().get(uid).copied();
        let ended = exit_code.map(|code| StoppedContainer::new("a", code, code == 137));
        Ok(ended.into_iter().collect())
    }

    async fn stop(&self, uid: &PodUid, _: &ContainerStop) -> Result<StoppedContainers, NodeError> {
        self.0
            .lock()
            .unwrap()
            .retain(|other, running| other != uid || running.stage != Stage::Runs);
        Ok(StoppedContainers { ran: true, ..StoppedContainers::default() })
    }
}

impl LocalHooks for Containers {
    async fn hooks_begin(&self, _: &PodUid) -> Result<(), NodeError> {
        Ok(())
    }

    async fn with_begun_hooks(&self) -> Result<Vec<PodUid>, NodeError> {
        Ok(Vec::new())
    }
}

impl LocalHolds for Containers {
    async fn take_down(&self, _: &PodUid) -> Result<(), NodeError> {
        Ok(())
    }

    async fn held(&self, _: &PodUid, _: bool) -> Result<Vec<String>, NodeError> {
        Ok(Vec::new())
    }

    async fn unused_volumes(&self) -> Result<Vec<String>, NodeError> {
        Ok(Vec::new())
    }
}

impl LocalKubelet for Containers {
    async fn is_kubelet_absent(&self) -> bool {
        false
    }

    async fn kubelet_ended(&self) {
        std::future::pending::<()>().await;
    }

    async fn is_kubelet_stopped(&self) -> bool {
        false
    }

    async fn stop_kubelet(&self) -> Result<(), NodeError> {
        Err(NodeError::because("its service is not known"))
    }

    async fn start_kubelet(&self) -> Result<(), NodeError> {
        Ok(())
    }
}
