//! Refreshes the volumes of running pods. Sleeps while no pod has a volume that can change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::PodUid;

use super::object::{FoundObject, ObjectKey};
use super::problem::ReferenceProblem;
use super::shared::ResolverShared;
use super::{mounting, needs};
use winddown_shared::fraction;

/// How many pods are refreshed concurrently.
const MAX_CONCURRENT_REFRESHES: usize = 4;
/// The shortest delay before a failed refresh is retried. The longest is twice that.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Refreshes volumes when they are due: reads their objects again, renews their tokens, and writes
/// what has changed.
pub struct Freshener(Arc<ResolverShared>);

impl Freshener {
    pub(super) fn new(inner: Arc<ResolverShared>) -> Self {
        Self(inner)
    }

    /// Runs until `cancel`. Volumes keep their content after that.
    pub async fn run(self, cancel: CancellationToken) {
        let _ = cancel.run_until_cancelled(self.keep_fresh()).await;
    }

    async fn keep_fresh(&self) {
        loop {
            let next = self.0.lock().timetable.next();
            match next {
                None => self.0.changed.notified().await,
                Some(at) => tokio::select! {
                    () = sleep_until(at) => self.look().await,
                    () = self.0.changed.notified() => {}
                },
            }
        }
    }

    async fn look(&self) {
        let due = self.0.lock().timetable.take_due(Instant::now());
        let looks = futures_util::stream::iter(due);
        looks.for_each_concurrent(MAX_CONCURRENT_REFRESHES, |uid| self.look_at(uid)).await;
    }

    async fn look_at(&self, uid: PodUid) {
        let inner = &self.0;
        let pod = match inner.pod(&uid).await {
            Ok(Some(pod)) => pod,
            Ok(None) => return,
            Err(unread) => {
                inner.note_outage(Some(&unread.error));
                return self.again_soon(&uid);
            }
        };
        // Pods that share an object share one read of it.
        let objects = inner.reader.objects(needs::of_volumes(&pod), inner.config.max_age / 2).await;
        let Some((volume_lock, tokens)) = inner.volume_lock(&uid) else { return };
        let (tokens, lacking) = mounting::tokens(&inner.client, &inner.config, &pod, tokens).await;
        inner.keep_tokens(&uid, &tokens);
        let trouble = trouble(&objects, lacking.as_ref());
        // The Node authorizer forbids what only a pod that is gone refers to. Its volumes go with its end.
        if trouble.is_some() && matches!(inner.reader.pod(&pod).await, Ok(None)) {
            return;
        }
        let planned = mounting::plan(inner.node(), &inner.places, &pod, &objects, &tokens);
        let mut volumes = Vec::with_capacity(planned.len());
        for one in planned {
            match one {
                Ok(making) => volumes.push(making),
                Err((volume, problem)) => {
                    tracing::debug!(pod = %pod.pod_ref(), %volume, ?problem, "a volume stays as it is");
                }
            }
        }
        let now = inner.wall.now();
        let written = mounting::write(&inner.places, &pod, &volume_lock, volumes, now).await;
        if let Err(problem) = &written {
            tracing::warn!(pod = %pod.pod_ref(), ?problem, "cannot refresh a volume");
        }
        inner.note_outage(trouble.as_deref());
        inner.look_again(&pod, &objects, &tokens);
        if lacking.is_some() || written.is_err() {
            self.again_soon(&uid);
        }
    }

    fn again_soon(&self, uid: &PodUid) {
        self.0.look_at(uid, Instant::now() + MIN_RETRY_DELAY.mul_f64(1.0 + fraction()));
    }
}

