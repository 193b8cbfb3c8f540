//! What the CRI runtime does with pods, seen from a scripted runtime.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::time::{Instant, timeout};
use winddown_cri::{CgroupDriver, CriRuntime, PodSlices};
use winddown_host::service_units::UnitError;
use winddown_runtimes_tests::Fault;
use winddown_shared::{EndCause, ProbeKind, Recorder, Runtime as _, RuntimeError, error_chain};

use crate::bed::{
    Act, POLITE, STUBBORN, clean, eventually, exit_of, forget, is_running, pod, run, secs, stop,
    sync_until, waits_for,
};
use crate::faults::{calls, polite};
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};
use crate::suite::{ReportedExits, requests};

#[tokio::test]
async fn pods_of_others_are_not_seen_and_not_touched() {
    let stage = Fake::set().await;
    stage.cri.plant_foreign_pod();
    let runtime = stage.open_now().await;
    assert_eq!(runtime.list_pods().await.unwrap(), vec![]);
    let pod = polite("web");
    run(&runtime, &pod).await;
    stop(&runtime, &pod, 5).await;
    runtime.clean_pod(pod.uid()).await.unwrap();
    runtime.forget_pod(pod.uid()).await.unwrap();
    assert_eq!(stage.cri.running(), ["?/main#0"]);
}

#[tokio::test]
async fn a_pod_whose_sandbox_died_gets_a_new_one_and_its_containers_again() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut spec = json!({"containers": [container_of("main", POLITE)]});
    spec["initContainers"] = json!([container_of("prepare", Act::exits(0))]);
    let pod = pod("web", &spec);
    sync_until(&runtime, &pod, |c| is_running(&c[1])).await;
    stage.cri.kill_sandboxes();
    let seen = sync_until(&runtime, &pod, |c| c[1].restart_count == 1 && is_running(&c[1])).await;
    assert_eq!(seen[0].restart_count, 1, "the init container's work was lost with the sandbox");
    assert_eq!(stage.cri.running(), ["web/main#1"]);
    assert_eq!(calls(&stage, "RunPodSandbox"), ["RunPodSandbox web 0", "RunPodSandbox web 1"]);
    assert_eq!(stage.cri.holds(), (4, 2), "how the runs before ended is known from them");
}

#[tokio::test]
async fn a_pod_that_loses_its_sandbox_again_and_again_keeps_the_logs_of_two_runs() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let web = polite("web");
    let log = |run| stage.config().logs.dir.join(format!("default_web_uid-web/main/{run}.log"));
    for run in 0..4 {
        sync_until(&runtime, &web, |c| c[0].restart_count == run && is_running(&c[0])).await;
        std::fs::write(log(run), "").unwrap();
        // What only the runtime has is known from a listing.
        runtime.list_pods().await.unwrap();
        stage.cri.kill_sandboxes();
    }
    let left = || (0..4).filter(|run| log(*run).exists()).collect::<Vec<_>>();
    eventually("logs of older runs are removed", || left() == [2, 3]).await;
    eventually("and their sandboxes", || stage.cri.holds() == (2, 2)).await;
}

#[tokio::test]
async fn a_sandbox_that_died_is_stopped_too() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let web = polite("web");
    run(&runtime, &web).await;
    stage.cri.kill_sandboxes();
    sync_until(&runtime, &web, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    let mut all = stage.cri.calls();
    all.retain(|call| call.starts_with("RunPodSandbox") || call == "StopPodSandbox");
    assert_eq!(all, ["RunPodSandbox web 0", "StopPodSandbox", "RunPodSandbox web 1"]);
    stage.cri.kill_sandboxes();
    runtime.list_pods().await.unwrap();
    stop(&runtime, &web, 5).await;
    runtime.clean_pod(web.uid()).await.unwrap();
    assert_eq!(calls(&stage, "StopPodSandbox").len(), 2);
}

