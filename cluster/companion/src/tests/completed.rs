//! Pods that complete by themselves, or whose containers a kubelet starts again: no one has asked for their end.

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use tokio::time::sleep;
use winddown_shared::Lifecycle;

use super::called_off::agent;
use super::pods::*;
use super::world::*;

/// The pod of a Job with a sidecar. Both containers are in these states.
fn job(phase: &str, main: &Value, sidecar: &Value) -> api::Pod {
    let mut proxy = running();
    (proxy["name"], proxy["state"]) = (json!("proxy"), sidecar["state"].clone());
    let sidecar = json!({"name": "proxy", "image": "x", "restartPolicy": "Always"});
    pod(
        "job",
        json!({
            "spec": {"restartPolicy": "Never", "initContainers": [sidecar]},
            "status": {
                "phase": phase, "containerStatuses": [main], "initContainerStatuses": [proxy],
            },
        }),
    )
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_done_is_not_evicted_while_the_kubelet_stops_its_sidecar() {
    for (code, phase) in [(0, "Succeeded"), (1, "Failed")] {
        let (world, core) = World::new([job("Running", &running(), &running())]).await;
        let workers = agent(&core).await;
        world.apply(job("Running", &terminated(code), &running()));
        sleep(secs(30)).await;
        assert_eq!(world.log(), [""; 0], "{code}");
        assert_eq!(workers.lifecycle(&uid("job")), Some(Lifecycle::Syncing), "{code}");
        world.state().running.remove(&uid("job"));
        world.apply(job(phase, &terminated(code), &terminated(0)));
        sleep(secs(1)).await;
        assert!(workers.lifecycle(&uid("job")) >= Some(Lifecycle::Terminated), "{code}");
        assert_eq!(world.log(), [""; 0], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_done_before_the_agent_started_is_not_evicted_either() {
    let (world, core) = World::new([job("Running", &terminated(0), &running())]).await;
    let _workers = agent(&core).await;
    sleep(secs(700)).await;
    assert_eq!(world.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_the_kubelet_starts_again_in_its_place_costs_no_pod_its_life() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    let container = json!({
        "name": "a", "image": "x", "restartPolicy": "Never", "restartPolicyRules": [rule],
    });
    let with = |status: Value| {
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        pod("web", json!({"spec": spec, "status": {"containerStatuses": [status]}}))
    };
    let mut waiting = terminated(42);
    waiting["lastState"] = waiting["state"].take();
    waiting["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let (world, core) = World::new([with(running())]).await;
    let workers = agent(&core).await;
    for status in [terminated(42), waiting] {
        world.apply(with(status));
        sleep(secs(30)).await;
        assert_eq!(world.log(), [""; 0]);
        assert_eq!(workers.lifecycle(&uid("web")), Some(Lifecycle::Syncing));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_failed_and_still_runs_is_left_to_the_kubelet_until_the_node_goes_down() {
    for is_going_down in [false, true] {
        let failed = json!({"status": {"phase": "Failed"}});
        let (world, core) = World::new([pod("web", failed)]).await;
        if is_going_down {
            world.set_going_down();
        }
        assert_eq!(waits(&core, "web", 30, 20).await, !is_going_down);
        let stopped = is_going_down.then_some("0: stop uid-web 30");
        assert_eq!(world.log(), Vec::from_iter(stopped));
    }
}
