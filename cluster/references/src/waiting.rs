//! Pods that wait for an object, which is watched by name while a pod waits for it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1 as api;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use winddown_shared::{Mutex, PodUid, PodUidMap, error_chain};

use super::object::{ObjectKey, ObjectKind};
use winddown_api_client::{WatchBackoff, list_and_watch};

const ARRIVALS_CAPACITY: usize = 256;

/// The most objects that are watched. A watch may take a connection of its own, and pods that wait are bounded by nothing on
/// this node: one beyond these is retried all the same, as often as any other.
const MOST_WATCHED: usize = 256;

/// Knows which pods wait for which objects. Clones share one state.
#[derive(Clone)]
pub(crate) struct Waiting {
    client: Client,
    state: Arc<Mutex<WaitingState>>,
    arrived: mpsc::Sender<PodUid>,
}

#[derive(Debug, Default)]
struct WaitingState {
    watched: HashMap<ObjectKey, WatchedObjects>,
    of_pod: PodUidMap<ObjectKey>,
}

#[derive(Debug)]
struct WatchedObjects {
    /// The waiting pods, each with the version that it could not use.
    pods: PodUidMap<Option<Arc<str>>>,
    /// The version that the watch saw last; `None` if there was no object.
    seen: Option<Arc<str>>,
    watch: AbortHandle,
}

enum SeenObject {
    There(Arc<str>),
    Gone,
}

// === impl Waiting ===

impl Waiting {
    /// Creates an instance without pods. The receiver gets the pods whose objects have appeared.
    pub(crate) fn new(client: Client) -> (Self, mpsc::Receiver<PodUid>) {
        let (arrived, arrivals) = mpsc::channel(ARRIVALS_CAPACITY);
        (Self { client, state: Arc::default(), arrived }, arrivals)
    }

    /// Makes `uid` wait for `key` to exist in another version than `version`, and for nothing else.
    pub(crate) fn wait(&self, uid: &PodUid, key: ObjectKey, version: Option<Arc<str>>) {
        let mut state = self.state.lock();
        if state.of_pod.get(uid) != Some(&key) {
            state.stop(uid);
        }
        if state.watched.len() >= MOST_WATCHED && !state.watched.contains_key(&key) {
            return;
        }
        let watched = state.watched.entry(key.clone()).or_insert_with(|| WatchedObjects {
            pods: PodUidMap::default(),
            seen: None,
            watch: tokio::spawn(self.clone().watch(key.clone())).abort_handle(),
        });
        let is_there = watched.seen.is_some() && watched.seen != version;
        watched.pods.insert(uid.clone(), version);
        state.of_pod.insert(uid.clone(), key);
        drop(state);
        if is_there {
            // The watch has reported this version already and will not do so again. If the channel
            // is full, the pod still tries again by itself.
            let _ = self.arrived.try_send(uid.clone());
        }
    }

    pub(crate) fn stop(&self, uid: &PodUid) {
        self.state.lock().stop(uid);
    }

    pub(crate) fn stop_all(&self) {
        let mut state = self.state.lock();
        state.of_pod.clear();
        state.watched.drain().for_each(|(_, watched)| watched.watch.abort());
    }

    /// How many objects are watched now.
    pub(crate) fn watched(&self) -> usize {
        self.state.lock().watched.len()
    }

    async fn watch(self, key: ObjectKey) {
        match key.kind {
            ObjectKind::ConfigMap => self.follow::<api::ConfigMap>(key).await,
            ObjectKind::Secret => self.follow::<api::Secret>(key).await,
        }
    }

    /// Follows the object's metadata only; its content is read when it is needed.
    async fn follow<K>(self, key: ObjectKey)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Send
            + 'static,
    {
        let objects = Api::<PartialObjectMeta<K>>::namespaced(self.client.clone(), &key.namespace);
        let config = Config::default().fields(&format!("metadata.name={}", key.name));
        let mut events = list_and_watch(objects, config);
        let (mut is_listed, mut backoff) = (false, WatchBackoff::EAGER);
        while let Some(event) = events.next().await {
            if let Ok(event) = &event {
                backoff.took(event);
            }
            let seen = match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    is_listed = true;
                    SeenObject::There(object.metadata.resource_version.unwrap_or_default().into())
                }
                Ok(Event::Init) => {
                    is_listed = false;
                    continue;
                }
                Ok(Event::InitDone) if is_listed => continue,
                Ok(Event::InitDone | Event::Delete(_)) => SeenObject::Gone,
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), object = %key, "waiting for an object");
                    sleep(backoff.after_failure(&error)).await;
                    continue;
                }
            };
            for uid in self.note(&key, seen) {
                if self.arrived.send(uid).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Records what was seen, and returns the pods that can be tried again.
    fn note(&self, key: &ObjectKey, seen: SeenObject) -> Vec<PodUid> {
        let mut state = self.state.lock();
        let Some(watched) = state.watched.get_mut(key) else { return Vec::new() };
        let SeenObject::There(version) = seen else {
            watched.seen = None;
            return Vec::new();
        };
        let can_go = |unfit: &Option<Arc<str>>| unfit.as_ref() != Some(&version);
        let pods = watched.pods.iter().filter(|(_, unfit)| can_go(unfit));
        let pods = pods.map(|(uid, _)| uid.clone()).collect();
        watched.seen = Some(version);
        pods
    }
}

// === impl WaitingState ===

impl WaitingState {
    fn stop(&mut self, uid: &PodUid) {
        let Some(key) = self.of_pod.remove(uid) else { return };
        let Some(watched) = self.watched.get_mut(&key) else { return };
        watched.pods.remove(uid);
        if watched.pods.is_empty() {
            watched.watch.abort();
            self.watched.remove(&key);
        }
    }
}