/// A node gives up on the removal of a pod after ten seconds.
#[tokio::test]
async fn the_remains_of_a_pod_are_removed_although_another_pod_takes_long_to_stop() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let web = polite("web");
    let slow = pod("slow", &json!({"containers": [container_of("main", STUBBORN)]}));
    for pod in [&web, &slow] {
        run(&runtime, pod).await;
    }
    stop(&runtime, &web, 5).await;
    runtime.clean_pod(web.uid()).await.unwrap();
    let removed = async {
        eventually("it is asked to stop", || calls(&stage, "StopContainer").len() > 1).await;
        timeout(secs(5), runtime.forget_pod(web.uid())).await.unwrap().unwrap();
    };
    tokio::select! {
        _ = stop(&runtime, &slow, 600) => panic!("it does not stop"),
        () = removed => {}
    }
    assert_eq!(stage.cri.running(), ["slow/main#0"]);
    assert_eq!(stage.cri.holds(), (1, 1));
}

#[tokio::test]
async fn an_image_that_is_not_there_is_a_clear_reason_and_no_obstacle_to_others() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.retry.initial = Duration::from_millis(500);
    let runtime = CriRuntime::open(config).await.unwrap();
    let mut absent = container_of("absent", POLITE);
    absent["image"] = json!("elsewhere/app:1");
    let mut forbidden = container_of("forbidden", POLITE);
    forbidden["image"] = json!("registry/app:2");
    forbidden["imagePullPolicy"] = json!("Never");
    let mut pulled = container_of("pulled", POLITE);
    pulled["image"] = json!("registry/app:3");
    let pod = pod("web", &json!({"containers": [absent, forbidden, pulled]}));
    let synced = runtime.sync_pod(&pod).await.unwrap();
    let seen = &synced.status.containers;
    let reasons = [waits_for(&seen[0]), waits_for(&seen[1])];
    assert_eq!(reasons, ["ErrImagePull", "ErrImageNeverPull"]);
    assert!(is_running(&seen[2]));
    assert!(synced.again_in.unwrap() <= Duration::from_millis(500));
    sync_until(&runtime, &pod, |c| waits_for(&c[0]) == "ImagePullBackOff").await;
    stage.cri.set_image("elsewhere/app:1", true);
    stage.cri.set_image("registry/app:2", true);
    run(&runtime, &pod).await;
}

#[tokio::test]
async fn a_container_the_runtime_refuses_is_tried_again_and_others_run_meanwhile() {
    for (call, reason) in
        [("CreateContainer", "CreateContainerError"), ("StartContainer", "RunContainerError")]
    {
        let stage = Fake::set().await;
        let mut config = stage.config();
        config.retry.initial = Duration::from_millis(400);
        let runtime = CriRuntime::open(config).await.unwrap();
        let pod = polite("web");
        stage.cri.script(call, 1, Fault::Error("no such cgroup"));
        let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
        assert_eq!(waits_for(&seen[0]), reason);
        run(&runtime, &pod).await;
        assert_eq!(stage.cri.most_starts(), 1);
    }
}

#[tokio::test]
async fn without_events_and_pids_an_exit_is_found_by_the_listing() {
    let stage = Fake::set().await;
    stage.cri.script("GetContainerEvents", 1000, Fault::Unimplemented);
    let mut config = stage.config();
    config.times.relist = Duration::from_millis(200);
    let runtime = CriRuntime::open(config).await.unwrap();
    let (pod, gate) = stage.gated("web", Act { run: "gate", code: 6, ..POLITE });
    run(&runtime, &pod).await;
    gate.open();
    let seen = crate::bed::status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 6);
    assert_eq!(calls(&stage, "GetContainerEvents").len(), 1, "the lack is remembered");
}

