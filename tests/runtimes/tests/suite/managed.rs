//! What the systemd runtime does on any service manager: a small one, and systemd itself.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use winddown_shared::{Grace, Runtime as _};

use crate::bed::secs;
use crate::bed::{PATIENCE, POLITE, eventually, exit_of, pod, run, stop, sync_until};
use crate::stage::ManagedStage;

/// Hands the names of all scenarios to a macro.
macro_rules! managed_scenarios {
    ($then:ident $($words:ident)*) => {
        $then! { $($words)* =>
            a_container_whose_record_is_lost_is_listed_and_can_be_ended
            an_exit_while_no_agent_runs_is_known_to_the_next_one_with_its_log
            what_a_container_that_ended_well_left_running_is_ended
            hooks_and_probes_are_units_of_their_own_and_none_is_left
            a_hook_that_does_not_end_leaves_time_for_sigterm
            a_program_that_does_not_exist_is_a_start_error_that_names_it
            many_pods_start_and_end_together
        }
    };
}
pub(crate) use managed_scenarios;

fn one(container: &Value) -> Value {
    json!({"restartPolicy": "Never", "containers": [container]})
}

fn sh(script: &str) -> Value {
    json!({"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]})
}

async fn until_ended<S: ManagedStage>(stage: &S) {
    let deadline = Instant::now() + PATIENCE;
    while !stage.running().await.is_empty() {
        assert!(Instant::now() < deadline, "it goes on: {:?}", stage.running().await);
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn a_container_whose_record_is_lost_is_listed_and_can_be_ended<S: ManagedStage>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let mut spec = one(&stage.container("main", POLITE));
    spec["terminationGracePeriodSeconds"] = json!(7);
    let pod = pod("web", &spec);
    stage.up(&runtime, &pod).await;
    drop(runtime);
    std::fs::remove_dir_all(stage.gates().join("../state/pods").join(pod.uid().as_str())).unwrap();
    let runtime = stage.open().await;
    let listed = runtime.list_pods().await.unwrap();
    assert_eq!((listed.len(), listed[0].running, &*listed[0].name), (1, true, "web"));
    assert_eq!(listed[0].grace, Some(secs(7)));
    let stopped = runtime.stop_pod(&listed[0].uid, None, Grace::fixed(secs(20))).await.unwrap();
    assert_eq!((stopped.containers.len(), stopped.forced()), (1, false));
    stage.nothing_loaded().await;
}

pub(crate) async fn an_exit_while_no_agent_runs_is_known_to_the_next_one_with_its_log<
    S: ManagedStage,
>(
    stage: &S,
) {
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
    until_ended(stage).await;
    let runtime = stage.open().await;
    let synced = runtime.sync_pod(&pod).await.unwrap();
    let exit = exit_of(&synced.status.containers[0]).unwrap();
    assert_eq!(exit.exit_code, 6);
    for line in ["one", "two", "bye"] {
        assert!(exit.message.contains(line), "{}", exit.message);
    }
    stage.nothing_loaded().await;
}

pub(crate) async fn what_a_container_that_ended_well_left_running_is_ended<S: ManagedStage>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let file = stage.gates().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; exit 0", file.display());
    let pod = pod("web", &one(&sh(&script)));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 0);
    let pid = std::fs::read_to_string(&file).unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    eventually("the rest is terminated", || stat().is_empty() || stat().contains(") Z ")).await;
    stage.nothing_loaded().await;
}

pub(crate) async fn hooks_and_probes_are_units_of_their_own_and_none_is_left<S: ManagedStage>(
    stage: &S,
) {
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
    stage.nothing_loaded().await;
}

pub(crate) async fn a_hook_that_does_not_end_leaves_time_for_sigterm<S: ManagedStage>(stage: &S) {
    let runtime = stage.open().await;
    let mut main = stage.container("main", POLITE);
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["/bin/sleep", "1000"]}}});
    let pod = pod("web", &one(&main));
    stage.up(&runtime, &pod).await;
    assert!(!stop(&runtime, &pod, 8).await.forced());
    stage.nothing_loaded().await;
}

pub(crate) async fn a_program_that_does_not_exist_is_a_start_error_that_names_it<
    S: ManagedStage,
>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let main = json!({"name": "main", "image": "none", "command": ["/no/such/program"]});
    let pod = pod("web", &one(&main));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (128, "StartError"));
    assert!(exit.message.contains("/no/such/program"), "{}", exit.message);
}

pub(crate) async fn many_pods_start_and_end_together<S: ManagedStage>(stage: &S) {
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
    stage.nothing_loaded().await;
}
