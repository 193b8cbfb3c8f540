//! A provider that remembers what it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use winddown_cluster::provider::{
    ChangeSender, Changes, Notify, ProvidedPod, Provider, ProviderError, changes,
};
use winddown_shared::{Pod, PodUid};

/// How long a pod takes to end.
const ENDING: Duration = Duration::from_millis(30);

/// Pods that run until they are ended. It outlives the controllers that use it.
#[derive(Clone, Default)]
pub(crate) struct InMemory(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    pods: HashMap<PodUid, ProvidedPod>,
    /// The controller that listens now.
    listener: Option<ChangeSender>,
    created: HashMap<PodUid, usize>,
    /// Under which name, and with which grace.
    deleted: Vec<(String, Duration)>,
}

// === impl InMemory ===

impl InMemory {
    /// A pod by its name.
    pub(crate) fn pod(&self, name: &str) -> Option<ProvidedPod> {
        self.memory().pods.values().find(|one| one.pod.name().as_ref() == name).cloned()
    }

    /// How many pods it knows, also those that have ended.
    pub(crate) fn count(&self) -> usize {
        self.memory().pods.len()
    }

    /// How often each pod was created.
    pub(crate) fn created(&self) -> Vec<usize> {
        self.memory().created.values().copied().collect()
    }

    /// Whether it ever ran this pod.
    pub(crate) fn has_created(&self, uid: &PodUid) -> bool {
        self.memory().created.contains_key(uid)
    }

    /// The graces with which this pod was to end.
    pub(crate) fn graces(&self, name: &str) -> Vec<Duration> {
        let memory = self.memory();
        memory.deleted.iter().filter(|(one, _)| one == name).map(|(_, grace)| *grace).collect()
    }

    /// The pod ends by itself.
    pub(crate) fn exit(&self, name: &str, code: i32) {
        let uid = self.pod(name).unwrap().pod.uid().clone();
        self.end(&uid, ended(code));
    }

    /// The node ends the pod, because it goes down.
    pub(crate) fn end_by_the_node(&self, uid: &PodUid) {
        let mut status = Arc::unwrap_or_clone(ended(143));
        status.reason = Some("Terminated".to_owned());
        status.conditions.get_or_insert_default().push(api::PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("TerminationByKubelet".to_owned()),
            ..api::PodCondition::default()
        });
        self.end(uid, Arc::new(status));
    }

    fn end(&self, uid: &PodUid, status: Arc<api::PodStatus>) {
        let mut memory = self.memory();
        let Some(one) = memory.pods.get_mut(uid).filter(|one| !one.ended) else { return };
        (one.ended, one.status) = (true, status);
        memory.tell(uid);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap()
    }
}

impl Memory {
    fn tell(&self, uid: &PodUid) {
        if let Some(listener) = &self.listener {
            listener.changed(uid);
        }
    }
}

impl Provider for InMemory {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let mut memory = self.memory();
        *memory.created.entry(pod.uid().clone()).or_default() += 1;
        let status = status("Running", &json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}));
        let provided = ProvidedPod { pod: pod.clone(), status, ended: false };
        memory.pods.insert(pod.uid().clone(), provided);
        memory.tell(pod.uid());
        Ok(())
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let mut memory = self.memory();
        memory.pods.get_mut(pod.uid()).ok_or(ProviderError::NotFound)?.pod = pod.clone();
        Ok(())
    }

    async fn delete_pod(&self, pod: &Pod, grace: Duration) -> Result<(), ProviderError> {
        let mut memory = self.memory();
        memory.deleted.push((pod.name().to_string(), grace));
        if !memory.pods.contains_key(pod.uid()) {
            return Err(ProviderError::NotFound);
        }
        let (this, uid) = (self.clone(), pod.uid().clone());
        tokio::spawn(async move {
            tokio::time::sleep(ENDING).await;
            this.end(&uid, ended(0));
        });
        Ok(())
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        Ok(self.memory().pods.get(uid).cloned())
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        Ok(self.memory().pods.values().cloned().collect())
    }

    async fn forget_pod(&self, uid: &PodUid) {
        self.memory().pods.remove(uid);
    }
}

impl Notify for InMemory {
    fn notifications(&self) -> Changes {
        let (sender, changes) = changes();
        self.memory().listener = Some(sender);
        changes
    }
}

fn ended(code: i32) -> Arc<api::PodStatus> {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    status(phase, &json!({"terminated": {"exitCode": code}}))
}

fn status(phase: &str, state: &Value) -> Arc<api::PodStatus> {
    let up = phase == "Running";
    let status = json!({
        "phase": phase,
        "conditions": [{"type": "Ready", "status": if up { "True" } else { "False" }}],
        "containerStatuses": [{
            "name": "a", "image": "x", "imageID": "", "restartCount": 0,
            "ready": up, "started": up, "state": state,
        }],
    });
    Arc::new(serde_json::from_value(status).unwrap())
}
