//! A scripted runtime that fails, hangs, forgets its answers or goes away.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};
use winddown_cri::CriRuntime;
use winddown_runtimes_tests::Fault;
use winddown_shared::{Grace, KillReason, Pod, Runtime as _, error_chain};

use crate::bed::{
    Act, PATIENCE, POLITE, STUBBORN, eventually, is_running, pod, run, secs, stop, sync_until,
    watched,
};
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of, open_in_time};

pub(crate) fn polite(name: &str) -> Pod {
    pod(name, &json!({"containers": [container_of("main", POLITE)]}))
}

fn stubborn(name: &str) -> Pod {
    pod(name, &json!({"containers": [container_of("main", STUBBORN)]}))
}

/// Calls of this name, with what they concerned.
pub(crate) fn calls(stage: &Fake, name: &str) -> Vec<String> {
    let all = stage.cri.calls();
    all.into_iter().filter(|call| call.split(' ').next() == Some(name)).collect()
}

async fn open_impatiently(stage: &Fake) -> CriRuntime {
    let mut config = stage.config();
    // Not less: on a busy machine an answer that is not lost may take a second as well.
    config.times.change = Duration::from_secs(2);
    config.times.ask = Duration::from_secs(2);
    CriRuntime::open(config).await.unwrap()
}

#[tokio::test]
async fn nothing_is_made_twice_when_an_answer_is_lost() {
    for call in ["RunPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus"] {
        let stage = Fake::set().await;
        let runtime = open_impatiently(&stage).await;
        let pod = polite("web");
        stage.cri.script(call, 1, Fault::Lost);
        run(&runtime, &pod).await;
        assert_eq!(stage.cri.running(), ["web/main#0"], "{call}");
        assert_eq!(stage.cri.most_starts(), 1, "{call}");
        assert_eq!(stage.cri.holds(), (1, 1), "{call}");
        stop(&runtime, &pod, 5).await;
        assert_eq!(stage.cri.running(), Vec::<String>::new(), "{call}");
    }
}

#[tokio::test]
async fn nothing_is_made_twice_when_the_agent_dies_between_two_calls() {
    for fault in [Fault::Lost, Fault::Hang] {
        for call in ["RunPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus"] {
            let stage = Fake::set().await;
            let pod = polite("web");
            stage.cri.script(call, 1, fault.clone());
            let runtime = stage.open_now().await;
            runtime.list_pods().await.unwrap();
            let cut = timeout(Duration::from_millis(200), runtime.sync_pod(&pod)).await;
            assert!(cut.is_err(), "{call} {fault:?}: {cut:?}");
            drop(runtime);
            let runtime = reopened(&stage).await;
            run(&runtime, &pod).await;
            assert_eq!(stage.cri.running(), ["web/main#0"], "{call} {fault:?}");
            assert_eq!(stage.cri.most_starts(), 1, "{call} {fault:?}");
            assert_eq!(stage.cri.holds(), (1, 1), "{call} {fault:?}");
        }
    }
}

/// The state directory is held until the last task of the former agent is gone.
pub(crate) async fn reopened(stage: &Fake) -> CriRuntime {
    stage.open_now().await
}

#[tokio::test]
async fn a_stop_after_a_sync_that_was_dropped_midway_ends_what_had_been_started() {
    for call in ["RunPodSandbox", "CreateContainer", "StartContainer", "PullImage"] {
        for fault in [Fault::Lost, Fault::Hang, Fault::Slow(Duration::from_millis(200))] {
            let stage = Fake::set().await;
            let runtime = stage.open_now().await;
            let mut container = container_of("main", POLITE);
            if call == "PullImage" {
                container["image"] = json!("registry/app:1");
            }
            let pod = pod("web", &json!({"containers": [container]}));
            stage.cri.script(call, 1, fault.clone());
            let cut = timeout(Duration::from_millis(100), runtime.sync_pod(&pod)).await;
            assert!(cut.is_err(), "{call} {fault:?}: {cut:?}");
            stop(&runtime, &pod, 5).await;
            assert_eq!(stage.cri.running(), Vec::<String>::new(), "{call} {fault:?}");
            assert!(!runtime.pod_status(pod.uid()).await.unwrap().any_running());
            runtime.clean_pod(pod.uid()).await.unwrap();
            runtime.forget_pod(pod.uid()).await.unwrap();
            assert_eq!(stage.cri.holds(), (0, 0), "{call} {fault:?}");
        }
    }
}

