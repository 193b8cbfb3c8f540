//! A scripted runtime at which an earlier agent, or an earlier call, had begun something.

use serde_json::json;
use tokio::time::Instant;
use winddown_cri::CrashBackoff;
use winddown_cri::CriRuntime;
use winddown_runtimes_tests::Fault;
use winddown_shared::{ContainerStatus, PodUid, Runtime as _};

use crate::bed::{POLITE, eventually, is_running, pod, run, secs, stop, sync_until};
use crate::faults::{calls, polite, reopened};
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};

/// The node's default: somebody who waits for it is late.
async fn up_without_waiting_for_the_back_off(stage: &Fake) -> (CriRuntime, Vec<ContainerStatus>) {
    let mut config = stage.config();
    config.retry = CrashBackoff::default();
    config.backoff = CrashBackoff::default();
    assert!(config.retry.initial >= secs(10));
    let runtime = CriRuntime::open(config).await.unwrap();
    let spec = json!({"restartPolicy": "Never", "containers": [container_of("main", POLITE)]});
    let began = Instant::now();
    let seen = sync_until(&runtime, &pod("web", &spec), |c| is_running(&c[0])).await;
    assert!(began.elapsed() < secs(9), "{:?}", began.elapsed());
    (runtime, seen)
}

#[tokio::test]
async fn a_start_that_another_caller_began_is_awaited_and_used() {
    let stage = Fake::set().await;
    let under_way = Fault::Error("container is already in starting state");
    stage.cri.script("StartContainer", 3, under_way);
    stage.cri.script("StartContainer", 1, Fault::Misreported("is already in starting state"));
    let (_runtime, seen) = up_without_waiting_for_the_back_off(&stage).await;
    assert_eq!((seen[0].restart_count, stage.cri.most_starts()), (0, 1));
    assert_eq!(calls(&stage, "StartContainer").len(), 4);
}

#[tokio::test]
async fn a_start_that_was_given_up_with_its_agent_is_made_anew_at_once() {
    let stage = Fake::set().await;
    stage.cri.script("StartContainer", 1, Fault::Error("container is already in starting state"));
    stage.cri.script("StartContainer", 1, Fault::Undone);
    let (runtime, seen) = up_without_waiting_for_the_back_off(&stage).await;
    assert_eq!(stage.cri.running(), ["web/main#1"]);
    // It never ran: that is no exit, neither for this agent nor for the next.
    assert_eq!(seen[0].last_exit, None);
    drop(runtime);
    let runtime = reopened(&stage).await;
    let uid = PodUid::new("uid-web");
    assert!(runtime.pod_status(&uid).await.unwrap().any_running());
}

#[tokio::test]
async fn a_start_that_was_given_up_before_the_agent_came_does_not_fail_the_pod() {
    let stage = Fake::set().await;
    let spec = json!({"restartPolicy": "Never", "containers": [container_of("main", POLITE)]});
    let pod = pod("web", &spec);
    stage.cri.script("StartContainer", 1, Fault::Hang);
    let runtime = stage.open_now().await;
    let cut = async { eventually("asked", || !calls(&stage, "StartContainer").is_empty()).await };
    tokio::select! {
        synced = runtime.sync_pod(&pod) => panic!("{synced:?}"),
        () = cut => {}
    }
    drop(runtime);
    stage.cri.give_up_starts();
    let runtime = reopened(&stage).await;
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert!(is_running(&seen[0]), "{seen:?}");
    assert_eq!((seen[0].last_exit.as_ref(), stage.cri.most_starts()), (None, 1));
}

