//! The systemd runtime where its service manager does not do what one hopes for.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use winddown_runtimes::systemd::SystemdRuntime;
use winddown_shared::{Grace, ON_REBOOT_ANNOTATION, Pod, Runtime as _, RuntimeError};

use crate::bed::{
    Act, PATIENCE, POLITE, STUBBORN, eventually, exit_of, is_running, pod, run, secs, status_until,
    stop, sync_until, watched,
};
use crate::stage::Stage as _;
use crate::stages::Services;
use crate::units::{LocalUnits, nothing_loaded};

fn one(container: &Value) -> Value {
    json!({"restartPolicy": "Never", "containers": [container]})
}

fn sh(script: &str) -> Value {
    json!({"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]})
}

fn mains(units: &LocalUnits) -> Vec<String> {
    units.names().into_iter().filter(|name| name.ends_with("-main-0.service")).collect()
}

#[tokio::test]
async fn a_start_that_was_not_answered_is_found_and_not_made_again() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.units.lose_answers(true);
    let error = runtime.sync_pod(&pod).await.unwrap_err();
    assert!(error.to_string().contains("cannot start container main"), "{error}");
    stage.units.lose_answers(false);
    let seen = sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    assert_eq!(seen[0].restart_count, 0);
    assert_eq!(mains(&stage.units).len(), 1);
    stop(&runtime, &pod, 20).await;
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn a_pod_is_not_stopped_while_a_start_of_it_may_have_been_carried_out() {
    let stage = Services::set().await;
    let mut config = stage.config();
    config.kill_timeout = Duration::from_millis(400);
    let runtime = SystemdRuntime::open(config, stage.units.clone()).await.unwrap();
    let pod = pod("web", &one(&sh("exec sleep 1000")));
    // The log's writer is answered for, the container is not.
    let first = runtime.sync_pod(&pod);
    stage.units.lose_answers(true);
    first.await.unwrap_err();
    stage.units.hang(true);
    let grace = || Grace::fixed(secs(5));
    let error = runtime.stop_pod(pod.uid(), Some(&pod), grace()).await.unwrap_err();
    assert!(error.to_string().contains("are unknown"), "{error}");
    stage.units.hang(false);
    runtime.stop_pod(pod.uid(), Some(&pod), grace()).await.unwrap();
    assert!(!runtime.list_pods().await.unwrap()[0].running);
    assert_eq!(mains(&stage.units), Vec::<String>::new());
}

#[tokio::test]
async fn a_service_manager_that_hangs_fails_the_stop_and_the_next_one_succeeds() {
    let stage = Services::set().await;
    let mut config = stage.config();
    config.kill_timeout = Duration::from_millis(400);
    let runtime = SystemdRuntime::open(config, stage.units.clone()).await.unwrap();
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    stage.units.hang(true);
    let began = Instant::now();
    let stopped = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(1))).await;
    let error = stopped.unwrap_err();
    assert!(error.to_string().contains("whether container main"), "{error}");
    assert!(began.elapsed() < secs(10));
    assert!(runtime.list_pods().await.unwrap()[0].running);
    stage.units.hang(false);
    stop(&runtime, &pod, 5).await;
    assert!(!runtime.list_pods().await.unwrap()[0].running);
    nothing_loaded(&stage.units).await;
}

/// As on a Raspberry Pi, whose kernel counts no memory until its command line says so.
#[tokio::test]
async fn pods_of_a_kernel_that_counts_no_memory_of_groups_are_measured_by_their_processes() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let pod = pod("web", &one(&sh("x=$(head -c 12000000 /dev/zero | tr '\\0' x); sleep 1000")));
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    let held = async {
        let bytes =
            async || runtime.pod_stats(None).await.unwrap().unwrap()[0].1.memory_working_set;
        while bytes().await.is_none_or(|bytes| bytes < 12_000_000) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, held).await.expect("its memory is measured");
    stop(&runtime, &pod, 5).await;
}

