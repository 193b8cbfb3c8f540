//! Containers that somebody else runs, looked at and stopped.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use winddown_cri::PodContainers;
use winddown_runtimes_tests::Fault;
use winddown_shared::PodUid;

use crate::bed::{PATIENCE, POLITE, STUBBORN, eventually, pod, run, secs};
use crate::faults::{calls, polite};
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};

fn beside(stage: &Fake) -> PodContainers {
    PodContainers::new(&stage.cri.socket().display().to_string()).unwrap()
}

/// Names of the pod's containers that run, and whether its sandbox is ready.
async fn inside(containers: &PodContainers, uid: &PodUid) -> (Vec<String>, bool) {
    let mut found = containers.look().await.unwrap().remove(uid).unwrap_or_default();
    found.running.sort();
    (found.running, found.has_sandbox)
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A pod with a container that ends when it is asked and one that never does, another pod, and one that a
/// kubelet has made.
async fn three_pods() -> (Fake, PodUid) {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let both = [container_of("polite", POLITE), container_of("stubborn", STUBBORN)];
    let web = pod("web", &json!({"containers": both}));
    run(&runtime, &web).await;
    run(&runtime, &polite("other")).await;
    stage.cri.plant_foreign_pod();
    (stage, web.uid().clone())
}

#[tokio::test]
async fn the_containers_of_one_pod_are_named_and_stopped_and_those_of_others_are_not() {
    let (stage, web) = three_pods().await;
    let containers = beside(&stage);
    assert_eq!(inside(&containers, &web).await, (named(&["polite", "stubborn"]), true));
    let of_kubelet = PodUid::new("foreign");
    assert_eq!(inside(&containers, &of_kubelet).await.0, named(&["main"]));

    let begun = Instant::now();
    containers.stop(&web, secs(2), false, &[]).await.unwrap();
    assert!(begun.elapsed() >= secs(2), "the stubborn one had its grace: {:?}", begun.elapsed());
    let mut asked = stop_signals(&stage);
    asked.sort();
    assert_eq!(asked, ["StopContainer polite 2", "StopContainer stubborn 2"]);
    assert_eq!(inside(&containers, &web).await, (named(&[]), true), "its sandbox is the kubelet's");
    assert_eq!(stage.cri.running().len(), 2);

    let mut ends = containers.exits(&web).await.unwrap();
    ends.sort_by(|a, b| a.name.cmp(&b.name));
    let ends: Vec<_> = ends.iter().map(|end| (&*end.name, end.forced)).collect();
    assert_eq!(ends, [("polite", false), ("stubborn", true)]);

    containers.stop(&of_kubelet, secs(2), false, &[]).await.unwrap();
    assert_eq!(stage.cri.running(), ["other/main#0"]);
    let none = containers.stop(&PodUid::new("unknown"), secs(2), false, &[]).await.unwrap();
    assert!(!none.ran);
    assert_eq!(stop_signals(&stage).len(), 3);
}

#[tokio::test]
async fn a_container_that_is_removed_before_its_exit_is_asked_for_is_left_out() {
    let (stage, web) = three_pods().await;
    let containers = beside(&stage);
    containers.stop(&web, secs(1), false, &[]).await.unwrap();
    let asked = || calls(&stage, "ContainerStatus").len();
    let before = asked();
    stage.cri.script("ContainerStatus", 1, Fault::Slow(secs(1)));
    let remove = async {
        eventually("both are asked for", || asked() == before + 2).await;
        stage.cri.forget_everything();
    };
    let (ends, ()) = tokio::join!(containers.exits(&web), remove);
    assert!(ends.unwrap().len() < 2);
}

#[tokio::test]
async fn containers_whose_state_the_runtime_has_lost_count_as_running_and_are_stopped() {
    let (stage, web) = three_pods().await;
    let containers = beside(&stage);
    stage.cri.lose_states();
    assert_eq!(inside(&containers, &web).await.0, named(&["polite", "stubborn"]));
    let found = containers.describe().await.unwrap();
    let mut all = found.iter().flat_map(|pod| &pod.containers);
    assert!(all.all(|container| container.running_since.is_some()), "{found:?}");
    assert!(containers.stop(&web, secs(1), false, &[]).await.unwrap().ran);
    assert_eq!(inside(&containers, &web).await.0, named(&[]));
}

#[tokio::test]
async fn pods_are_described_as_their_creator_recorded_them_and_stay_while_their_sandbox_does() {
    let (stage, web) = three_pods().await;
    let containers = beside(&stage);
    let found = containers.describe().await.unwrap();
    let names: Vec<_> = found.iter().map(|pod| &*pod.name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let of_web = found.iter().find(|pod| pod.uid == web).unwrap();
    assert_eq!((&*of_web.namespace, &*of_web.name), ("default", "web"));
    let names: Vec<_> = of_web.containers.iter().map(|container| &*container.name).collect();
    assert_eq!(names, ["polite", "stubborn"]);
    assert!(of_web.containers.iter().all(|container| container.running_since.is_some()));
    assert!(of_web.containers[0].annotations.contains_key("io.kubernetes.container.hash"));

    containers.stop(&web, secs(1), false, &[]).await.unwrap();
    let found = containers.describe().await.unwrap();
    let of_web = found.iter().find(|pod| pod.uid == web).unwrap();
    assert!(of_web.containers.iter().all(|container| container.running_since.is_none()));
    containers.take_down(&web).await.unwrap();
    let found = containers.describe().await.unwrap();
    assert!(found.iter().all(|pod| pod.uid != web), "{found:?}");
    stage.cri.script("ListContainers", 1, Fault::Error("no"));
    containers.describe().await.unwrap_err();
}

#[tokio::test]
async fn the_runtimes_process_is_known_and_asked_for_again_after_the_connection_was_lost() {
    let mut stage = Fake::set().await;
    let containers = beside(&stage);
    assert_eq!(containers.process().await.unwrap(), std::process::id());
    stage.cri.kill();
    let unknown = async {
        while containers.process().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, unknown).await.unwrap();
    stage.cri.resume();
    assert_eq!(containers.process().await.unwrap(), std::process::id());
}

fn with_hook(name: &str, hook: &serde_json::Value) -> serde_json::Value {
    hooked(container_of(name, POLITE), hook)
}

fn hooked(mut container: serde_json::Value, hook: &serde_json::Value) -> serde_json::Value {
    container["lifecycle"] = json!({"preStop": hook});
    container
}

/// A pod that runs, with the hook of one container a command and that of the other a pause of a second.
async fn hooked_pod() -> (Fake, PodUid) {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let all = [
        with_hook("command", &json!({"exec": {"command": ["sync"]}})),
        with_hook("pause", &json!({"sleep": {"seconds": 1}})),
    ];
    let web = pod("web", &json!({"containers": all}));
    run(&runtime, &web).await;
    (stage, web.uid().clone())
}

/// The stop signals that the runtime was asked for, without the kills that follow where the runtime's own is not in time.
fn stop_signals(stage: &Fake) -> Vec<String> {
    let mut stops = calls(stage, "StopContainer");
    stops.retain(|call| !call.ends_with(" 0"));
    stops
}

#[tokio::test]
async fn a_container_keeps_the_part_of_a_second_that_a_hook_leaves_it_and_no_more() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let sync = json!({"exec": {"command": ["sync"]}});
    let stubborn = hooked(container_of("stubborn", STUBBORN), &sync);
    let web = pod("web", &json!({"containers": [stubborn]}));
    run(&runtime, &web).await;
    stage.cri.script("ExecSync", 1, Fault::Slow(Duration::from_millis(500)));
    let begun = Instant::now();
    beside(&stage).stop(web.uid(), secs(3), true, &[]).await.unwrap();
    let took = begun.elapsed();
    assert!(took >= secs(3), "{took:?}");
    // The runtime, which takes whole seconds only, would kill it after 3.5 s, without a second stop.
    assert_eq!(
        calls(&stage, "StopContainer"),
        ["StopContainer stubborn 3", "StopContainer stubborn 0"]
    );
}

#[tokio::test]
async fn hooks_of_every_kind_that_a_kubelet_recorded_run_once_and_before_the_stop() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = app.local_addr().unwrap().port();
    let http = json!({"httpGet": {"host": "127.0.0.1", "port": port, "path": "/leave"}});
    let all = [
        with_hook("command", &json!({"exec": {"command": ["sync"]}})),
        with_hook("pause", &json!({"sleep": {"seconds": 1}})),
        with_hook("http", &http),
        container_of("without", POLITE),
    ];
    let web = pod("web", &json!({"containers": all}));
    run(&runtime, &web).await;
    let containers = beside(&stage).identified_as("acme-1.2");
    let answered = async {
        let (mut client, _) = app.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let read = client.read(&mut request).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    };
    let (without, request) = tokio::join!(containers.stop(web.uid(), secs(9), true, &[]), answered);
    assert_eq!(without.unwrap().without_hook, [""; 0]);
    assert!(request.starts_with("GET /leave HTTP/1.1"), "{request}");
    let request = request.to_ascii_lowercase();
    assert!(request.contains("\r\nuser-agent: kube-lifecycle/acme-1.2\r\n"), "{request}");
    assert_eq!(calls(&stage, "ExecSync"), ["ExecSync command sync"]);
    let stops = stop_signals(&stage);
    assert_eq!(stops.len(), 4, "{stops:?}");
    assert!(stops.contains(&"StopContainer without 9".to_owned()), "{stops:?}");
    assert_eq!(stops.last().unwrap(), "StopContainer pause 8", "it pauses first: {stops:?}");
}