/// It was said that nothing had run, and the end of the sandbox killed what did.
#[tokio::test]
async fn a_stop_after_a_sync_that_was_dropped_while_it_asked_what_runs_ends_what_does() {
    let stage = Fake::set().await;
    let runtime = open_impatiently(&stage).await;
    let pod = polite("web");
    stage.cri.script("StartContainer", 1, Fault::Lost);
    stage.cri.script("ContainerStatus", 2, Fault::Hang);
    runtime.sync_pod(&pod).await.unwrap_err();
    let asked = || calls(&stage, "ContainerStatus").len() == 2;
    tokio::select! {
        synced = runtime.sync_pod(&pod) => panic!("{synced:?}"),
        () = eventually("it is asked what runs", asked) => {}
    }
    stage.cri.heal();
    let stopped = stop(&runtime, &pod, 5).await;
    assert_eq!((stopped.containers.len(), stopped.forced()), (1, false));
    assert_eq!(stage.cri.running(), Vec::<String>::new());
}

/// The second that each has from its stop signal had begun with the stop, and was over.
#[tokio::test]
async fn a_container_that_a_stop_finds_late_is_sent_its_stop_signal_before_sigkill() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.times.start_patience = secs(3);
    let runtime = CriRuntime::open(config).await.unwrap();
    let pod = polite("web");
    stage.cri.script("StartContainer", 1, Fault::Slow(Duration::from_millis(1500)));
    let asked = || !calls(&stage, "StartContainer").is_empty();
    tokio::select! {
        synced = runtime.sync_pod(&pod) => panic!("{synced:?}"),
        () = eventually("it is being started", asked) => {}
    }
    let grace = Grace::fixed(secs(1)).with_reason(KillReason::Eviction);
    assert!(!runtime.stop_pod(pod.uid(), Some(&pod), grace).await.unwrap().forced());
    assert_eq!(calls(&stage, "StopContainer"), ["StopContainer main 1"]);
}

/// CRI-O carries out a start that was abandoned, be it after its pod has stopped.
#[tokio::test]
async fn what_is_started_of_a_stopped_pod_is_stopped_before_the_pod_is_cleaned_up() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = polite("web");
    run(&runtime, &pod).await;
    stop(&runtime, &pod, 5).await;
    run(&runtime, &pod).await;
    runtime.clean_pod(pod.uid()).await.unwrap();
    assert_eq!(calls(&stage, "StopContainer"), ["StopContainer main 5", "StopContainer main 1"]);
    assert_eq!(stage.cri.running(), Vec::<String>::new());
}

#[tokio::test]
async fn a_hung_stop_delays_its_own_pod_only_and_works_when_it_is_asked_again() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.times.kill = secs(5);
    let runtime = CriRuntime::open(config).await.unwrap();
    let (hung, other) = (polite("hung"), polite("other"));
    run(&runtime, &hung).await;
    run(&runtime, &other).await;
    stage.cri.script("StopContainer", 1, Fault::Hang);
    let grace = Grace::fixed(secs(1));
    let began = Instant::now();
    let first = runtime.stop_pod(hung.uid(), Some(&hung), grace);
    let second = async {
        eventually("the hung call was made", || !calls(&stage, "StopContainer").is_empty()).await;
        stop(&runtime, &other, 5).await;
        began.elapsed()
    };
    let (first, second) = tokio::join!(first, second);
    assert!(second < secs(6), "{second:?}");
    // The kill that follows the grace is a call of its own, which does not hang.
    let stopped = first.unwrap();
    assert!(stopped.forced());
    assert_eq!(stage.cri.running(), Vec::<String>::new());
}

