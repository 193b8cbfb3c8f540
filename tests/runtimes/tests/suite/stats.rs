//! What pods use, and what can be given back.

use std::time::Duration;

use serde_json::json;
use winddown_cri::CriRuntime;
use winddown_runtimes_tests::Fault;
use winddown_shared::{
    ContainerState, ContainerStatus, DiskUse, Garbage, MemoryFigure, Pod, PodStats, Runtime as _,
    error_chain,
};

use crate::bed::{Act, POLITE, eventually, exit_of, forget, pod, run, stop, sync_until};
use crate::containerd::IMAGE;
use crate::faults::{calls, polite};
use crate::real::set;
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};

/// What the only pod uses, with a fresh look at the disk.
async fn of_the_pod(runtime: &CriRuntime) -> PodStats {
    let mut all = runtime.pod_stats(Some(Duration::ZERO)).await.unwrap().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).1
}

fn with_volumes() -> Pod {
    let spec = json!({
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/"}}],
        "containers": [container_of("main", POLITE)],
    });
    pod("web", &spec)
}

#[tokio::test]
async fn what_no_cgroup_tells_the_runtime_is_asked_for() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = with_volumes();
    run(&runtime, &pod).await;
    let volume = stage.dir.path().join("state/pods/uid-web/volumes/data/file");
    std::fs::write(volume, vec![1; 50_000]).unwrap();
    let stats = of_the_pod(&runtime).await;
    assert_eq!(stats.memory_working_set, Some(7_000_000));
    assert_eq!(stats.cpu_time, Some(Duration::from_secs(5)));
    assert_eq!(stats.tasks, None);
    let main = &stats.containers[0];
    assert_eq!(main.rootfs, Some(DiskUse { bytes: 40_960, inodes: 4, is_partial: false }));
    assert!(main.logs.is_some());
    let volumes: Vec<&str> = stats.volumes.iter().map(|v| &*v.name).collect();
    assert_eq!(volumes, ["data"], "a path of the host is not the pod's");
    assert!(stats.volumes[0].used.bytes >= 50_000);
    let all = stats.ephemeral.unwrap();
    assert!(all.bytes >= 50_000 + 40_960 && all.inodes >= 4 + 2, "{all:?}");
}

#[tokio::test]
async fn what_is_on_disk_is_measured_only_when_it_is_asked_for() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    run(&runtime, &polite("web")).await;
    let stats = runtime.pod_stats(None).await.unwrap().unwrap().remove(0).1;
    assert_eq!((stats.ephemeral, stats.containers[0].logs), (None, None));
    of_the_pod(&runtime).await;
    let kept =
        runtime.pod_stats(Some(Duration::from_secs(3600))).await.unwrap().unwrap().remove(0).1;
    assert!(kept.ephemeral.is_some());
}

#[tokio::test]
async fn a_runtime_that_does_not_tell_makes_numbers_unknown_and_nothing_else() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    run(&runtime, &polite("web")).await;
    for fault in [Fault::Hang, Fault::Error("no"), Fault::Unimplemented] {
        stage.cri.script("ListContainerStats", usize::MAX, fault);
        let stats = of_the_pod(&runtime).await;
        assert_eq!(stats.memory_working_set, None);
        assert_eq!(stats.containers[0].rootfs, None);
        assert!(stats.containers[0].logs.is_some() && stats.has_unknown_layers);
        stage.cri.heal();
    }
    let stats = of_the_pod(&runtime).await;
    assert!(stats.memory_working_set.is_some() && !stats.has_unknown_layers);
}

#[tokio::test]
async fn a_runtime_that_hangs_delays_no_choice_by_memory_even_while_the_disk_is_measured() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    run(&runtime, &polite("web")).await;
    assert!(of_the_pod(&runtime).await.memory_working_set.is_some());
    stage.cri.script("ListContainerStats", usize::MAX, Fault::Hang);
    let disk = runtime.pod_stats(Some(Duration::ZERO));
    // Eviction waits 2 s for the memory, and the disk as long as the runtime has for its report.
    let answer = tokio::select! {
        biased;
        _ = disk => panic!("the memory waits for the report, too"),
        answer = runtime.pod_stats(None) => answer,
    };
    let all = answer.unwrap().unwrap();
    assert_eq!(all[0].1.memory_working_set, None, "what was reported before is too old");
}

#[tokio::test]
async fn pods_that_have_ended_use_nothing() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = polite("web");
    run(&runtime, &pod).await;
    stop(&runtime, &pod, 5).await;
    assert_eq!(runtime.pod_stats(Some(Duration::ZERO)).await.unwrap().unwrap(), []);
}

