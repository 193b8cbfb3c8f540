use std::time::Duration;

use tokio::time::Instant;

use crate::bed::{Bed, is_running, stop, sync_until};

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