#[tokio::test]
async fn of_a_pod_with_many_containers_ten_are_started_at_a_time() {
    let stage = Fake::set().await;
    let containers: Vec<_> = (0..40).map(|i| container_of(&format!("c{i}"), POLITE)).collect();
    let pod = pod("web", &json!({"containers": containers}));
    stage.cri.script("StartContainer", 40, Fault::Hang);
    let runtime = stage.open_now().await;
    let begun = async {
        eventually("ten", || calls(&stage, "StartContainer").len() >= 10).await;
        // An eleventh would follow at once.
        tokio::time::sleep(secs(1)).await;
    };
    tokio::select! {
        synced = runtime.sync_pod(&pod) => panic!("{synced:?}"),
        () = begun => {}
    }
    assert_eq!(calls(&stage, "StartContainer").len(), 10);
    stage.cri.heal();
}

#[tokio::test]
async fn what_was_not_ready_under_an_earlier_agent_is_not_ready_before_its_probe_says_so() {
    let stage = Fake::set().await;
    let mut container = container_of("main", POLITE);
    let delay = json!({"tcpSocket": {"port": 1}, "initialDelaySeconds": 3600});
    container["readinessProbe"] = delay;
    let pod = pod("web", &json!({"containers": [container]}));
    let runtime = stage.open_now().await;
    run(&runtime, &pod).await;
    let note = stage.dir.path().join(format!("state/pods/{}/messages/main/0.unready", pod.uid()));
    eventually("it is noted as not ready", || note.exists()).await;
    drop(runtime);
    let runtime = reopened(&stage).await;
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert!(is_running(&seen[0]) && !seen[0].ready, "{seen:?}");
}

#[tokio::test]
async fn a_post_start_hook_that_an_agent_does_not_see_end_is_run_by_the_next_one() {
    let stage = Fake::set().await;
    let mut container = container_of("main", POLITE);
    container["lifecycle"] = json!({"postStart": {"exec": {"command": ["true"]}}});
    let pod = pod("web", &json!({"containers": [container]}));
    stage.cri.script("ExecSync", 1, Fault::Hang);
    let runtime = stage.open_now().await;
    let note = stage.dir.path().join(format!("state/pods/{}/messages/main/0.hook", pod.uid()));
    tokio::select! {
        synced = runtime.sync_pod(&pod) => panic!("{synced:?}"),
        () = eventually("the hook runs", || note.exists()) => {}
    }
    drop(runtime);
    let runtime = reopened(&stage).await;
    let seen = runtime.pod_status(pod.uid()).await.unwrap().containers;
    assert!(is_running(&seen[0]) && !seen[0].started && !seen[0].ready, "{seen:?}");
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert!(seen[0].started && seen[0].ready, "{seen:?}");
    assert_eq!(calls(&stage, "ExecSync").len(), 2);
    eventually("its end is noted", || !note.exists()).await;
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn what_was_made_although_its_name_is_said_to_be_taken_is_used() {
    for call in ["RunPodSandbox", "CreateContainer"] {
        let stage = Fake::set().await;
        stage.cri.script(call, 2, Fault::Error("failed to reserve name: it is reserved for x"));
        stage.cri.script(
            call,
            1,
            Fault::Misreported("failed to reserve name: it is reserved for x"),
        );
        let (_runtime, seen) = up_without_waiting_for_the_back_off(&stage).await;
        assert_eq!((seen[0].restart_count, stage.cri.holds()), (0, (1, 1)), "{call}");
        assert_eq!(calls(&stage, call).len(), 3, "{call}");
    }
}

#[tokio::test]
async fn a_run_after_those_that_the_runtime_forgot_has_a_log_of_its_own() {
    let stage = Fake::set().await;
    let logs = stage.dir.path().join("logs/default_web_uid-web/main");
    std::fs::create_dir_all(&logs).unwrap();
    for name in ["0.log", "1.log", "1.log.1", "2.log.1", "x.log", "7.txt"] {
        std::fs::write(logs.join(name), "of an earlier boot").unwrap();
    }
    let runtime = stage.open_now().await;
    run(&runtime, &polite("web")).await;
    assert_eq!(stage.cri.running(), ["web/main#3"]);
    let has = |name: &str| logs.join(name).exists();
    assert!(has("2.log.1") && !has("0.log") && !has("1.log") && !has("1.log.1"));
}