#[tokio::test]
async fn what_a_pod_in_back_off_has_on_disk_is_measured() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let spec = json!({
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [container_of("main", Act::exits(1))],
    });
    let pod = pod("web", &spec);
    let waits = |c: &ContainerStatus| matches!(&c.state, ContainerState::Waiting { reason, .. } if **reason == *"CrashLoopBackOff");
    sync_until(&runtime, &pod, |c| waits(&c[0])).await;
    let volume = stage.dir.path().join("state/pods/uid-web/volumes/data/file");
    std::fs::write(volume, vec![1; 50_000]).unwrap();
    let stats = of_the_pod(&runtime).await;
    assert!(stats.containers[0].logs.is_some() && stats.volumes[0].used.bytes >= 50_000);
    assert_eq!((stats.memory_working_set, stats.tasks), (None, None), "nothing of it runs");
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn of_a_stopped_pod_all_dead_containers_go_and_how_they_ended_stays() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let spec = json!({"containers": [container_of("main", Act::exits(1))]});
    let pod = pod("web", &spec);
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 2).await;
    stop(&runtime, &pod, 5).await;
    eventually("earlier ones are pruned", || stage.cri.holds().0 <= 2).await;
    let before = runtime.pod_status(pod.uid()).await.unwrap().containers;
    stage.cri.script("RemoveContainer", 1, Fault::Error("busy"));
    let error = error_chain(&runtime.collect_garbage(Garbage::DeadContainers).await.unwrap_err());
    assert!(error.contains("default/web") && error.contains("busy"), "{error}");
    runtime.list_pods().await.unwrap();
    assert_eq!(stage.cri.holds().0, 2, "the newest does not go before an older one");
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 2);
    assert_eq!(stage.cri.holds().0, 0);
    runtime.list_pods().await.unwrap();
    assert_eq!(runtime.pod_status(pod.uid()).await.unwrap().containers, before);
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0);
}

/// Its status refers to it, and why it crashed is asked for after its disk was full.
#[tokio::test]
async fn the_previous_container_of_a_pod_that_is_to_run_stays_with_how_it_ended() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = pod("web", &json!({"containers": [container_of("main", Act::exits(3))]}));
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 2).await;
    eventually("earlier ones are pruned", || stage.cri.holds().0 <= 2).await;
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0);
    assert_eq!(stage.cri.holds().0, 2);
    drop(runtime);
    let runtime = stage.open_now().await;
    runtime.list_pods().await.unwrap();
    let seen = runtime.pod_status(pod.uid()).await.unwrap().containers;
    assert_eq!(seen[0].last_exit.as_ref().map(|exit| exit.exit_code), Some(3));
}

#[tokio::test]
async fn of_a_stopped_pod_the_volumes_go_once_it_is_cleaned_up_and_are_made_anew_when_it_comes_back()
 {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let pod = pod(
        "web",
        &json!({
        "containers": [main], "volumes": [{"name": "data", "emptyDir": {}}]}),
    );
    run(&runtime, &pod).await;
    let data = stage.dir.path().join("state/pods").join(pod.uid().as_str()).join("volumes/data");
    std::fs::write(data.join("much"), "x").unwrap();
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0, "it runs");
    stop(&runtime, &pod, 5).await;
    assert_eq!(
        runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items,
        1,
        "its container"
    );
    assert!(data.join("much").exists(), "something may be mounted in it");
    runtime.clean_pod(pod.uid()).await.unwrap();
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 1);
    assert!(!data.exists());
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0);
    run(&runtime, &pod).await;
    assert!(data.is_dir() && !data.join("much").exists());
    stop(&runtime, &pod, 0).await;
}

#[tokio::test]
async fn the_newest_container_of_a_pod_that_is_to_run_stays() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let spec =
        json!({"restartPolicy": "Never", "containers": [container_of("main", Act::exits(1))]});
    let pod = pod("web", &spec);
    sync_until(&runtime, &pod, |c| matches!(c[0].state, ContainerState::Exited(_))).await;
    assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0);
    assert_eq!(stage.cri.holds().0, 1);
}

#[tokio::test]
async fn images_go_that_nothing_names_and_that_are_not_the_sandboxes() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    for image in ["registry.k8s.io/pause:3.6", "quay.io/old:1", "quay.io/older:1"] {
        stage.cri.set_image(image, true);
    }
    run(&runtime, &polite("web")).await;
    let kept = runtime
        .collect_garbage(Garbage::UnusedImages { min_age: Duration::from_secs(3600) })
        .await
        .unwrap();
    assert_eq!(kept.items, 0, "none is an hour old");
    stage.cri.script("RemoveImage", 1, Fault::Error("in use"));
    let error = error_chain(
        &runtime
            .collect_garbage(Garbage::UnusedImages { min_age: Duration::ZERO })
            .await
            .unwrap_err(),
    );
    assert!(error.contains("removing image quay.io/old:1"), "{error}");
    let freed =
        runtime.collect_garbage(Garbage::UnusedImages { min_age: Duration::ZERO }).await.unwrap();
    assert_eq!((freed.items, freed.bytes), (1, 1_000_000));
    assert!(calls(&stage, "RemoveImage").iter().all(|call| call.contains("quay.io/old")));
}

