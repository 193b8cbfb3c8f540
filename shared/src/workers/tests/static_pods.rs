use std::collections::HashSet;
use std::time::Duration;

use super::{bench, pod_with, request, settle, static_pod, uid};
use crate::fake::Script;
use crate::{Lifecycle, PodKiller, UpdateKind};

#[tokio::test(start_paused = true)]
async fn an_edited_static_pod_starts_only_when_the_old_one_is_finished() {
    let b = bench();
    let slow = Script { stop_takes: Duration::from_secs(5), ..Script::default() };
    b.syncer.script(&uid("v1"), slow);
    b.workers.update(UpdateKind::Create, static_pod("v1", "web"), None);
    settle().await;
    b.workers.request_kill(static_pod("v1", "web"), &request());
    b.workers.update(UpdateKind::Create, static_pod("v2", "web"), None);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(b.workers.lifecycle(&uid("v2")), Some(Lifecycle::Waiting));
    assert!(b.workers.is_static_pod_terminating(&"web_default".into()));
    tokio::time::sleep(Duration::from_millis(1010)).await;
    assert_eq!(b.workers.lifecycle(&uid("v2")), Some(Lifecycle::Syncing));
}

#[tokio::test(start_paused = true)]
async fn waiting_static_pods_start_in_the_order_in_which_they_came() {
    let b = bench();
    for v in ["v1", "v2", "v3", "v4"] {
        b.workers.update(UpdateKind::Create, static_pod(v, "web"), None);
    }
    settle().await;
    // A pod that gives up while it waits is skipped.
    b.workers.kill_pod(static_pod("v2", "web"), request()).await.unwrap();
    b.workers.kill_pod(static_pod("v1", "web"), request()).await.unwrap();
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("v3")), Some(Lifecycle::Syncing));
    assert_eq!(b.workers.lifecycle(&uid("v4")), Some(Lifecycle::Waiting));
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_the_api_runs_beside_a_static_one_of_the_same_name() {
    let b = bench();
    b.workers.update(UpdateKind::Create, static_pod("s", "web"), None);
    b.workers.update(UpdateKind::Create, pod_with("api", "web", |_| {}), None);
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("s")), Some(Lifecycle::Syncing));
    assert_eq!(b.workers.lifecycle(&uid("api")), Some(Lifecycle::Syncing));
}

#[tokio::test(start_paused = true)]
async fn names_are_forgotten_with_their_last_pod() {
    let b = bench();
    for v in ["v1", "v2", "v3"] {
        b.workers.update(UpdateKind::Create, static_pod(v, "web"), None);
    }
    for _ in 0..6 {
        b.workers.sync_known_pods(&HashSet::new());
        settle().await;
    }
    let state = b.workers.inner.lock();
    assert!(state.records.is_empty());
    assert!(state.names.is_empty());
}
