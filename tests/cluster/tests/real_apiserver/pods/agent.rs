//! A controller on a node of its own, and an administrator who looks on.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use winddown_cluster::pods::{PodControllerConfig, RunError};
use winddown_cluster::status::{Outbox, OutboxConfig};

use crate::RealApi;
use crate::in_memory::InMemory;
use crate::server::wall;

pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A controller and its outbox.
pub(crate) struct Agent {
    pub(crate) outbox: Outbox,
    controller: JoinHandle<Result<(), RunError>>,
    sending: JoinHandle<()>,
    _stop: DropGuard,
}

/// The pods of one node as an administrator sees them.
pub(crate) struct Onlooker {
    pub(crate) pods: Api<Pod>,
    of_node: String,
    gone: Arc<Mutex<HashMap<String, Pod>>>,
    watching: JoinHandle<()>,
}

// === impl Agent ===

impl Agent {
    pub(crate) fn start(client: kube::Client, node: &str, memory: &InMemory, spool: &Path) -> Self {
        let statuses = OutboxConfig {
            directory: Some(spool.to_owned()),
            wall: wall(),
            ..OutboxConfig::default()
        };
        let (outbox, driver) = Outbox::new(&statuses);
        let stop = CancellationToken::new();
        let sending = tokio::spawn(driver.run(client.clone(), stop.clone()));
        let config = PodControllerConfig::new(node, wall());
        let controller = memory.controller(client, &outbox, config);
        let run = memory.run(controller, outbox.clone(), wall(), true, stop.clone());
        let controller = tokio::spawn(run);
        Self { outbox, controller, sending, _stop: stop.drop_guard() }
    }

    /// As a process that is killed.
    pub(crate) async fn kill(self) {
        self.controller.abort();
        self.sending.abort();
        let _ = tokio::join!(self.controller, self.sending);
    }
}

// === impl Onlooker ===

impl Onlooker {
    pub(crate) async fn new(api: &RealApi, namespace: &str, node: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(api.admin().await, namespace);
        let of_node = format!("spec.nodeName={node}");
        let listed = pods.list(&ListParams::default().fields(&of_node)).await.unwrap();
        let since = listed.metadata.resource_version.unwrap();
        let gone = Arc::<Mutex<HashMap<_, _>>>::default();
        let (seen, watched) = (gone.clone(), pods.clone());
        let params = WatchParams::default().fields(&of_node);
        let watching = tokio::spawn(async move {
            let mut events = watched.watch(&params, &since).await.unwrap().boxed();
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Deleted(pod) = event {
                    seen.lock().unwrap().insert(pod.metadata.name.clone().unwrap(), pod);
                }
            }
        });
        Self { pods, of_node, gone, watching }
    }

    /// Waits until the pod's object is gone: as it was last.
    pub(crate) async fn gone(&self, name: &str) -> Pod {
        let seen = || self.gone.lock().unwrap().get(name).cloned();
        until(&format!("{name} is gone"), async || seen().is_some()).await;
        seen().unwrap()
    }

    /// Waits until so many pods of the node are in this phase.
    pub(crate) async fn until_phases(&self, phase: &str, count: usize) {
        let params = ListParams::default().fields(&self.of_node);
        let so_many = async || {
            let pods = self.pods.list(&params).await.unwrap();
            pods.items.iter().filter(|pod| phase_of(pod) == phase).count() == count
        };
        until(&format!("{count} pods are {phase}"), so_many).await;
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Pod {
        let is = async || phase_of(&self.pods.get(name).await.unwrap()) == phase;
        until(&format!("{name} is {phase}"), is).await;
        self.pods.get(name).await.unwrap()
    }
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

pub(crate) fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let end = Instant::now() + LONG;
    while !is().await {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