/// Only such a pod is found at the node's address.
#[tokio::test]
async fn the_hook_of_a_pod_on_the_hosts_network_asks_the_node() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = json!({"httpGet": {"port": app.local_addr().unwrap().port(), "path": "/leave"}});
    let all = [with_hook("http", &http)];
    let web = pod("web", &json!({"hostNetwork": true, "containers": all}));
    run(&runtime, &web).await;
    let containers = beside(&stage);
    let (stopped, asked) =
        tokio::join!(containers.stop(web.uid(), secs(1), true, &[]), app.accept());
    asked.unwrap();
    stopped.unwrap();
}

#[tokio::test]
async fn a_hook_that_an_agent_began_before_it_was_killed_is_not_run_again_by_the_next() {
    let (stage, web) = hooked_pod().await;
    let begun = stage.dir.path().join("begun");
    stage.cri.script("ExecSync", 1, Fault::Hang);
    let killed = async {
        let containers = beside(&stage).record_hooks(&begun);
        containers.stop(&web, secs(9), true, &[]).await.unwrap();
    };
    let began = eventually("the hook began", || !calls(&stage, "ExecSync").is_empty());
    tokio::select! {
        () = killed => panic!("the hook hangs"),
        () = began => {}
    }
    let next = beside(&stage).record_hooks(&begun);
    let stopped = next.stop(&web, secs(9), true, &[]).await.unwrap();
    assert_eq!(
        (&*stopped.hook_begun_before, &*stopped.without_hook),
        (&named(&["command"])[..], &[][..])
    );
    assert_eq!(calls(&stage, "ExecSync").len(), 1);
    let stops = stop_signals(&stage);
    assert!(stops.contains(&"StopContainer command 9".to_owned()), "{stops:?}");
    assert!(stops.contains(&"StopContainer pause 8".to_owned()), "it pauses again: {stops:?}");
}

