//! Reads from the API what pods refer to: single objects by name, services by namespace.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::{Api, Client};
use winddown_shared::Pod;

use super::object::{FoundObject, Object, ObjectKey, ObjectKind};
use super::problem::ReferenceProblem;
use super::services;
use super::singleflight::SingleFlight;
use winddown_api_client::node_pods::{KubePods, PodApi as _, RefusedRequest};
use winddown_api_client::refusal::{self, Refusal};
use winddown_api_client::{list_in_pages, within};

/// How many objects of one pod are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// The most bytes of the objects of one pod that are in memory at once: a pod may name ten thousand of 1 MiB, and shows at
/// most 96 MiB of them.
const MOST_BYTES_OF_OBJECTS: usize = 128 << 20;

/// Reads objects and services. Concurrent reads of the same thing share one request.
pub(crate) struct Reader {
    client: Client,
    /// The timeout of one request.
    limit: Duration,
    /// The most bytes of the objects of one pod.
    most_bytes: usize,
    /// The maximum age of the `kubernetes` service, which every pod gets variables of.
    master_age: Duration,
    objects: SingleFlight<ObjectKey, FoundObject>,
    services: SingleFlight<Arc<str>, Result<Arc<Vec<api::Service>>, Unread>>,
    master: SingleFlight<(), Result<Option<Arc<api::Service>>, Unread>>,
}

/// Why a read failed.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) error: Arc<str>,
    pub(crate) after: Option<Duration>,
    pub(crate) is_missing: bool,
}

// === impl Reader ===

impl Reader {
    pub(crate) fn new(client: Client, limit: Duration, keep: Duration) -> Self {
        Self {
            client,
            limit,
            most_bytes: MOST_BYTES_OF_OBJECTS,
            master_age: keep / 2,
            objects: SingleFlight::new(keep),
            services: SingleFlight::new(keep),
            master: SingleFlight::new(keep),
        }
    }

    /// Reads the objects of a pod, each at most `max_age` old; zero always asks the API server. Once they take more than a
    /// pod may have in memory, no further one is read.
    pub(crate) async fn objects(
        &self,
        keys: BTreeSet<ObjectKey>,
        max_age: Duration,
    ) -> HashMap<ObjectKey, FoundObject> {
        let taken = &AtomicUsize::new(0);
        let one = |key: ObjectKey| async move {
            if taken.load(Ordering::Relaxed) > self.most_bytes {
                let most = self.most_bytes >> 20;
                let error = format!(
                    "the objects that the pod names take more than {most} MiB: name fewer or smaller ones"
                );
                return (key, FoundObject::Unreadable { error: error.into(), after: None });
            }
            let found = self.object(&key, max_age).await;
            if let FoundObject::There(object) = &found {
                taken.fetch_add(object.bytes(), Ordering::Relaxed);
            }
            (key, found)
        };
        futures_util::stream::iter(keys)
            .map(one)
            .buffer_unordered(MAX_CONCURRENT_READS)
            .collect()
            .await
    }

    async fn object(&self, key: &ObjectKey, max_age: Duration) -> FoundObject {
        if !key.can_exist() {
            return FoundObject::Missing;
        }
        let (client, limit) = (self.client.clone(), self.limit);
        let wanted = key.clone();
        let ask = || async move {
            let ObjectKey { kind, namespace, name } = &wanted;
            let got = match kind {
                ObjectKind::ConfigMap => {
                    let all = Api::<api::ConfigMap>::namespaced(client, namespace);
                    bounded(limit, all.get(name)).await.map(Object::from)
                }
                ObjectKind::Secret => {
                    let all = Api::<api::Secret>::namespaced(client, namespace);
                    bounded(limit, all.get(name)).await.map(Object::from)
                }
            };
            match got {
                Ok(object) => FoundObject::There(Arc::new(object)),
                Err(unread) if unread.is_missing => FoundObject::Missing,
                Err(Unread { error, after, .. }) => FoundObject::Unreadable { error, after },
            }
        };
        let kept_bytes = |found: &FoundObject| match found {
            FoundObject::There(object) => Some(object.bytes()),
            FoundObject::Missing | FoundObject::Unreadable { .. } => None,
        };
        self.objects.get(key, max_age, kept_bytes, ask).await.unwrap_or_else(|| {
            FoundObject::Unreadable { error: Arc::from("the agent is stopping"), after: None }
        })
    }