#[tokio::test]
async fn a_service_manager_that_is_busy_delays_neither_the_stop_signal_nor_sigkill() {
    let stage = Services::set().await;
    let mut config = stage.config();
    config.proc_root = stage.dir().join("proc");
    std::fs::create_dir(&config.proc_root).unwrap();
    std::os::unix::fs::symlink("/proc/sys", config.proc_root.join("sys")).unwrap();
    let runtime = SystemdRuntime::open(config.clone(), stage.units.clone()).await.unwrap();
    let polite = pod("polite", &one(&stage.container("main", Act { stop_code: 3, ..POLITE })));
    let stubborn = pod("stubborn", &one(&stage.container("main", STUBBORN)));
    for pod in [&polite, &stubborn] {
        stage.up(&runtime, pod).await;
    }
    for unit in mains(&stage.units) {
        // As systemd places its processes.
        let process = config.proc_root.join(stage.units.pid(&unit).to_string());
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(process.join("cgroup"), format!("0::/winddown.slice/{unit}\n")).unwrap();
    }
    stage.units.signal_late();
    let stopped = stop(&runtime, &polite, 2).await;
    assert_eq!((stopped.containers[0].exit_code, stopped.forced()), (3, false));
    let asked = Instant::now();
    let stopping = runtime.stop_pod(stubborn.uid(), Some(&stubborn), Grace::fixed(secs(1)));
    let ends = eventually("it is killed", || mains_ended(&stage));
    let (stopped, ()) = tokio::join!(stopping, async {
        ends.await;
        assert!(asked.elapsed() < secs(3), "{:?}", asked.elapsed());
    });
    assert!(stopped.unwrap().forced());
}

#[tokio::test]
async fn a_reload_that_says_every_unit_is_unloaded_ends_nothing() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    stage.units.reload();
    // Heard after the reload, so the reload was judged by then.
    let other = crate::bed::pod("other", &one(&stage.container("main", Act::exits(0))));
    sync_until(&runtime, &other, |c| exit_of(&c[0]).is_some()).await;
    let status = runtime.sync_pod(&pod).await.unwrap().status;
    assert!(is_running(&status.containers[0]) && status.containers[0].restart_count == 0);
    assert!(!stop(&runtime, &pod, 20).await.forced());
}

#[tokio::test]
async fn a_missed_end_is_found_when_changes_arrive_again() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let (pod, gate) = stage.gated("web", Act { run: "gate", code: 9, ..POLITE });
    run(&runtime, &pod).await;
    stage.units.mute(true);
    gate.open();
    eventually("the container has ended", || mains_ended(&stage)).await;
    assert!(is_running(&runtime.pod_status(pod.uid()).await.unwrap().containers[0]));
    stage.units.mute(false);
    let seen = status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 9);
    nothing_loaded(&stage.units).await;
}

fn mains_ended(stage: &Services) -> bool {
    mains(&stage.units).iter().all(|unit| stage.units.has_ended(unit))
}

#[tokio::test]
async fn a_unit_that_is_gone_without_a_word_has_an_unknown_exit() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    stage.units.lose(&mains(&stage.units)[0]);
    let seen = status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (137, "ContainerStatusUnknown"));
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn a_pod_whose_units_would_have_too_long_names_is_refused() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    // As long as the name of the directory of its logs may be, and each `-` takes four bytes in a unit's name.
    let pod = pod(&"x-".repeat(50), &one(&stage.container("main", POLITE)));
    let error = runtime.sync_pod(&pod).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Unsupported { field, .. } if field == "metadata.uid"));
}