#[tokio::test]
async fn no_image_goes_while_the_runtime_does_not_say_which_the_sandboxes_is() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    stage.cri.set_image("quay.io/old:1", true);
    run(&runtime, &polite("web")).await;
    stage.cri.script("Status", 1, Fault::Error("too busy"));
    let unused = Garbage::UnusedImages { min_age: Duration::ZERO };
    let error = error_chain(&runtime.collect_garbage(unused).await.unwrap_err());
    assert!(error.contains("too busy"), "{error}");
    assert_eq!(calls(&stage, "RemoveImage"), Vec::<String>::new());
}

#[tokio::test]
async fn the_runtime_says_where_its_images_and_its_pods_are() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let places = runtime.places().await.unwrap();
    assert_eq!((places.images, places.containers), (Some("/".into()), None));
    assert_eq!(places.pods_cgroup.as_deref(), Some("/winddown"));
    stage.cri.script("ImageFsInfo", 1, Fault::Error("not now"));
    let error = error_chain(&runtime.places().await.unwrap_err());
    assert!(error.starts_with("asking where images are"), "{error}");
}

#[tokio::test]
async fn a_runtime_that_fails_at_first_is_not_one_whose_pods_have_no_cgroup() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    stage.cri.script("RuntimeConfig", 3, Fault::Error("not now"));
    for _ in 0..3 {
        let error = error_chain(&runtime.places().await.unwrap_err());
        assert!(error.starts_with("asking who manages control groups"), "{error}");
    }
    assert_eq!(runtime.places().await.unwrap().pods_cgroup.as_deref(), Some("/winddown"));
}

#[tokio::test]
async fn turned_logs_of_pods_are_given_back() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    run(&runtime, &polite("web")).await;
    let logs = stage.dir.path().join("logs/default_web_uid-web/main");
    for name in ["0.log", "0.log.1", "0.log.2"] {
        std::fs::write(logs.join(name), vec![1; 8192]).unwrap();
    }
    assert_eq!(runtime.collect_garbage(Garbage::RotatedLogs).await.unwrap().items, 2);
    assert!(logs.join("0.log").exists());
}

#[tokio::test]
async fn real_containers_are_measured_in_their_cgroups_and_their_layers() {
    let Some(stage) = set("real containers are measured").await else { return };
    let runtime = stage.open_now().await;
    // Some 30 MB of one shell, and 3 MB in its root file system.
    let script = "trap 'exit 0' TERM; x=0123456789abcdef; i=0; \
        while [ $i -lt 20 ]; do x=$x$x; i=$((i+1)); done; \
        echo $x > /file; echo up; while :; do sleep 100 & wait $!; done";
    let mut main = container_of("main", POLITE);
    main["command"] = json!(["/bin/sh", "-c", script]);
    let spec = json!({"containers": [main, container_of("other", POLITE)]});
    let pod = pod("web", &spec);
    run(&runtime, &pod).await;
    eventually("the file is written", || stage.log("web", "main", 0).contains("F up\n")).await;
    let stats = of_the_pod(&runtime).await;
    println!("{stats:#?}");
    let memory: Vec<u64> = stats.containers.iter().map(|c| c.memory_working_set.unwrap()).collect();
    assert!(memory[0] > 16_000_000 && memory[1] < memory[0], "{memory:?}");
    assert!(stats.memory_working_set.unwrap() >= memory[0]);
    let cpu: Vec<Duration> = stats.containers.iter().map(|c| c.cpu_time.unwrap()).collect();
    assert!(cpu[0] > Duration::ZERO && stats.cpu_time.unwrap() >= cpu[0], "{cpu:?}");
    assert!(stats.tasks.unwrap() >= 3);
    let taken = runtime
        .reclaim_memory(pod.uid(), MemoryFigure::WorkingSet, 64 << 20, Duration::from_secs(60))
        .await;
    match stats.swappable {
        // Without swap the kernel has file cache to take back, and there may be little.
        Some(_) => assert!(taken.is_ok(), "{taken:?}"),
        None => assert_eq!(stats.active_file, None, "version 1"),
    }
    let places = runtime.places().await.unwrap();
    assert!(places.images.is_some_and(|path| path.is_dir()));
    // containerd measures layers every ten seconds.
    let deadline = tokio::time::Instant::now() + crate::bed::PATIENCE;
    loop {
        let layer = of_the_pod(&runtime).await.containers[0].rootfs;
        if layer.is_some_and(|layer| layer.bytes >= 16_000_000) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "last seen: {layer:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let freed =
        runtime.collect_garbage(Garbage::UnusedImages { min_age: Duration::ZERO }).await.unwrap();
    assert_eq!(freed.items, 0, "both images are in use: {IMAGE} and that of the sandbox");
    stop(&runtime, &pod, 60).await;
    assert_eq!(
        exit_of(&runtime.pod_status(pod.uid()).await.unwrap().containers[1]).unwrap().exit_code,
        0
    );
    forget(&runtime, &pod).await;
    let freed =
        runtime.collect_garbage(Garbage::UnusedImages { min_age: Duration::ZERO }).await.unwrap();
    assert_eq!(freed.items, 1, "the sandboxes' image stays");
}