/// Why objects or tokens of a pod cannot be read, if that is so.
fn trouble(
    objects: &HashMap<ObjectKey, FoundObject>,
    lacking: Option<&ReferenceProblem>,
) -> Option<String> {
    let unread = objects.values().find_map(|found| match found {
        FoundObject::Unreadable { error, .. } => Some(error.to_string()),
        _ => None,
    });
    let refused = lacking.and_then(|problem| match problem {
        ReferenceProblem::Unreadable { message, .. } => Some(message.clone()),
        _ => None,
    });
    unread.or(refused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;
    use tokio::time::timeout;
    use winddown_apiserver::ApiServer;
    use winddown_cluster::events::{Events, NodeRef};
    use winddown_cluster::pods::Prepare as _;
    use winddown_shared::{BootClock, Pod, WallClock, WallTime};

    use super::*;
    use crate::{Resolver, ResolverConfig};

    #[tokio::test(start_paused = true)]
    async fn a_volume_that_cannot_be_written_is_written_soon_after_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        // Like a full disk, this prevents the directory from being made.
        std::fs::write(&disk, "").unwrap();
        let config = ResolverConfig::new(&disk, dir.path().join("memory"));
        let mut nowhere = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        nowhere.root_cert = Some(Vec::new());
        let client = kube::Client::try_from(nowhere).unwrap();
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let events = Events::unwritten(NodeRef::new("n1"), 10, wall.clone());
        let (resolver, freshener) = Resolver::new(client, config, events, wall);
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"containers": [], "volumes": [{"name": "info", "downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            ]}}]},
        });
        resolver.refresh(&Pod::new(serde_json::from_value(object).unwrap()).unwrap());
        let stop = CancellationToken::new();
        let frees = async {
            tokio::time::sleep(MIN_RETRY_DELAY / 2).await;
            std::fs::remove_file(&disk).unwrap();
            tokio::time::sleep(MIN_RETRY_DELAY * 3).await;
            stop.cancel();
        };
        tokio::join!(freshener.run(stop.clone()), frees);
        assert_eq!(std::fs::read_to_string(disk.join("u1/info/name")).unwrap(), "web");
    }

    /// Its token expired while the machine slept, of which tokio's clock knows nothing.
    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_soon_after_a_machine_that_was_suspended_wakes_up() {
        let server = ApiServer::in_memory().unwrap();
        server
            .apply(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": "shop"}}))
            .unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"nodeName": "n1", "containers": [], "volumes": [{"name": "token",
                "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]},
        });
        server.apply(object.clone()).unwrap();
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (began, asleep) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let slept = Arc::clone(&asleep);
        let boot_clock = BootClock::new(move || {
            began.elapsed() + Duration::from_secs(slept.load(Ordering::Relaxed))
        });
        let config = ResolverConfig {
            boot_clock,
            ..ResolverConfig::new(dir.path().join("disk"), dir.path().join("memory"))
        };
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let events = Events::unwritten(NodeRef::new("n1"), 10, wall.clone());
        let client = kube::Client::new(server.service(), "default");
        let (resolver, freshener) = Resolver::new(client, config, events, wall);
        resolver.prepare(&pod).await.unwrap();
        let asked = || server.count("create", "serviceaccounts/token");
        let stop = CancellationToken::new();
        let sleeps = async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(asked(), 1, "it is good for most of its hour");
            asleep.store(7200, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(100)).await;
            assert_eq!(asked(), 2);
            stop.cancel();
        };
        tokio::join!(freshener.run(stop.clone()), sleeps);
    }

    /// The Node authorizer forbids a node what no pod that is bound to it refers to, and pods that are not there.
    #[tokio::test(start_paused = true)]
    async fn what_is_forbidden_because_its_pod_is_gone_is_no_outage() {
        let hour = Duration::from_secs(3600);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"nodeName": "n1", "containers": [], "volumes": [
                {"name": "config", "configMap": {"name": "m"}},
            ]},
        });
        let pod = Pod::new(serde_json::from_value(object.clone()).unwrap()).unwrap();
        for restarts in [false, true] {
            let server = ApiServer::in_memory().unwrap();
            server.restrict_nodes(true);
            let node = server.new_identity("system:node:n1", &["system:nodes"], hour).unwrap();
            server.apply(object.clone()).unwrap();
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "m", "namespace": "shop"}, "data": {"k": "1"}});
            server.apply(map).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let agent = || {
                let client = kube::Client::new(server.service_of(&node), "default");
                let config =
                    ResolverConfig::new(dir.path().join("disk"), dir.path().join("memory"));
                let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
                let events = Events::unwritten(NodeRef::new("n1"), 10, wall.clone());
                Resolver::new(client, config, events, wall)
            };
            let (mut resolver, mut freshener) = agent();
            let given = resolver.prepare(&pod).await.unwrap();
            server.remove("pods/shop/web");
            if restarts {
                (resolver, freshener) = agent();
                resolver.adopt(&given);
            }
            let shared = Arc::clone(&freshener.0);
            let _ = timeout(hour, freshener.run(CancellationToken::new())).await;
            assert!(!shared.is_out.load(Ordering::Relaxed), "{restarts}");
            assert_eq!(resolver.counts().kept_fresh, 0, "{restarts}");
            assert!(dir.path().join("disk/u1/config/k").exists(), "the pod may still run");
        }
    }
}