#[tokio::test]
async fn a_stop_that_never_works_is_an_error_that_names_the_container_and_the_next_one_ends_it() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    // An answer may take that long on a busy machine.
    config.times.kill = secs(1);
    let runtime = CriRuntime::open(config).await.unwrap();
    let pod = polite("web");
    run(&runtime, &pod).await;
    for (fault, said) in [
        (Fault::Hang, "stopping container main of pod uid-web"),
        (Fault::Error("the shim is gone"), "the shim is gone"),
    ] {
        stage.cri.script("StopContainer", 1000, fault);
        let grace = Grace::fixed(Duration::from_millis(100));
        let error = runtime.stop_pod(pod.uid(), Some(&pod), grace).await.unwrap_err();
        assert!(error_chain(&error).contains(said), "{}", error_chain(&error));
        assert!(error_chain(&error).contains("container main"), "{}", error_chain(&error));
        assert!(runtime.pod_status(pod.uid()).await.unwrap().any_running());
        stage.cri.heal();
    }
    assert_eq!(stop(&runtime, &pod, 5).await.containers.len(), 1);
}

#[tokio::test]
async fn a_failing_container_that_was_not_ended_is_ended_when_the_runtime_works_again() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.times.kill = Duration::from_millis(300);
    let runtime = CriRuntime::open(config).await.unwrap();
    let (main, listener) = watched(container_of("main", POLITE));
    let pod = pod("web", &json!({"terminationGracePeriodSeconds": 1, "containers": [main]}));
    run(&runtime, &pod).await;
    let mut changes = runtime.changes();
    stage.cri.script("StopContainer", 1000, Fault::Error("the shim is gone"));
    drop(listener);
    timeout(PATIENCE, changes.recv()).await.expect("the container fails").unwrap();
    runtime.sync_pod(&pod).await.unwrap();
    timeout(PATIENCE, changes.recv()).await.expect("it could not be terminated").unwrap();
    stage.cri.heal();
    sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn a_runtime_that_comes_back_during_a_stop_still_ends_the_pod_in_its_grace() {
    let mut stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let slow = Act { stop: "0.3", stop_code: 3, ..POLITE };
    let pod = pod("web", &json!({"containers": [container_of("main", slow)]}));
    run(&runtime, &pod).await;
    stage.cri.kill();
    let stopping = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(20)));
    let restart = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        stage.cri.resume();
    };
    let (stopped, ()) = tokio::join!(stopping, restart);
    let stopped = stopped.unwrap();
    assert_eq!((stopped.containers[0].exit_code, stopped.forced()), (3, false));
}

#[tokio::test]
async fn a_runtime_that_comes_back_after_the_grace_sends_the_stop_signal_before_sigkill() {
    for is_tried_again in [false, true] {
        let mut stage = Fake::set().await;
        let mut config = stage.config();
        config.times.kill = if is_tried_again { secs(1) } else { secs(20) };
        let runtime = CriRuntime::open(config).await.unwrap();
        let pod = polite("web");
        run(&runtime, &pod).await;
        let stop = |grace| runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(grace));
        stage.cri.kill();
        let stopped = if is_tried_again {
            stop(secs(1)).await.unwrap_err();
            stage.cri.resume();
            stop(Duration::ZERO).await
        } else {
            let restart = async {
                tokio::time::sleep(secs(2)).await;
                stage.cri.resume();
            };
            tokio::join!(stop(secs(1)), restart).0
        };
        stopped.unwrap();
        assert_eq!(calls(&stage, "StopContainer")[0], "StopContainer main 1", "{is_tried_again}");
    }
}

#[tokio::test]
async fn a_stop_signal_has_the_time_when_the_runtime_was_there_to_send_it() {
    let mut stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let (pod, grace) = (polite("web"), Grace::fixed(secs(20)));
    run(&runtime, &pod).await;
    let mut health = runtime.health();
    stage.cri.kill();
    let restart = async {
        // The first call has failed, and those of the next 400 ms fail too; the one that begins as the runtime comes
        // back is answered.
        timeout(secs(5), health.wait_for(|h| !h.is_well())).await.unwrap().unwrap();
        let failed = Instant::now();
        tokio::time::sleep(Duration::from_millis(400)).await;
        stage.cri.resume();
        failed
    };
    let (stopped, failed) = tokio::join!(runtime.stop_pod(pod.uid(), Some(&pod), grace), restart);
    let early = failed.saturating_duration_since(stopped.unwrap().signalled_at.unwrap());
    assert_eq!(early, Duration::ZERO, "it is said to have been sent by a call that failed");
}

