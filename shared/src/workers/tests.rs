//! Tests of the pod workers on a paused clock.

mod kill;
mod lifecycle;
mod random;
mod schedules;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use super::PodWorkers;
use crate::testing::{FakeRecorder, FakeSyncer, pod, pod_with, static_pod};
use crate::{KillReason, KillRequest, PodUid};

struct Bench {
    workers: PodWorkers<FakeSyncer>,
    syncer: FakeSyncer,
    events: FakeRecorder,
}

fn bench() -> Bench {
    let syncer = FakeSyncer::default();
    let events = FakeRecorder::default();
    let workers = PodWorkers::new(syncer.clone(), Arc::new(events.clone()));
    Bench { workers, syncer, events }
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

/// The number of random tries: all of them in the long form, `make test-all`, and a twentieth
/// otherwise.
fn tries(all: u32) -> u32 {
    if std::env::var_os("WINDDOWN_LONG").is_some() { all } else { all / 20 }
}

/// Lets every task run until all of them wait for time to pass.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