#[tokio::test]
async fn only_the_last_dead_container_of_a_name_is_kept() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = pod("web", &json!({"containers": [container_of("main", Act::exits(1))]}));
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 4).await;
    eventually("dead containers are removed", || stage.cri.holds().0 <= 2).await;
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn the_file_of_a_dead_runs_first_process_is_removed_with_the_run() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let file = stage.config().paths.state.join("pods/uid-web/messages/main/0.process");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "{}").unwrap();
    let pod = pod("web", &json!({"containers": [container_of("main", Act::exits(1))]}));
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 2).await;
    eventually("the file of the first run is removed", || !file.exists()).await;
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn a_liveness_probe_that_fails_has_the_container_started_again() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let reported = Arc::new(ReportedExits::default());
    runtime.record_to(&(Arc::clone(&reported) as Arc<dyn Recorder>));
    let mut main = container_of("main", POLITE);
    main["livenessProbe"] = json!({"exec": {"command": ["exit 1"]}, "periodSeconds": 1,
        "failureThreshold": 1});
    let pod = pod("web", &json!({"containers": [main]}));
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 1 && is_running(&c[0])).await;
    eventually("the exit is reported", || !reported.0.lock().unwrap().is_empty()).await;
    let (_, _, failed, line, _) = reported.0.lock().unwrap()[0].clone();
    assert_eq!(failed, Some(EndCause::Probe(ProbeKind::Liveness)));
    assert!(line.is_some(), "the probe said something");
    stop(&runtime, &pod, 5).await;
    // To the next agent, what only was restarted has crashed.
    eventually("the stop is noted", || !requests(stage.dir()).is_empty()).await;
    assert!(!requests(stage.dir()).iter().any(|note| note.ends_with("main/0.asked")));
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_a_probe_does_not_condemn_the_container() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["livenessProbe"] = json!({"exec": {"command": ["exit 1"]}, "periodSeconds": 1,
        "failureThreshold": 1});
    main["readinessProbe"] = json!({"exec": {"command": ["exit 0"]}, "periodSeconds": 1});
    stage.cri.script("ExecSync", 4, Fault::Error("the shim is busy"));
    let pod = pod("web", &json!({"containers": [main]}));
    run(&runtime, &pod).await;
    eventually("probes were asked", || calls(&stage, "ExecSync").len() >= 4).await;
    let seen = runtime.pod_status(pod.uid()).await.unwrap().containers;
    assert_eq!((seen[0].restart_count, is_running(&seen[0])), (0, true));
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn a_probe_under_way_is_not_given_up_at_the_runtime_when_the_pod_stops() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["readinessProbe"] = json!({"exec": {"command": ["sleep 1"]}, "timeoutSeconds": 5});
    let pod = pod("web", &json!({"containers": [main]}));
    run(&runtime, &pod).await;
    eventually("a probe was asked", || !calls(&stage, "ExecSync").is_empty()).await;
    stop(&runtime, &pod, 5).await;
    eventually("its command ends", || stage.cri.commands() != (0, 0)).await;
    assert_eq!(stage.cri.commands().1, 0, "containerd's shim would have been busy for 30 s");
}

#[tokio::test]
async fn a_pre_stop_command_that_hangs_leaves_time_for_sigterm() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["sleep 1000"]}}});
    let pod = pod("web", &json!({"containers": [main]}));
    run(&runtime, &pod).await;
    let began = Instant::now();
    let stopped = stop(&runtime, &pod, 4).await;
    assert!(!stopped.forced() && began.elapsed() < secs(10), "{:?}", began.elapsed());
    assert_eq!(calls(&stage, "ExecSync"), ["ExecSync main sleep 1000"]);
}