#[tokio::test]
async fn a_container_that_exits_by_itself_while_no_runtime_answers_was_sent_no_stop_signal() {
    let mut stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let (pod, gate) = stage.gated("web", Act { run: "gate", code: 7, ..STUBBORN });
    run(&runtime, &pod).await;
    stage.cri.kill();
    let restart = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
        eventually("it has exited", || stage.cri.running().is_empty()).await;
        stage.cri.resume();
    };
    let stop = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(20)));
    let (stopped, ()) = tokio::join!(stop, restart);
    let stopped = stopped.unwrap();
    assert_eq!((stopped.containers[0].exit_code, stopped.signalled_at), (7, None));
}

#[tokio::test]
async fn a_runtime_that_is_not_there_says_what_to_do_and_is_used_when_it_comes() {
    let mut stage = Fake::set().await;
    stage.cri.kill();
    let runtime = stage.open_now().await;
    let pod = polite("web");
    let error = runtime.sync_pod(&pod).await.unwrap_err();
    assert!(
        error_chain(&error).contains("there is no such socket: start the container runtime"),
        "{}",
        error_chain(&error)
    );
    assert!(runtime.list_pods().await.is_err());
    let mut health = runtime.health();
    let told = health.wait_for(|h| h.message.contains("no such socket"));
    timeout(secs(5), told).await.unwrap().unwrap();
    stage.cri.resume();
    let well = timeout(secs(10), health.wait_for(|h| h.is_well())).await.unwrap().unwrap().clone();
    assert_eq!((well.version.as_str(), well.epoch), ("fake 1.0", 1));
    run(&runtime, &pod).await;
}

#[tokio::test]
async fn nothing_is_started_before_it_is_known_what_runs() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    stage.cri.script("ListContainers", 1000, Fault::Error("the database is locked"));
    let pod = polite("web");
    let error = runtime.sync_pod(&pod).await.unwrap_err();
    assert!(error_chain(&error).contains("the database is locked"), "{}", error_chain(&error));
    assert!(runtime.stop_pod(pod.uid(), None, Grace::fixed(secs(1))).await.is_err());
    assert!(runtime.pod_status(pod.uid()).await.is_err());
    assert_eq!(stage.cri.holds(), (0, 0));
    stage.cri.heal();
    run(&runtime, &pod).await;
}

#[tokio::test]
async fn pods_with_more_annotations_than_fit_into_an_answer_are_known_to_the_next_agent() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    // A busy machine takes seconds for an answer of 18 MB.
    config.times.ask = secs(20);
    let runtime = open_in_time(&config).await;
    let pods: Vec<Pod> = (0..6).map(|n| long(&format!("web-{n}"), 3_000_000)).collect();
    for pod in &pods {
        run(&runtime, pod).await;
    }
    drop(runtime);
    let runtime = open_in_time(&config).await;
    let listed = runtime.list_pods().await.unwrap();
    assert_eq!((listed.len(), listed.iter().all(|pod| pod.running)), (6, true), "{listed:?}");
    run(&runtime, &polite("late")).await;
    assert_eq!(stage.cri.most_starts(), 1, "something was started again");
    stop(&runtime, &pods[0], 5).await;
    assert_eq!(stage.cri.running().len(), 6);
}

/// A pod with so many bytes of annotations.
fn long(name: &str, bytes: usize) -> Pod {
    let mut object = serde_json::to_value(&*polite(name)).unwrap();
    object["metadata"]["annotations"] = json!({"notes": "x".repeat(bytes)});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

#[tokio::test]
async fn a_stop_asks_the_runtime_nothing_before_it_ends_the_containers() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = polite("web");
    run(&runtime, &pod).await;
    eventually("the start is settled", || calls(&stage, "ListContainers").len() >= 2).await;
    let before = stage.cri.calls().len();
    stop(&runtime, &pod, 7).await;
    let after = stage.cri.calls().split_off(before);
    assert_eq!(after[0], "StopContainer main 7", "{after:?}");
    assert!(!after.iter().any(|call| call.starts_with("List")), "{after:?}");
    assert!(!after.iter().any(|call| call.starts_with("StopPodSandbox")), "{after:?}");
}