    /// Reads the pod from the API; `None` if it no longer exists.
    pub(crate) async fn pod(&self, pod: &Pod) -> Result<Option<Pod>, Unread> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let pods = KubePods::new(self.client.clone(), node);
        match RefusedRequest::within(self.limit, "read the pod", pods.get(pod.pod_ref())).await {
            Ok(found) => {
                let found = found.and_then(|object| Pod::new(object).ok());
                Ok(found.filter(|found| found.uid() == pod.uid()))
            }
            Err(refused) => Err(Unread {
                error: refusal::chain(&refused).into(),
                after: refused.refusal.retry_after(),
                is_missing: false,
            }),
        }
    }

    /// The container runtime's name for the runtime class, its handler; `None` without a class.
    ///
    /// # Errors
    /// When the class does not exist or cannot be read.
    pub(crate) async fn runtime_handler(
        &self,
        class: Option<&str>,
    ) -> Result<Option<String>, ReferenceProblem> {
        let Some(class) = class.filter(|class| !class.is_empty()) else { return Ok(None) };
        let all = Api::<RuntimeClass>::all(self.client.clone());
        match bounded(self.limit, all.get(class)).await {
            Ok(found) => Ok(Some(found.handler)),
            // The class may still be created.
            Err(unread) if unread.is_missing => Err(ReferenceProblem::Unreadable {
                message: format!("RuntimeClass \"{class}\" not found"),
                after: None,
            }),
            Err(unread) => Err(ReferenceProblem::Unreadable {
                message: format!("cannot read RuntimeClass {class}: {}", unread.error),
                after: unread.after,
            }),
        }
    }

    /// The variables of services that the pod gets: of all in its namespace at the time of the
    /// call, because a pod must not miss a service that existed before it.
    pub(crate) async fn service_variables(
        &self,
        pod: &Pod,
    ) -> Result<Vec<(String, String)>, ReferenceProblem> {
        let wants = pod.spec.as_ref().and_then(|s| s.enable_service_links) != Some(false);
        let own = async {
            if wants { self.services_of(pod.namespace()).await } else { Ok(Arc::default()) }
        };
        let (own, master) = tokio::join!(own, self.master());
        let unread = |unread: Unread| ReferenceProblem::Unreadable {
            message: format!("cannot read services: {}", unread.error),
            after: unread.after,
        };
        let (own, master) = (own.map_err(unread)?, master.map_err(unread)?);
        Ok(services::variables(&own, master.as_deref(), wants))
    }

    async fn services_of(&self, namespace: &Arc<str>) -> Result<Arc<Vec<api::Service>>, Unread> {
        let all = Api::<api::Service>::namespaced(self.client.clone(), namespace);
        let limit = self.limit;
        let ask = || async move {
            let listed = bounded(limit, list_in_pages(&all, ListParams::default())).await?;
            Ok(Arc::new(listed))
        };
        // Each pod asks for its own: nobody would find a kept one.
        let got = self.services.get(namespace, Duration::ZERO, |_| None, ask).await;
        got.unwrap_or_else(|| Err(Unread::ending()))
    }

    async fn master(&self) -> Result<Option<Arc<api::Service>>, Unread> {
        let all = Api::<api::Service>::namespaced(self.client.clone(), services::MASTER_NAMESPACE);
        let limit = self.limit;
        let ask = || async move {
            match bounded(limit, all.get(services::MASTER)).await {
                Ok(service) => Ok(Some(Arc::new(service))),
                Err(unread) if unread.is_missing => Ok(None),
                Err(unread) => Err(unread),
            }
        };
        let got = self.master.get(&(), self.master_age, |a| a.is_ok().then_some(0), ask).await;
        got.unwrap_or_else(|| Err(Unread::ending()))
    }
}

/// Waits for the request's answer for at most `limit`.
pub(crate) async fn bounded<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Unread> {
    let error = match within(limit, request).await.flatten() {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let means = Refusal::of(&error);
    Err(Unread {
        error: refusal::text(&error).into(),
        after: means.retry_after(),
        is_missing: means == Refusal::NotFound,
    })
}

// === impl Unread ===

impl Unread {
    fn ending() -> Self {
        Self { error: Arc::from("the agent is stopping"), after: None, is_missing: false }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_apiserver::ApiServer;

    use super::*;

    #[tokio::test]
    async fn of_a_pod_that_names_thousands_of_objects_no_more_are_read_than_fit_into_memory() {
        let server = ApiServer::in_memory().unwrap();
        let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
        for name in &names {
            let metadata = json!({"name": name, "namespace": "shop"});
            let data = json!({"k": "x".repeat(1 << 10)});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            server.apply(map).unwrap();
        }
        let client = Client::new(server.service(), "default");
        let mut reader = Reader::new(client, Duration::from_secs(5), Duration::from_secs(1));
        let key = |name: &String| ObjectKey::new(ObjectKind::ConfigMap, &Arc::from("shop"), name);
        let keys: BTreeSet<ObjectKey> = names.iter().map(key).collect();
        let all = reader.objects(keys.clone(), Duration::ZERO).await;
        assert!(all.values().all(|found| matches!(found, FoundObject::There(_))));
        server.forget_requests();
        reader.most_bytes = 20 << 10;
        let found = reader.objects(keys, Duration::ZERO).await;
        let read = server.count("get", "configmaps");
        assert!((20..=20 + MAX_CONCURRENT_READS).contains(&read), "{read}");
        let refused = found.values().find_map(|one| match one {
            FoundObject::Unreadable { error, .. } => Some(error),
            FoundObject::There(_) | FoundObject::Missing => None,
        });
        assert!(refused.unwrap().contains("name fewer or smaller ones"));
    }

    #[tokio::test]
    async fn a_name_that_no_object_can_have_is_not_asked_for() {
        let mut nowhere = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        nowhere.root_cert = Some(Vec::new());
        let client = Client::try_from(nowhere).unwrap();
        let reader = Reader::new(client, Duration::from_secs(5), Duration::from_secs(1));
        let look = async |name: &str| {
            let key = ObjectKey::new(ObjectKind::Secret, &Arc::from("shop"), name);
            reader.object(&key, Duration::ZERO).await
        };
        for name in ["x/../../../bank/secrets/key", "%2e%2e", "x?y", "x#y", "..", ".", "", "X"] {
            let found = look(name).await;
            assert!(matches!(found, FoundObject::Missing), "{name:?}: {found:?}");
        }
        let found = look("tls.v2-0").await;
        assert!(matches!(found, FoundObject::Unreadable { .. }), "{found:?}");
    }
}