#[tokio::test]
async fn a_hook_that_the_kubelet_runs_is_not_run_by_the_next_agent() {
    let (stage, web) = hooked_pod().await;
    let begun = stage.dir.path().join("begun");
    beside(&stage).record_hooks(&begun).hooks_begin(&web).await.unwrap();
    let next = beside(&stage).record_hooks(&begun);
    let stopped = next.stop(&web, secs(9), true, &[]).await.unwrap();
    assert_eq!(stopped.hook_begun_before, ["command"], "a pause may be repeated");
    assert_eq!(calls(&stage, "ExecSync"), [""; 0]);
}

#[tokio::test]
async fn sidecars_are_stopped_after_the_others_have_exited_and_their_hooks_run_before() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pause = json!({"sleep": {"seconds": 1}});
    let all = [
        container_of("proxy", POLITE),
        with_hook("main", &pause),
        with_hook("log", &pause),
        container_of("stubborn", STUBBORN),
    ];
    let web = pod("web", &json!({"containers": all}));
    run(&runtime, &web).await;
    let sidecars = named(&["log", "proxy"]);
    beside(&stage).stop(web.uid(), secs(4), true, &sidecars).await.unwrap();
    let mut stops = stop_signals(&stage);
    assert_eq!(stops[..2], ["StopContainer stubborn 4", "StopContainer main 3"]);
    // The stubborn one uses the whole grace: the sidecars have the last second of it.
    stops.drain(..2);
    stops.sort();
    assert_eq!(stops, ["StopContainer log 1", "StopContainer proxy 1"]);
}

