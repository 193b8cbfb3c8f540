//! Where CRI-O does otherwise than containerd: it makes a pod's control group with the pod's first container, and a
//! container that was created has a process.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};
use winddown_cri::CriRuntime;
use winddown_runtimes_tests::Fault;
use winddown_shared::Runtime as _;

use crate::bed::{POLITE, eventually, pod, run, secs, stop};
use crate::faults::{calls, polite};
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};

#[tokio::test]
async fn a_pods_group_that_comes_with_its_first_container_has_its_weight_from_then_on() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    let groups = stage.dir.path().join("cgroup");
    config.cgroups.mount.clone_from(&groups);
    stage.cri.make_cgroups(&groups);
    let runtime = CriRuntime::open(config).await.unwrap();
    let mut main = container_of("main", POLITE);
    main["resources"] = json!({"requests": {"cpu": "1500m"}});
    run(&runtime, &pod("web", &json!({"containers": [main]}))).await;
    run(&runtime, &polite("batch")).await;
    let classes = groups.join("winddown");
    let weights = ["burstable", "burstable/poduid-web", "besteffort", "besteffort/poduid-batch"];
    let weights = weights.map(|group| {
        std::fs::read_to_string(classes.join(group).join("cpu.weight")).unwrap_or_default()
    });
    assert_eq!(weights, ["59", "59", "1", "1"]);
}

#[tokio::test]
async fn a_container_that_is_created_while_its_pod_is_ended_does_not_stay() {
    for fault in [Fault::Slow(Duration::from_millis(200)), Fault::Lost] {
        let stage = Fake::set().await;
        let runtime = stage.open_now().await;
        let pod = polite("web");
        stage.cri.script("CreateContainer", 1, fault.clone());
        let cut = timeout(Duration::from_millis(100), runtime.sync_pod(&pod)).await;
        assert!(cut.is_err(), "{fault:?}: {cut:?}");
        let stopped = stop(&runtime, &pod, 5).await;
        assert_eq!((stopped.containers.len(), stopped.signalled_at), (0, None), "it never ran");
        assert_eq!(stage.cri.holds().0, 0, "{fault:?}");
        // The end was called off.
        run(&runtime, &pod).await;
        assert_eq!((stage.cri.running().len(), stage.cri.most_starts()), (1, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_created_container_that_a_hung_runtime_does_not_remove_delays_no_stop() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = polite("web");
    stage.cri.script("CreateContainer", 1, Fault::Slow(Duration::from_millis(200)));
    stage.cri.script("StopContainer", 100, Fault::Hang);
    stage.cri.script("RemoveContainer", 100, Fault::Hang);
    tokio::select! {
        biased;
        () = eventually("it is created", || !calls(&stage, "CreateContainer").is_empty()) => {}
        synced = runtime.sync_pod(&pod) => panic!("{synced:?}"),
    }
    let began = Instant::now();
    stop(&runtime, &pod, 30).await;
    assert!(began.elapsed() < secs(15), "{:?}", began.elapsed());
    assert_eq!(calls(&stage, "StopContainer"), ["StopContainer main 0"]);
}