#[tokio::test]
async fn a_failing_container_that_was_not_ended_is_ended_when_the_service_manager_is_back() {
    let stage = Services::set().await;
    let mut config = stage.config();
    config.kill_timeout = Duration::from_millis(400);
    let runtime = SystemdRuntime::open(config, stage.units.clone()).await.unwrap();
    let (main, listener) = watched(stage.container("main", POLITE));
    let pod = pod("web", &json!({"terminationGracePeriodSeconds": 1, "containers": [main]}));
    stage.up(&runtime, &pod).await;
    let mut changes = runtime.changes();
    stage.units.hang(true);
    drop(listener);
    timeout(PATIENCE, changes.recv()).await.expect("the container fails").unwrap();
    runtime.sync_pod(&pod).await.unwrap();
    timeout(PATIENCE, changes.recv()).await.expect("it could not be terminated").unwrap();
    stage.units.hang(false);
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    assert_eq!(seen[0].last_exit.as_ref().unwrap().exit_code, 137);
    stop(&runtime, &pod, 5).await;
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn a_pod_survives_a_soft_reboot_if_it_asks_may_and_was_started_so() {
    let stage = Services::set().await;
    let annotated = |name: &str, value: Option<&str>| {
        let spec = json!({"containers": [stage.container("main", POLITE)]});
        let mut object = pod(name, &spec).object().clone();
        let value = value.map(|value| (ON_REBOOT_ANNOTATION.to_owned(), value.to_owned()));
        object.metadata.annotations = Some(value.into_iter().collect());
        Pod::new(object).unwrap()
    };
    let asks = annotated("asks", Some("survive"));
    let others = [annotated("restarts", Some("restart")), annotated("silent", None)];
    let mut config = stage.config();
    config.next_root = stage.dir().join("nextroot");
    let before = SystemdRuntime::open(config.clone(), stage.units.clone()).await.unwrap();
    let early = annotated("early", Some("survive"));
    stage.up(&before, &early).await;
    drop(before);

    config.survivors.namespaces.insert("default".to_owned());
    for adopted in [false, true] {
        let runtime = SystemdRuntime::open(config.clone(), stage.units.clone()).await.unwrap();
        for pod in [&asks].into_iter().chain(&others) {
            stage.up(&runtime, pod).await;
        }
        assert!(runtime.survives_soft_reboot(asks.uid()), "adopted: {adopted}");
        for pod in others.iter().chain([&early]) {
            assert!(!runtime.survives_soft_reboot(pod.uid()), "{}", pod.name());
        }
        assert!(!runtime.survives_soft_reboot(pod("unknown", &one(&sh("true"))).uid()));
        std::fs::create_dir(&config.next_root).unwrap();
        assert!(
            !runtime.survives_soft_reboot(asks.uid()),
            "the old root would be left to it alone"
        );
        std::fs::remove_dir(&config.next_root).unwrap();
    }

    config.survivors.impossible =
        Some("systemd 252 stops all services at a soft-reboot: use 257 or later".to_owned());
    let runtime = SystemdRuntime::open(config, stage.units.clone()).await.unwrap();
    let error = runtime.sync_pod(&annotated("late", Some("survive"))).await.unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("systemd 252 stops all services at a soft-reboot: use 257 or later"),
        "{said}"
    );
    assert!(said.contains("metadata.annotations[winddown.dev/on-reboot]"), "{said}");
    runtime.supports(&others[0]).unwrap();
    for pod in others.iter().chain([&asks, &early]) {
        stop(&runtime, pod, 20).await;
    }
    nothing_loaded(&stage.units).await;
}

/// What a boot leaves: no unit, nothing of the memory, and records of an earlier boot.
fn boot(stage: &Services) {
    for unit in stage.units.names() {
        stage.units.lose(&unit);
    }
    let root = stage.gates().join("..");
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut dirs = vec![root.join("state/pods")];
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                std::fs::write(&path, text.replace(boot.trim(), "the-boot-before")).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_pod_that_runs_once_does_not_run_twice_when_the_power_cut_took_the_record_of_its_start() {
    let stage = Services::set().await;
    let file = stage.gates().join("ran");
    let pod = pod("web", &one(&sh(&format!("echo ran >> {}; exec sleep 1000", file.display()))));
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    let runtime = stage.open().await;
    run(&runtime, &pod).await;
    eventually("it ran", || written().contains("ran")).await;
    drop(runtime);
    let record = format!("../state/pods/{}/main/0/unit.json", pod.uid());
    let record = stage.gates().join(record);
    let unsynced = std::fs::read_to_string(&record).unwrap().replace("true", "false");
    std::fs::write(&record, unsynced).unwrap();
    boot(&stage);
    let runtime = stage.open().await;
    let synced = runtime.sync_pod(&pod).await.unwrap();
    assert_eq!(exit_of(&synced.status.containers[0]).unwrap().exit_code, 137);
    assert_eq!(written(), "ran\n");
}

#[tokio::test]
async fn values_of_the_environment_are_kept_in_memory_only() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let mut main = sh("exec sleep 1000");
    main["env"] = json!([{"name": "TOKEN", "value": "s3cret"}]);
    let pod = pod("web", &one(&main));
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    let record = |path: String| std::fs::read_to_string(stage.gates().join(path)).unwrap();
    assert!(!record(format!("../state/pods/{}/pod.json", pod.uid())).contains("s3cret"));
    assert!(record(format!("../run/{}.json", pod.uid())).contains("s3cret"));
    stop(&runtime, &pod, 0).await;
    runtime.forget_pod(pod.uid()).await.unwrap();
    assert_eq!(std::fs::read_dir(stage.gates().join("../run")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_pods_slice_weighs_what_the_pod_asks_for() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let mut main = sh("exec sleep 1000");
    main["resources"] = json!({"requests": {"cpu": "1"}});
    let asks = pod("asks", &one(&main));
    let nothing = pod("nothing", &one(&sh("exec sleep 1000")));
    for pod in [&asks, &nothing] {
        sync_until(&runtime, pod, |c| is_running(&c[0])).await;
    }
    let weight = |name: &str| stage.units.weight(&format!("winddown-poduid\\x2d{name}.slice"));
    assert_eq!((weight("asks"), weight("nothing")), (Some(39), Some(1)));
    stop(&runtime, &asks, 0).await;
    stop(&runtime, &nothing, 0).await;
}