#[tokio::test]
async fn of_a_short_grace_too_a_sidecar_has_a_second_for_sigterm() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let all = [container_of("log", POLITE), container_of("stubborn", STUBBORN)];
    let web = pod("web", &json!({"containers": all}));
    run(&runtime, &web).await;
    beside(&stage).stop(web.uid(), secs(2), true, &named(&["log"])).await.unwrap();
    // None at all would be SIGKILL at once.
    assert_eq!(stop_signals(&stage), ["StopContainer stubborn 2", "StopContainer log 1"]);
}

#[tokio::test]
async fn a_runtime_that_is_silent_refuses_or_is_away_is_an_error_and_no_pod_without_containers() {
    let (mut stage, web) = three_pods().await;
    let containers = beside(&stage);
    for fault in [Fault::Hang, Fault::Error("no")] {
        stage.cri.script("ListContainers", 1, fault.clone());
        let asked = timeout(PATIENCE, containers.look()).await.unwrap();
        assert!(asked.is_err(), "{fault:?}: {asked:?}");
    }
    // What is refused for one is done to the other.
    stage.cri.script("StopContainer", 1, Fault::Error("no"));
    let error = containers.stop(&web, secs(1), false, &[]).await.unwrap_err().to_string();
    assert!(error.contains("stopping the pod's containers"), "{error}");
    assert_eq!(inside(&containers, &web).await.0.len(), 1);

    stage.cri.kill();
    let asked = timeout(PATIENCE, containers.look()).await.unwrap();
    assert!(asked.is_err(), "{asked:?}");
    stage.cri.resume();
    let asked = timeout(PATIENCE, containers.look()).await.unwrap();
    assert!(!asked.unwrap().is_empty(), "it is asked again without being made anew");
}

#[tokio::test]
async fn a_stop_without_a_waiter_goes_on() {
    let (stage, web) = three_pods().await;
    let containers = beside(&stage);
    let stopping = containers.stop(&web, secs(1), false, &[]);
    tokio::select! {
        biased;
        _ = stopping => panic!("the stubborn one takes a second"),
        () = eventually("both are asked", || calls(&stage, "StopContainer").len() == 2) => {}
    }
    let left = || stage.cri.running().into_iter().filter(|one| one.starts_with("web/")).count();
    eventually("both have ended", || left() == 0).await;
}

#[tokio::test]
async fn the_first_processes_of_many_containers_are_asked_for_eight_at_a_time() {
    let stage = Fake::set().await;
    for _ in 0..12 {
        stage.cri.plant_foreign_pod();
    }
    stage.cri.script("ContainerStatus", 8, Fault::Hang);
    let containers = beside(&stage);
    containers.look().await.unwrap();
    let asked = || calls(&stage, "ContainerStatus").len();
    eventually("eight are asked for", || asked() >= 8).await;
    containers.look().await.unwrap();
    assert_eq!(asked(), 8);
    // Silence ends the turn of each.
    eventually("the others are asked for", || asked() >= 12).await;
}