#[tokio::test]
async fn a_container_whose_post_start_hook_fails_is_started_again() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["lifecycle"] = json!({"postStart": {"exec": {"command": ["exit 3"]}}});
    let pod = pod("web", &json!({"containers": [main]}));
    sync_until(&runtime, &pod, |c| c[0].restart_count >= 1).await;
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn what_is_not_supported_refuses_the_pod_and_names_the_field() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let spec = json!({"containers": [container_of("main", POLITE)],
        "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]});
    let error = runtime.sync_pod(&pod("web", &spec)).await.unwrap_err();
    let named =
        matches!(&error, RuntimeError::Unsupported { field, .. } if field == "spec.volumes[0].nfs");
    assert!(named, "{error}");
    assert_eq!(stage.cri.holds(), (0, 0));
}

#[tokio::test]
async fn a_garbage_call_that_fails_is_an_error_and_works_the_next_time() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let pod = polite("web");
    run(&runtime, &pod).await;
    stop(&runtime, &pod, 5).await;
    stage.cri.script("StopPodSandbox", 1, Fault::Error("busy"));
    stage.cri.script("RemoveContainer", 1, Fault::Error("busy"));
    stage.cri.script("RemovePodSandbox", 1, Fault::Error("busy"));
    let error = runtime.clean_pod(pod.uid()).await.unwrap_err();
    assert!(
        error_chain(&error).contains("stopping the sandbox of pod uid-web"),
        "{}",
        error_chain(&error)
    );
    runtime.clean_pod(pod.uid()).await.unwrap();
    assert!(runtime.forget_pod(pod.uid()).await.is_err());
    assert!(runtime.forget_pod(pod.uid()).await.is_err());
    runtime.forget_pod(pod.uid()).await.unwrap();
    assert_eq!(stage.cri.holds(), (0, 0));
}

/// Slices that only tell what was asked of them.
#[derive(Debug)]
struct Told {
    asked: mpsc::Sender<String>,
    answers: bool,
}

impl Told {
    fn answer(&self, asked: String) -> BoxFuture<'_, Result<(), UnitError>> {
        self.asked.send(asked).unwrap();
        let silent = || UnitError::Silent { call: "StopUnit", why: "no bus".to_owned() };
        Box::pin(std::future::ready(self.answers.then_some(()).ok_or_else(silent)))
    }
}

impl PodSlices for Told {
    fn make(
        &self,
        slice: String,
        description: String,
        cpu_weight: u64,
    ) -> BoxFuture<'_, Result<(), UnitError>> {
        self.answer(format!("make {slice} ({description}) {cpu_weight}"))
    }

    fn weigh(&self, slice: String, cpu_weight: u64) -> BoxFuture<'_, Result<(), UnitError>> {
        self.answer(format!("weigh {slice} {cpu_weight}"))
    }

    fn stop(&self, slice: String) -> BoxFuture<'_, Result<(), UnitError>> {
        self.answer(format!("stop {slice}"))
    }
}

#[tokio::test]
async fn a_container_is_killed_as_a_whole_where_control_groups_say_so_and_has_only_its_own_huge_pages()
 {
    for (controllers, sizes, expected) in [
        (
            "cpu memory hugetlb",
            &["2048kB", "1048576kB"][..],
            "web/main#0 1GB=0 2MB=4194304 memory.oom.group=1",
        ),
        // Such a setting fails a start where the kernel does not limit memory, as on a Raspberry Pi.
        ("cpu hugetlb", &["2048kB"], "web/main#0 2MB=4194304"),
        // And with CRI-O where it does not limit huge pages.
        ("cpu", &["2048kB", "1048576kB"], "web/main#0 2MB=4194304"),
        ("cpu memory", &[], "web/main#0 2MB=4194304 memory.oom.group=1"),
    ] {
        let stage = Fake::set().await;
        let mut config = stage.config();
        config.cgroups.mount = stage.dir.path().join("cgroup");
        config.paths.sys = stage.dir.path().join("sys");
        std::fs::create_dir(&config.cgroups.mount).unwrap();
        std::fs::write(config.cgroups.mount.join("cgroup.controllers"), controllers).unwrap();
        for size in sizes {
            let pages = format!("kernel/mm/hugepages/hugepages-{size}");
            std::fs::create_dir_all(config.paths.sys.join(pages)).unwrap();
        }
        let runtime = CriRuntime::open(config).await.unwrap();
        let mut main = container_of("main", POLITE);
        main["resources"] = json!({"limits": {"hugepages-2Mi": "4Mi"}});
        run(&runtime, &pod("web", &json!({"containers": [main]}))).await;
        assert_eq!(stage.cri.limits(), [expected], "{controllers} {sizes:?}");
    }
}

