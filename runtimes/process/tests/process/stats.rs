use std::time::Duration;

use serde_json::json;
use winddown_runtimes::process::ProcessRuntime;
use winddown_shared::{ContainerState, Garbage, PodStats, Runtime as _};

use crate::bed::{Bed, is_running, sh, stop, sync_until};

/// Measures the only pod, including the disk.
async fn of_the_pod(runtime: &ProcessRuntime) -> PodStats {
    let mut all = runtime.pod_stats(Some(Duration::ZERO)).await.unwrap().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).1
}

#[tokio::test]
async fn memory_and_tasks_are_those_of_the_containers_and_not_of_their_supervisors() {
    let (bed, runtime) = Bed::with_runtime().await;
    // A shell that holds some 24 MB, and a shell with two programs.
    let hog = "x=$(head -c 12000000 /dev/zero | tr '\\0' x); echo up; while :; do sleep 0.2; done";
    let two = "sleep 1000 & sleep 1000 & echo up; wait";
    let pod = bed.pod_of(&json!({"containers": [sh("hog", hog), sh("two", two)]}));
    sync_until(&runtime, &pod, |c| c.iter().all(is_running)).await;
    bed.logged("hog", 0, "up").await;
    bed.logged("two", 0, "up").await;
    let stats = of_the_pod(&runtime).await;
    let names: Vec<&str> = stats.containers.iter().map(|c| &*c.name).collect();
    assert_eq!(names, ["hog", "two"]);
    let memory: Vec<u64> = stats.containers.iter().map(|c| c.memory_working_set.unwrap()).collect();
    assert!((12_000_000..60_000_000).contains(&memory[0]), "{memory:?}");
    assert!(memory[1] < 4_000_000, "{memory:?}");
    assert_eq!(stats.memory_working_set, Some(memory[0] + memory[1]));
    let cpu: Vec<Duration> = stats.containers.iter().map(|c| c.cpu_time.unwrap()).collect();
    assert!(cpu[0] > Duration::ZERO, "{cpu:?}");
    assert_eq!(stats.cpu_time, Some(cpu[0] + cpu[1]));
    // The hog's shell and its sleep, which may just be between two runs; the three of the other container.
    assert!((4..=5).contains(&stats.tasks.unwrap()), "{stats:?}");
    stop(&runtime, &pod, 0).await;
    assert_eq!(runtime.pod_stats(None).await.unwrap().unwrap(), []);
}

#[tokio::test]
async fn an_agent_that_comes_later_measures_what_it_adopted() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod("sleep 1000 & echo up; wait");
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    bed.logged("main", 0, "up").await;
    drop(runtime);
    let runtime = bed.open().await;
    let stats = of_the_pod(&runtime).await;
    assert_eq!(stats.tasks, Some(2));
    assert!(stats.memory_working_set.is_some());
    stop(&runtime, &pod, 0).await;
}

#[tokio::test]
async fn logs_and_records_are_the_pods_part_of_the_disk() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod("head -c 300000 /dev/zero | tr '\\0' '\\n'; echo up; sleep 1000");
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    bed.logged("main", 0, "up").await;
    let before = runtime.pod_stats(None).await.unwrap().unwrap().remove(0).1;
    assert_eq!((before.ephemeral, before.containers[0].logs), (None, None), "nobody looked yet");
    let stats = of_the_pod(&runtime).await;
    let logs = stats.containers[0].logs.unwrap();
    assert!(logs.bytes > 300_000 && logs.inodes >= 2, "{logs:?}");
    let all = stats.ephemeral.unwrap();
    assert!(all.bytes > logs.bytes && all.inodes > logs.inodes, "{all:?}");
    assert_eq!(stats.containers[0].rootfs, None, "it has no root file system of its own");
    let kept = runtime.pod_stats(None).await.unwrap().unwrap().remove(0).1;
    assert_eq!(kept.ephemeral, Some(all));
    stop(&runtime, &pod, 0).await;
}

#[tokio::test]
async fn the_logs_of_a_pod_in_back_off_are_measured_and_those_of_its_container_that_exited() {
    let (bed, runtime) = Bed::with_runtime().await;
    let hog = "head -c 300000 /dev/zero | tr '\\0' '\\n'; exit 1";
    for others in [vec![], vec![sh("other", "sleep 1000")]] {
        let all: Vec<_> = [sh("hog", hog)].into_iter().chain(others.clone()).collect();
        let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": all}));
        sync_until(&runtime, &pod, |c| {
            matches!(c[0].state, ContainerState::Exited(_)) && c[1..].iter().all(is_running)
        })
        .await;
        let stats = of_the_pod(&runtime).await;
        let hog = stats.containers.iter().find(|c| &*c.name == "hog").unwrap();
        assert!(hog.logs.unwrap().bytes > 300_000, "{stats:?}");
        assert_eq!(stats.memory_working_set.is_some(), !others.is_empty(), "what runs uses memory");
        stop(&runtime, &pod, 0).await;
        runtime.clean_pod(pod.uid()).await.unwrap();
        runtime.forget_pod(pod.uid()).await.unwrap();
    }
}

#[tokio::test]
async fn turned_logs_are_given_back_and_those_in_use_stay() {
    let bed = Bed::new();
    let mut config = bed.config();
    (config.log_max_bytes, config.log_max_files) = (20_000, 3);
    let runtime = ProcessRuntime::open(config).await.unwrap();
    // More than a pipe holds: a log is rotated between two reads, and one read may take a whole pipe.
    let lines = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; sleep 1000";
    let pod = bed.pod(lines);
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    bed.logged("main", 0, "line 19999").await;
    let logs = bed.path("logs").join(format!("default_web_{}", pod.uid())).join("main");
    let count = || std::fs::read_dir(&logs).unwrap().count();
    let turned = count() - 1;
    let freed = runtime.collect_garbage(Garbage::RotatedLogs).await.unwrap();
    assert!(turned > 0 && freed.items == turned as u64 && freed.bytes > 0, "{freed:?}");
    assert!(count() == 1 && logs.join("0.log").exists());
    assert_eq!(runtime.collect_garbage(Garbage::RotatedLogs).await.unwrap().items, 0);
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0);
    assert_eq!(
        runtime
            .collect_garbage(Garbage::UnusedImages { min_age: Duration::ZERO })
            .await
            .unwrap()
            .items,
        0
    );
    stop(&runtime, &pod, 0).await;
    let before = runtime.pod_status(pod.uid()).await.unwrap().containers;
    assert_eq!(
        runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items,
        1,
        "nothing runs any more"
    );
    assert_eq!(count(), 0);
    assert_eq!(runtime.pod_status(pod.uid()).await.unwrap().containers, before);
}

#[tokio::test]
async fn containers_that_start_at_once_write_the_pods_record_once_and_for_all() {
    let (bed, runtime) = Bed::with_runtime().await;
    let many: Vec<_> = (0..8).map(|n| sh(&format!("c{n}"), "sleep 1000")).collect();
    let pod = bed.pod_of(&json!({"containers": many}));
    // Only once: even the first call must not fail.
    let synced = runtime.sync_pod(&pod).await.unwrap();
    assert_eq!(synced.status.containers.len(), 8);
    let record = bed.path("state/pods").join(pod.uid().as_str()).join("pod.json");
    let text = std::fs::read_to_string(record).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    stop(&runtime, &pod, 0).await;
}
