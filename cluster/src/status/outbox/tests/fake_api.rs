//! An API server that keeps pods and fails on request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use winddown_shared::{Pod, PodLabel};

use crate::status::outbox::attempt::{PodStatusApi, SendFault};
use crate::status::patch::apply::apply;

#[derive(Clone, Debug, Default)]
pub(super) struct FakeApi(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    pods: HashMap<String, Pod>,
    version: u64,
    /// What the next requests are answered with.
    faults: VecDeque<SendFault>,
    /// Nothing is answered.
    down: bool,
    /// How long every request takes.
    takes: Duration,
    /// Fields that this server does not know.
    strips: Vec<&'static str>,
    at_once: usize,
    most_at_once: usize,
    gets: Vec<String>,
    patches: Vec<(Instant, String, Value)>,
    tries: Vec<Instant>,
}

impl FakeApi {
    pub(super) fn with(pods: &[&str]) -> Self {
        let api = Self::default();
        for name in pods {
            api.put(name, &json!({ "phase": "Pending" }));
        }
        api
    }

    /// Creates or replaces the pod, as another client would. Its UID is its name.
    pub(super) fn put(&self, name: &str, status: &Value) -> Pod {
        let mut inner = self.lock();
        inner.version += 1;
        let pod = super::pod(name, inner.version, status);
        inner.pods.insert(name.to_owned(), pod.clone());
        pod
    }

    /// Deletes the pod, and creates another one with its name.
    pub(super) fn replace(&self, name: &str) {
        let mut object = self.put(name, &json!({ "phase": "Pending" })).object().clone();
        object.metadata.uid = Some(format!("{name}-again"));
        self.lock().pods.insert(name.to_owned(), Pod::new(object).unwrap());
    }

    /// Goes back to an earlier state of the pod, and to the versions of then.
    pub(super) fn restore(&self, pod: &Pod) {
        let mut inner = self.lock();
        inner.version = pod.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        inner.pods.insert(pod.name().to_string(), pod.clone());
    }

    pub(super) fn remove(&self, name: &str) {
        self.lock().pods.remove(name);
    }

    pub(super) fn get_pod(&self, name: &str) -> Pod {
        self.lock().pods[name].clone()
    }

    pub(super) fn phase(&self, name: &str) -> String {
        let pod = self.get_pod(name);
        pod.status.as_ref().unwrap().phase.clone().unwrap()
    }

    pub(super) fn fail(&self, faults: impl IntoIterator<Item = SendFault>) {
        self.lock().faults.extend(faults);
    }

    pub(super) fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    pub(super) fn set_takes(&self, takes: Duration) {
        self.lock().takes = takes;
    }

    pub(super) fn strip(&self, field: &'static str) {
        self.lock().strips.push(field);
    }

    /// Names of the pods in the order in which they were patched.
    pub(super) fn patched(&self) -> Vec<String> {
        self.lock().patches.iter().map(|(_, name, _)| name.clone()).collect()
    }

    pub(super) fn patches(&self) -> Vec<(Instant, Value)> {
        self.lock().patches.iter().map(|(at, _, patch)| (*at, patch.clone())).collect()
    }

    pub(super) fn gets(&self) -> usize {
        self.lock().gets.len()
    }

    /// The times of all requests, including failed ones.
    pub(super) fn tries(&self) -> Vec<Instant> {
        self.lock().tries.clone()
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.lock().most_at_once
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    async fn request(&self) -> Result<(), SendFault> {
        let takes = {
            let mut inner = self.lock();
            inner.tries.push(Instant::now());
            inner.at_once += 1;
            inner.most_at_once = inner.most_at_once.max(inner.at_once);
            inner.takes
        };
        let _done = Done(self.clone());
        sleep(takes).await;
        let (fault, down) = {
            let mut inner = self.lock();
            (inner.faults.pop_front(), inner.down)
        };
        match fault {
            Some(fault) => Err(fault),
            None if down => {
                Err(SendFault::Later { after: None, error: "connection refused".to_owned() })
            }
            None => Ok(()),
        }
    }
}

/// Notes the end of a request, also of one that was dropped.
struct Done(FakeApi);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.lock().at_once -= 1;
    }
}

impl PodStatusApi for FakeApi {
    async fn get(&self, pod: &PodLabel) -> Result<Pod, SendFault> {
        self.request().await?;
        let mut inner = self.lock();
        inner.gets.push(pod.name.to_string());
        inner.pods.get(&*pod.name).cloned().ok_or(SendFault::Gone)
    }

    async fn patch(&self, pod: &PodLabel, patch: &Value) -> Result<Pod, SendFault> {
        self.request().await?;
        let mut inner = self.lock();
        let there = inner.pods.get(&*pod.name).cloned().ok_or(SendFault::Gone)?;
        if there.metadata.uid.as_deref() != patch["metadata"]["uid"].as_str() {
            return Err(SendFault::Stale);
        }
        inner.patches.push((Instant::now(), pod.name.to_string(), patch.clone()));
        let mut taken = patch.clone();
        for field in &inner.strips {
            taken["status"].as_object_mut().unwrap().remove(*field);
        }
        let mut object = apply(there.object(), &taken).unwrap();
        inner.version += 1;
        object.metadata.resource_version = Some(inner.version.to_string());
        let now = Pod::new(object).unwrap();
        inner.pods.insert(pod.name.to_string(), now.clone());
        Ok(now)
    }
}