#[tokio::test]
async fn systemd_is_told_the_weights_of_pods_and_classes_where_it_manages_their_control_groups() {
    let weights = vec![
        "make winddown-burstable-poduid_web.slice (Pod default/web) 20",
        "weigh winddown-burstable.slice 20",
        "weigh winddown-besteffort.slice 1",
    ];
    for (controllers, driver, expected) in [
        ("cpu memory", CgroupDriver::Systemd, weights),
        // Here weights are written, if there are files for them.
        ("cpu memory", CgroupDriver::Cgroupfs, vec![]),
        ("memory", CgroupDriver::Systemd, vec![]),
    ] {
        let stage = Fake::set().await;
        let (asked, slices) = mpsc::channel();
        let mut config = stage.config();
        config.cgroups.mount = stage.dir.path().join("cgroup");
        std::fs::create_dir(&config.cgroups.mount).unwrap();
        std::fs::write(config.cgroups.mount.join("cgroup.controllers"), controllers).unwrap();
        config.cgroups.driver = Some(driver);
        config.cgroups.slices = Some(Arc::new(Told { asked, answers: true }));
        let runtime = CriRuntime::open(config).await.unwrap();
        let mut main = container_of("main", POLITE);
        main["resources"] = json!({"requests": {"cpu": "500m"}});
        let web = pod("web", &json!({"containers": [main]}));
        run(&runtime, &web).await;
        assert_eq!(
            slices.try_iter().collect::<Vec<String>>(),
            expected,
            "{controllers} {driver:?}"
        );
    }
}

#[tokio::test]
async fn the_slices_of_a_forgotten_pod_are_stopped_where_systemd_manages_control_groups() {
    let of_web = vec![
        "stop winddown-poduid_web.slice",
        "stop winddown-burstable-poduid_web.slice",
        "stop winddown-besteffort-poduid_web.slice",
    ];
    for (driver, expected) in [(CgroupDriver::Systemd, of_web), (CgroupDriver::Cgroupfs, vec![])] {
        let stage = Fake::set().await;
        let (asked, slices) = mpsc::channel();
        let mut config = stage.config();
        config.cgroups.driver = Some(driver);
        config.cgroups.slices = Some(Arc::new(Told { asked, answers: true }));
        let runtime = CriRuntime::open(config).await.unwrap();
        let (web, other) = (polite("web"), polite("other"));
        run(&runtime, &web).await;
        run(&runtime, &other).await;
        stop(&runtime, &web, 5).await;
        clean(&runtime, web.uid()).await;
        assert_eq!(slices.try_iter().next(), None, "it may come back");
        forget(&runtime, &web).await;
        assert_eq!(slices.try_iter().collect::<Vec<String>>(), expected, "{driver:?}");
    }
}

#[tokio::test]
async fn a_slice_that_cannot_be_stopped_keeps_no_pod() {
    let stage = Fake::set().await;
    let (asked, slices) = mpsc::channel();
    let mut config = stage.config();
    config.cgroups.driver = Some(CgroupDriver::Systemd);
    config.cgroups.slices = Some(Arc::new(Told { asked, answers: false }));
    let runtime = CriRuntime::open(config).await.unwrap();
    for name in ["web", "other"] {
        let pod = polite(name);
        run(&runtime, &pod).await;
        stop(&runtime, &pod, 5).await;
        forget(&runtime, &pod).await;
        assert_eq!(slices.try_iter().count(), 3, "systemd is asked again");
    }
    assert_eq!(stage.cri.holds(), (0, 0));
}