#[tokio::test]
async fn a_shorter_grace_is_told_to_the_runtime_at_once_and_the_kill_comes_on_time() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = stubborn("web");
    run(&runtime, &pod).await;
    let began = Instant::now();
    let (sender, grace) = Grace::until(began + secs(600));
    let shorten = async {
        eventually("asked", || !calls(&stage, "StopContainer").is_empty()).await;
        sender.shorten_to(Instant::now() + Duration::from_millis(1900));
    };
    let (stopped, ()) = tokio::join!(runtime.stop_pod(pod.uid(), Some(&pod), grace), shorten);
    assert!(stopped.unwrap().forced());
    let expected = ["StopContainer main 600", "StopContainer main 2", "StopContainer main 0"];
    assert_eq!(calls(&stage, "StopContainer"), expected);
    assert!(began.elapsed() < secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_pod_that_the_runtime_has_forgotten_is_listed_until_its_volumes_and_its_logs_are_removed()
{
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let volumes = json!([{"name": "data", "emptyDir": {}}]);
    let spec = json!({"volumes": volumes, "containers": [container_of("main", POLITE)]});
    let pod = pod("web", &spec);
    run(&runtime, &pod).await;
    stop(&runtime, &pod, 5).await;
    drop(runtime);
    stage.cri.forget_everything();
    let runtime = reopened(&stage).await;
    let names = |dir: &std::path::Path| {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let (volumes, logs) = (stage.config().paths.state.join("pods"), stage.config().logs.dir);
    assert_eq!((names(&volumes).len(), names(&logs).len()), (1, 1));
    let listed = runtime.list_pods().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|pod| (pod.uid.as_str(), pod.running)).collect();
    assert_eq!(listed, [("uid-web", false)]);
    runtime.forget_pod(pod.uid()).await.unwrap();
    assert_eq!((names(&volumes).len(), names(&logs).len()), (0, 0));
    assert_eq!(runtime.list_pods().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_pod_whose_names_are_a_kubelets_gets_others_if_its_sandbox_is_dead() {
    for is_crio in [false, true] {
        let stage = Fake::set().await;
        if is_crio {
            stage.cri.find_taken_names();
        }
        let runtime = stage.open_now().await;
        let (web, lives) = (polite("web"), polite("lives"));
        stage.cri.plant_foreign_sandbox(("web", "uid-web"), 0, false);
        let ran = timeout(secs(10), run(&runtime, &web)).await;
        assert!(ran.is_ok(), "CRI-O: {is_crio}, {:?}", stage.cri.calls());
        assert_eq!(stage.cri.running(), ["web/main#1"]);
        let made = calls(&stage, "RunPodSandbox");
        assert_eq!(made, ["RunPodSandbox web 1"], "the kubelet's name does not become free");
        stop(&runtime, &web, 5).await;
        stage.cri.plant_foreign_sandbox(("web", "uid-web"), 2, false);
        let ran = timeout(secs(10), run(&runtime, &web)).await;
        assert!(ran.is_ok(), "the kubelet had the node again, {:?}", stage.cri.calls());
        assert_eq!(stage.cri.running(), ["web/main#3"]);
        stage.cri.plant_foreign_sandbox(("lives", "uid-lives"), 0, true);
        let error = error_chain(&runtime.sync_pod(&lives).await.unwrap_err());
        assert!(error.contains("remove it with crictl"), "{error}");
        assert_eq!(stage.cri.running(), ["web/main#3"]);
    }
}

#[tokio::test]
async fn an_image_that_takes_longer_than_any_other_call_may_is_pulled_once() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.times.change = secs(1);
    let runtime = CriRuntime::open(config).await.unwrap();
    let mut container = container_of("main", POLITE);
    container["image"] = json!("registry/app:1");
    stage.cri.script("PullImage", 1, Fault::Slow(Duration::from_millis(1500)));
    run(&runtime, &pod("web", &json!({"containers": [container]}))).await;
    assert_eq!(calls(&stage, "PullImage").len(), 1);
}

#[tokio::test]
async fn what_others_have_made_of_a_pod_is_listed_once_for_each_sandbox() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    for number in 0..100 {
        run(&runtime, &polite(&format!("web-{number}"))).await;
    }
    let [containers, sandboxes] =
        ["ListContainers", "ListPodSandbox"].map(|n| calls(&stage, n).len());
    // Both are listed now and then, together.
    assert_eq!(sandboxes - containers, 100);
}
