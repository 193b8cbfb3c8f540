//! Pods from their creation to their removal, with a node's own certificate.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::RealApi;
use crate::in_memory::InMemory;

mod agent;
mod cut;
mod restarts;
mod shutdown;

use agent::{Agent, Onlooker};
pub(crate) use agent::{LONG, phase_of, until};

/// A node with an agent, in a namespace of the same name.
struct World {
    api: &'static RealApi,
    node: &'static str,
    memory: InMemory,
    onlooker: Onlooker,
    agent: Agent,
    _spool: tempfile::TempDir,
}

impl World {
    async fn new(node: &'static str) -> Option<Self> {
        let api = RealApi::get().await?;
        api.namespace(node).await;
        let (memory, spool) = (InMemory::default(), tempfile::tempdir().unwrap());
        let client = api.node(node).await.client();
        let agent = Agent::start(client, node, &memory, spool.path());
        let onlooker = Onlooker::new(api, node, node).await;
        Some(Self { api, node, memory, onlooker, agent, _spool: spool })
    }

    async fn runs(&self, name: &str) -> Pod {
        self.api.pod(self.node, name, self.node).await;
        self.onlooker.until_phase(name, "Running").await
    }

    async fn end(self) {
        until("nothing is left to say", async || self.agent.outbox.stats().unacknowledged == 0)
            .await;
        until("nothing is left on disk", async || self.agent.outbox.stats().spool.files == 0).await;
        assert!(self.memory.created().iter().all(|&times| times == 1));
        self.agent.kill().await;
        self.api.remove(self.node, self.node).await;
    }
}

fn with_grace(seconds: u32) -> DeleteParams {
    DeleteParams::default().grace_period(seconds)
}

#[tokio::test]
async fn a_pod_runs_takes_a_label_and_goes_as_soon_as_it_has_ended() {
    let Some(world) = World::new("pods-life").await else { return };
    let pod = world.runs("web").await;
    let status = pod.status.unwrap();
    assert!(status.container_statuses.unwrap()[0].state.as_ref().unwrap().running.is_some());

    let label = Patch::Merge(json!({"metadata": {"labels": {"by": "somebody"}}}));
    world.onlooker.pods.patch("web", &PatchParams::default(), &label).await.unwrap();
    let has_label = async || {
        let labels = world.memory.pod("web").unwrap().metadata.labels.clone();
        labels.is_some_and(|labels| labels.get("by").is_some_and(|by| by == "somebody"))
    };
    until("the node has the label", has_label).await;

    let began = Instant::now();
    world.onlooker.pods.delete("web", &with_grace(600)).await.unwrap();
    let last = world.onlooker.gone("web").await;
    assert!(began.elapsed() < Duration::from_secs(300), "not after its grace");
    has_final_status(&last);
    let graces = world.memory.graces("web");
    assert!(matches!(graces[..], [one] if one.as_secs().abs_diff(600) < 120), "{graces:?}");
    until("the node forgets it", async || world.memory.pods().is_empty()).await;
    world.end().await;
}

#[tokio::test]
async fn an_evicted_pod_ends_with_the_servers_reason_in_its_last_status() {
    let Some(world) = World::new("pods-evicted").await else { return };
    world.runs("web").await;
    let params = EvictParams { delete_options: Some(with_grace(600)), ..EvictParams::default() };
    world.onlooker.pods.evict("web", &params).await.unwrap();
    let last = world.onlooker.gone("web").await;
    has_final_status(&last);
    let conditions = last.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("EvictionByEvictionAPI"));
    world.end().await;
}

#[tokio::test]
async fn a_pod_that_is_removed_by_force_ends_and_one_of_its_name_is_another() {
    let Some(world) = World::new("pods-forced").await else { return };
    let first = world.runs("web").await;
    world.onlooker.pods.delete("web", &with_grace(0)).await.unwrap();
    let second = world.runs("web").await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    until("the first has ended", async || world.memory.pods().len() == 1).await;
    let left = world.memory.pod("web").unwrap();
    assert_eq!(Some(left.uid().as_str()), second.metadata.uid.as_deref());
    assert!(world.memory.runtime.runs(left.uid()));
    assert_eq!(world.memory.created(), [1, 1]);
    world.end().await;
}

/// Throughput only: nothing is asserted about the figures, which other work on the machine decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_pods_come_run_and_go() {
    const PODS: usize = 200;
    let Some(world) = World::new("pods-many").await else { return };
    let began = Instant::now();
    let names: Vec<_> = (0..PODS).map(|n| format!("web-{n}")).collect();
    for name in &names {
        world.api.pod(world.node, name, world.node).await;
    }
    let made = began.elapsed();
    world.onlooker.until_phases("Running", PODS).await;
    let running = began.elapsed();
    for name in &names {
        world.onlooker.pods.delete(name, &with_grace(600)).await.unwrap();
    }
    for name in &names {
        has_final_status(&world.onlooker.gone(name).await);
    }
    let gone = began.elapsed();
    println!("{PODS} pods: made in {made:?}, all Running at {running:?}, all gone at {gone:?}");
    until("the node forgets them", async || world.memory.pods().is_empty()).await;
    world.end().await;
}

/// The object was removed after its status had said how the pod ended.
fn has_final_status(last: &Pod) {
    assert_eq!(phase_of(last), "Succeeded", "{last:?}");
    let containers = last.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    assert!(containers[0].state.as_ref().unwrap().terminated.is_some(), "{last:?}");
}