#[tokio::test]
async fn two_agents_do_not_share_a_state_directory() {
    let stage = Fake::set().await;
    let first = stage.open_now().await;
    let error = CriRuntime::open(stage.config()).await.unwrap_err().to_string();
    assert!(error.ends_with("is held by another agent: stop it first"), "{error}");
    drop(first);
    let mut config = stage.config();
    config.endpoint = "tcp://127.0.0.1:1".to_owned();
    let error = CriRuntime::open(config).await.unwrap_err().to_string();
    assert!(error.contains("write unix:///path/to/socket"), "{error}");
}

#[tokio::test]
async fn a_container_whose_image_changed_is_ended_and_started_anew_whatever_its_policy() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let of = |image: &str| {
        let mut main = container_of("main", POLITE);
        main["image"] = json!(image);
        main["imagePullPolicy"] = json!("IfNotPresent");
        let other = container_of("other", POLITE);
        pod("web", &json!({"restartPolicy": "Never", "containers": [main, other]}))
    };
    run(&runtime, &of("registry/app:1")).await;
    let new = of("registry/app:2");
    let first = runtime.sync_pod(&new).await.unwrap().status.containers;
    assert_eq!(first[0].image, "registry/app:1", "the old container shows the new image");
    let seen = sync_until(&runtime, &new, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    assert_eq!((seen[0].image.as_str(), exit_of_last(&seen[0])), ("registry/app:2", Some(0)));
    assert_eq!((seen[1].restart_count, is_running(&seen[1])), (0, true));
    let running = || {
        let mut running = stage.cri.running();
        running.sort();
        running
    };
    assert_eq!(running(), ["web/main#1", "web/other#0"]);
    // The next agent knows which image runs.
    drop(runtime);
    let runtime = stage.open_now().await;
    let newest = of("registry/app:3");
    let seen =
        sync_until(&runtime, &newest, |c| c[0].restart_count == 2 && is_running(&c[0])).await;
    assert_eq!(seen[0].image, "registry/app:3");
    assert!(is_running(&runtime.sync_pod(&newest).await.unwrap().status.containers[0]));
    assert_eq!(running(), ["web/main#2", "web/other#0"]);
}

fn exit_of_last(container: &winddown_shared::ContainerStatus) -> Option<i32> {
    container.last_exit.as_ref().map(|exit| exit.exit_code)
}

#[tokio::test]
async fn pulls_wait_for_those_before_them_however_long_they_take() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.parallel_pulls = 1;
    config.starts.patience = Duration::from_millis(50);
    let runtime = CriRuntime::open(config).await.unwrap();
    stage.cri.script("PullImage", 1, Fault::Slow(Duration::from_millis(1500)));
    let pulled = |name: &str| {
        let mut container = container_of(name, POLITE);
        container["image"] = json!(format!("registry/{name}:1"));
        container
    };
    let web = pod("web", &json!({"containers": [pulled("a"), pulled("b")]}));
    let pulls = || calls(&stage, "PullImage").len();
    let up = run(&runtime, &web);
    tokio::pin!(up);
    let first = async {
        while pulls() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        pulls()
    };
    let at_once = tokio::select! {
        () = &mut up => panic!("the slow pull was not waited for"),
        pulls = first => pulls,
    };
    assert_eq!(at_once, 1);
    up.await;
    assert_eq!(pulls(), 2);
}

#[tokio::test]
async fn a_pod_that_asks_for_an_address_waits_for_it_and_does_not_fail() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    config.node.addresses.clear();
    let runtime = CriRuntime::open(config).await.unwrap();
    let mut main = container_of("main", POLITE);
    main["env"] =
        json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]);
    let web = pod("web", &json!({"containers": [main]}));
    // With a route it runs, without one it waits, and says what for.
    let synced = runtime.sync_pod(&web).await.unwrap();
    let seen = &synced.status.containers[0];
    if !is_running(seen) {
        assert_eq!(waits_for(seen), "CreateContainerConfigError");
        assert!(synced.again_in.unwrap() <= secs(1), "{:?}", synced.again_in);
    }
}
