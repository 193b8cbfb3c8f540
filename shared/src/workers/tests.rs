//! Tests of the pod workers on a paused clock.

mod kill;
mod lifecycle;
mod random;
mod schedules;
mod static_pods;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{PodWorkers, WorkerTimes};
use crate::fake::{FakeRecorder, FakeSyncer};
use crate::{KillReason, KillRequest, Pod, PodUid};

struct Bench {
    workers: PodWorkers<FakeSyncer>,
    syncer: FakeSyncer,
    events: FakeRecorder,
}

fn bench() -> Bench {
    let syncer = FakeSyncer::default();
    let events = FakeRecorder::default();
    let workers = PodWorkers::new(syncer.clone(), Arc::new(events.clone()), WorkerTimes::default());
    Bench { workers, syncer, events }
}

fn pod(uid: &str) -> Pod {
    pod_with(uid, uid, |_| {})
}

fn pod_with(uid: &str, name: &str, change: impl FnOnce(&mut api::Pod)) -> Pod {
    let mut object = api::Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: vec![api::Container { name: "main".into(), ..api::Container::default() }],
            termination_grace_period_seconds: Some(30),
            ..api::PodSpec::default()
        }),
        status: None,
    };
    change(&mut object);
    Pod::new(object).unwrap()
}

fn static_pod(uid: &str, name: &str) -> Pod {
    pod_with(uid, name, |p| {
        let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
        p.metadata.annotations = Some([source].into());
    })
}

fn uid(text: &str) -> PodUid {
    PodUid::new(text)
}

fn request() -> KillRequest {
    KillRequest::new(KillReason::Operator)
}

fn with_grace(seconds: u64) -> KillRequest {
    KillRequest { grace: Some(Duration::from_secs(seconds)), ..request() }
}

/// Lets every task run until all wait for time to pass.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
