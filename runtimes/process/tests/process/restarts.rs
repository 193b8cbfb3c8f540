use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use winddown_shared::ContainerState;

use crate::bed::{Bed, exit_of, is_running, sh, stop, sync_until};

#[tokio::test]
async fn a_container_that_crashes_is_restarted_at_once_and_then_after_a_growing_back_off() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod("exit 1");
    let began = Instant::now();
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count == 3).await;
    // At once, then 300 ms, then 600 ms.
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(seen[0].last_exit.as_ref().unwrap().exit_code, 1);
    stop(&runtime, &pod, 1000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_container_in_back_off_says_so_and_keeps_its_last_exit() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.backoff.initial = Duration::from_secs(60);
    config.backoff.max = Duration::from_secs(60);
    let runtime = winddown_runtimes::process::ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod("exit 4");
    let in_back_off = |state: &ContainerState| matches!(state, ContainerState::Waiting { reason, .. } if &**reason == "CrashLoopBackOff");
    let seen = sync_until(&runtime, &pod, |c| in_back_off(&c[0].state)).await;
    assert_eq!(seen[0].last_exit.as_ref().unwrap().exit_code, 4);
    assert_eq!(seen[0].restart_count, 1);
    let stopped = stop(&runtime, &pod, 1000).await;
    assert_eq!((stopped.containers.len(), stopped.signalled_at), (0, None));
}

#[tokio::test]
async fn on_failure_restarts_a_failure_and_leaves_a_success() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mark = bed.path("mark").display().to_string();
    let pod = bed.pod_of(&json!({"restartPolicy": "OnFailure", "containers": [
        sh("main", &format!("if [ -e {mark} ]; then exit 0; fi; touch {mark}; exit 1"))]}));
    let seen =
        sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some_and(|e| e.exit_code == 0)).await;
    assert_eq!(seen[0].restart_count, 1);
    let again = winddown_shared::Runtime::sync_pod(&runtime, &pod).await.unwrap();
    assert_eq!((again.again_in, again.status.containers[0].restart_count), (None, 1));
}

#[tokio::test]
async fn a_sidecar_is_restarted_while_the_regular_container_runs() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mut sidecar = sh("side", "sleep 0.05; exit 0");
    sidecar["restartPolicy"] = json!("Always");
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "initContainers": [sidecar],
        "containers": [sh("main", "exec sleep 1000")]}));
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count >= 2).await;
    assert!(is_running(&seen[1]));
    stop(&runtime, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_init_container_that_fails_for_good_starts_nothing_else() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never",
        "initContainers": [sh("first", "exit 9")], "containers": [sh("main", "exec sleep 1000")]}));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 9);
    let again = winddown_shared::Runtime::sync_pod(&runtime, &pod).await.unwrap();
    assert!(!again.status.any_running() && again.again_in.is_none());
    bed.nothing_left().await;
}

#[tokio::test]
async fn only_the_last_two_attempts_of_a_container_keep_their_records_and_logs() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.backoff.initial = Duration::from_millis(10);
    config.backoff.max = Duration::from_millis(10);
    let runtime = winddown_runtimes::process::ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod("echo hi; exit 1");
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 5).await;
    stop(&runtime, &pod, 1000).await;
    let count = |dir: std::path::PathBuf| std::fs::read_dir(dir).map_or(0, Iterator::count);
    let records = bed.path("state/pods").join(pod.uid().as_str()).join("main");
    let logs = bed.path("logs").join(format!("default_web_{}", pod.uid())).join("main");
    crate::bed::eventually("two attempts left", || {
        count(records.clone()) <= 2 && count(logs.clone()) <= 2
    })
    .await;
}

#[tokio::test]
async fn a_container_that_was_asked_to_end_has_not_crashed_also_after_a_restart_of_the_agent() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.backoff.initial = Duration::from_secs(600);
    config.backoff.max = Duration::from_secs(600);
    let open = || winddown_runtimes::process::ProcessRuntime::open(config.clone());
    let pod = bed.pod("sleep 100");
    let runtime = open().await.unwrap();
    for attempt in 0..3 {
        let began = Instant::now();
        sync_until(&runtime, &pod, |c| is_running(&c[0]) && c[0].restart_count == attempt).await;
        assert!(began.elapsed() < Duration::from_secs(10), "attempt {attempt} had to wait");
        stop(&runtime, &pod, 1000).await;
        winddown_shared::Runtime::clean_pod(&runtime, pod.uid()).await.unwrap();
    }
    drop(runtime);
    let runtime = open().await.unwrap();
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    stop(&runtime, &pod, 1000).await;
    bed.nothing_left().await;
}
