//! The systemd runtime where its service manager does not do what one hopes for.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use winddown_runtimes::transient::TransientRuntime;
use winddown_shared::{Grace, Runtime as _, RuntimeError};

use crate::bed::{
    Act, POLITE, STUBBORN, eventually, exit_of, is_running, pod, run, secs, status_until, stop,
    sync_until,
};
use crate::stage::{Services, Stage as _};
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
    let runtime = TransientRuntime::open(config, stage.units.clone()).await.unwrap();
    let pod = pod("web", &one(&sh("exec sleep 1000")));
    // The log's writer is answered for, the container is not.
    let first = runtime.sync_pod(&pod);
    stage.units.lose_answers(true);
    first.await.unwrap_err();
    stage.units.hang(true);
    let grace = || Grace::fixed(secs(5));
    let error = runtime.stop_pod(pod.uid(), Some(&pod), grace()).await.unwrap_err();
    assert!(error.to_string().contains("is not known"), "{error}");
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
    let runtime = TransientRuntime::open(config, stage.units.clone()).await.unwrap();
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
async fn an_end_that_nobody_heard_of_is_found_when_changes_are_told_again() {
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
async fn a_container_whose_record_is_lost_is_listed_and_can_be_ended() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    drop(runtime);
    std::fs::remove_dir_all(stage.dir.path().join("state/pods").join(pod.uid().as_str())).unwrap();
    let runtime = stage.open().await;
    let listed = runtime.list_pods().await.unwrap();
    assert_eq!((listed.len(), listed[0].running, &*listed[0].name), (1, true, ""));
    let stopped = runtime.stop_pod(&listed[0].uid, None, Grace::fixed(secs(20))).await.unwrap();
    assert_eq!((stopped.containers.len(), stopped.forced()), (1, false));
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn an_exit_while_no_agent_runs_is_known_to_the_next_one_with_its_log() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let mut main =
        sh("echo one; echo two >&2; until [ -e $0 ]; do sleep 0.02; done; echo bye; exit 6");
    let gate = stage.gates().join("gate");
    main["command"].as_array_mut().unwrap().push(json!(gate));
    main["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let pod = pod("web", &one(&main));
    run(&runtime, &pod).await;
    drop(runtime);
    std::fs::write(&gate, "").unwrap();
    eventually("the container has ended", || mains_ended(&stage)).await;
    let runtime = stage.open().await;
    let synced = runtime.sync_pod(&pod).await.unwrap();
    let exit = exit_of(&synced.status.containers[0]).unwrap();
    assert_eq!(exit.exit_code, 6);
    for line in ["one", "two", "bye"] {
        assert!(exit.message.contains(line), "{}", exit.message);
    }
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn what_a_container_that_ended_well_left_running_is_ended() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let file = stage.gates().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; exit 0", file.display());
    let pod = pod("web", &one(&sh(&script)));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 0);
    let pid = std::fs::read_to_string(&file).unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    eventually("the rest is ended", || stat().is_empty() || stat().contains(") Z ")).await;
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn hooks_and_probes_are_units_of_their_own_and_none_is_left() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let file = stage.gates().join("said");
    let say = |word: &str| {
        json!({"exec": {"command":
        ["/bin/sh", "-c", format!("echo {word} $MARK >> {}", file.display())]}})
    };
    let mut main = stage.container("main", POLITE);
    main["env"] = json!([{"name": "MARK", "value": "mine"}]);
    main["lifecycle"] = json!({"postStart": say("began"), "preStop": say("ends")});
    main["readinessProbe"] = json!({"exec": {"command": ["/bin/sh", "-c", "exit 0"]},
        "periodSeconds": 1});
    let pod = pod("web", &one(&main));
    sync_until(&runtime, &pod, |c| c[0].ready).await;
    stage.hears(&pod).await;
    assert!(!stop(&runtime, &pod, 20).await.forced());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "began mine\nends mine\n");
    runtime.clean_pod(pod.uid()).await.unwrap();
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn a_hook_that_does_not_end_is_ended_with_the_grace() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let mut main = stage.container("main", STUBBORN);
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["/bin/sleep", "1000"]}}});
    let pod = pod("web", &one(&main));
    stage.up(&runtime, &pod).await;
    assert!(stop(&runtime, &pod, 1).await.forced());
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_a_start_error_that_names_it() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let main = json!({"name": "main", "image": "none", "command": ["/no/such/program"]});
    let pod = pod("web", &one(&main));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (128, "StartError"));
    assert!(exit.message.contains("/no/such/program"), "{}", exit.message);
}

#[tokio::test]
async fn many_pods_start_and_end_together_although_changes_are_missed() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let all: Vec<_> =
        (0..24).map(|n| pod(&format!("web-{n}"), &one(&stage.container("main", POLITE)))).collect();
    for synced in futures_util::future::join_all(all.iter().map(|pod| runtime.sync_pod(pod))).await
    {
        synced.unwrap();
    }
    for pod in &all {
        stage.hears(pod).await;
    }
    let stops = all.iter().map(|pod| stop(&runtime, pod, 20));
    for stopped in futures_util::future::join_all(stops).await {
        assert_eq!((stopped.containers.len(), stopped.forced()), (1, false));
    }
    nothing_loaded(&stage.units).await;
}

#[tokio::test]
async fn a_pod_whose_units_would_have_too_long_names_is_refused() {
    let stage = Services::set().await;
    let runtime = stage.open().await;
    let pod = pod(&"x-".repeat(80), &one(&stage.container("main", POLITE)));
    let error = runtime.sync_pod(&pod).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Unsupported { field, .. } if field == "metadata.uid"));
}
