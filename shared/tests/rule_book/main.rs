//! The kubelet's own tests of its pod workers and its housekeeping, applied to these workers: the same scenario, the
//! same guarantee. `README.md` lists the kubelet test that each one corresponds to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod active;
mod defects;
mod exclusion;
mod golden;
mod housekeeping;
mod kill;
mod known_pods;
mod node;
mod queries;
mod random;
mod retries;
mod table;
mod update;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use winddown_shared::testing::{
    FakeRecorder, FakeSyncer, Script, SyncStep, pod, pod_with, static_pod,
};
use winddown_shared::{KillReason, KillRequest, Pod, PodUid, PodWorkers, RuntimePod, UpdateKind};

/// Workers on a scripted syncer.
struct Bench {
    workers: PodWorkers<FakeSyncer>,
    syncer: FakeSyncer,
    events: FakeRecorder,
}

fn bench() -> Bench {
    let (syncer, events) = (FakeSyncer::default(), FakeRecorder::default());
    let recorder = Arc::new(events.clone());
    let workers = PodWorkers::new(syncer.clone(), recorder);
    Bench { workers, syncer, events }
}

impl Bench {
    fn create(&self, pod: &Pod) {
        self.workers.update(UpdateKind::Create, pod.clone(), None);
    }

    fn update(&self, pod: &Pod) {
        self.workers.update(UpdateKind::Update, pod.clone(), None);
    }

    fn kill(&self, pod: &Pod) {
        self.workers.request_kill(pod.clone(), &request());
    }

    fn script(&self, pod: &Pod, script: Script) {
        self.syncer.script(pod.uid(), script);
    }

    fn steps(&self, pod: &Pod) -> Vec<SyncStep> {
        self.syncer.steps(pod.uid())
    }
}

fn in_phase(uid: &str, phase: &str) -> Pod {
    pod_with(uid, uid, |p| {
        p.status = Some(api::PodStatus { phase: Some(phase.into()), ..api::PodStatus::default() });
    })
}

/// A pod that was deleted with a grace period.
fn deleted(uid: &str, grace: i64) -> Pod {
    pod_with(uid, uid, |p| {
        p.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
        p.metadata.deletion_grace_period_seconds = Some(grace);
    })
}

/// What the runtime lists for a pod.
fn in_runtime(pod: &Pod) -> RuntimePod {
    let mut listed = RuntimePod::of(pod, true);
    listed.grace = Some(secs(1));
    listed
}

fn uid(text: &str) -> PodUid {
    PodUid::new(text)
}

fn uids(pods: &[&Pod]) -> HashSet<PodUid> {
    pods.iter().map(|p| p.uid().clone()).collect()
}

fn request() -> KillRequest {
    KillRequest::new(KillReason::Preemption)
}

fn with_grace(seconds: u64) -> KillRequest {
    request().with_grace(Some(secs(seconds)))
}

fn evict() -> KillRequest {
    KillRequest::new(KillReason::Eviction).with_evict(true)
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A stop with this grace.
fn stop(grace: u64) -> SyncStep {
    SyncStep::Terminate { grace: Some(secs(grace)), status: None }
}

fn sync(kind: UpdateKind) -> SyncStep {
    SyncStep::Sync(kind)
}

/// Lets every task run until all of them wait for time to pass.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
