use std::sync::Arc;

use serde_json::json;
use winddown_shared::status::StatusStore;
use winddown_shared::{
    PodWorkers, Runtime as _, RuntimeStateProvider as _, RuntimeSyncer, UpdateKind,
};

use crate::bed::{Bed, clock, eventually, exit_of, is_running, sh, stop, sync_until};

#[tokio::test]
async fn after_a_boot_init_containers_run_again_and_sidecars_have_their_head_start() {
    let bed = Bed::new();
    let file = bed.path("order").display().to_string();
    let say = |word: &str| format!("echo {word} >> {file}");
    let mut side = sh("side", &format!("{}; exec sleep 1000", say("side")));
    side["restartPolicy"] = json!("Always");
    // Without it, the order in which the two shells write would be undefined.
    side["startupProbe"] = json!({"exec": {"command": ["grep", "side", file]}, "periodSeconds": 1});
    let pod = bed.pod_of(&json!({
        "initContainers": [sh("first", &say("first")), side],
        "containers": [sh("main", &format!("{}; exec sleep 1000", say("main")))],
    }));
    let runtime = bed.open().await;
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    sync_until(&runtime, &pod, |c| is_running(&c[2])).await;
    eventually("it has written", || written().contains("main")).await;
    drop(runtime);
    bed.cut_the_power(&[]).await;
    std::fs::remove_file(&file).unwrap();

    let runtime = bed.open().await;
    let status = runtime.pod_status(pod.uid()).await.unwrap();
    let ends: Vec<_> =
        status.containers.iter().map(|c| exit_of(c).unwrap().reason.clone()).collect();
    assert_eq!(
        ends.iter().map(|end| &**end).collect::<Vec<_>>(),
        ["Completed", "ContainerStatusUnknown", "ContainerStatusUnknown"]
    );
    let seen = sync_until(&runtime, &pod, |c| is_running(&c[2])).await;
    eventually("it has written", || written().contains("main")).await;
    assert_eq!(written(), "first\nside\nmain\n");
    assert_eq!(seen[2].restart_count, 1);
    stop(&runtime, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn after_a_boot_a_pod_that_ended_for_good_stays_so() {
    let bed = Bed::new();
    let file = bed.path("ran").display().to_string();
    let pod = bed.pod_of(&json!({"restartPolicy": "OnFailure",
        "initContainers": [sh("first", &format!("echo first >> {file}"))],
        "containers": [sh("main", &format!("echo main >> {file}"))]}));
    let runtime = bed.open().await;
    sync_until(&runtime, &pod, |c| exit_of(&c[1]).is_some()).await;
    drop(runtime);
    bed.cut_the_power(&[]).await;
    let runtime = bed.open().await;
    let synced = runtime.sync_pod(&pod).await.unwrap();
    assert_eq!(exit_of(&synced.status.containers[1]).unwrap().exit_code, 0);
    assert_eq!(synced.again_in, None);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "first\nmain\n");
}

#[tokio::test]
async fn a_pod_that_runs_once_does_not_run_twice_when_the_power_cut_took_the_record_of_its_start() {
    let bed = Bed::new();
    let file = bed.path("ran").display().to_string();
    let script = format!("echo ran >> {file}; exec sleep 1000");
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [sh("main", &script)]}));
    let runtime = bed.open().await;
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    eventually("it has run", || written().contains("ran")).await;
    drop(runtime);
    let started = format!("{}/main/0/started.json", pod.uid());
    bed.cut_the_power(&[&started]).await;
    let runtime = bed.open().await;
    let synced = runtime.sync_pod(&pod).await.unwrap();
    let exit = exit_of(&synced.status.containers[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (137, "ContainerStatusUnknown"));
    assert_eq!(written(), "ran\n");
}

/// Its supervisor wrote what happened to it: it was asked, and exited with 0.
#[tokio::test]
async fn a_pod_that_exits_with_0_when_it_is_stopped_is_running_for_the_next_agent_and_not_done() {
    for is_booted in [true, false] {
        let bed = Bed::new();
        let mut side = sh("side", "exec sleep 1000");
        side["restartPolicy"] = json!("Always");
        let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";
        let pod = bed.pod_of(&json!({"restartPolicy": "OnFailure", "initContainers": [side],
            "containers": [sh("main", script)]}));
        let runtime = bed.open().await;
        sync_until(&runtime, &pod, |c| is_running(&c[1])).await;
        bed.logged("main", 0, "up").await;
        stop(&runtime, &pod, 10_000).await;
        drop(runtime);
        if is_booted {
            bed.cut_the_power(&[]).await;
        }
        let (runtime, statuses) = (Arc::new(bed.open().await), StatusStore::default());
        let syncer = RuntimeSyncer::new(runtime.clone(), statuses.clone(), Arc::new(()), clock());
        let workers = PodWorkers::new(syncer, Arc::new(()));
        tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
        workers.update(UpdateKind::Create, pod.clone(), None);
        bed.logged("main", 1, "up").await;
        eventually("it counts as started", || {
            workers.syncer().last_seen_running(pod.uid()).len() == 2
        })
        .await;
        let phase = statuses.get(pod.uid()).unwrap().phase.clone();
        assert_eq!(phase.as_deref(), Some("Running"), "booted: {is_booted}");
        stop(&runtime, &pod, 10_000).await;
    }
}
