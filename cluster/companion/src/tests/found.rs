//! Pods that only the container runtime has described, because the API server was away when the agent started.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use winddown_shared::{Grace, PodUid, RuntimeError};

use super::super::known::ONLY_FOUND;
use super::super::stop::StopCore;
use super::pods::*;
use super::world::*;

/// The names of the known pods that run, and whether there may be more.
fn known(core: &StopCore<World, World>) -> Option<(Vec<String>, bool)> {
    let complete = core.known.desired().borrow().as_ref()?.complete;
    let running = core.known.list().into_iter().filter(|pod| pod.running);
    let mut names: Vec<String> = running.map(|pod| pod.name.to_string()).collect();
    names.sort();
    Some((names, complete))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_without_the_api_server_asks_the_runtime_and_stops_its_pods_at_once() {
    let (world, core) = World::without_api([pod("web", json!({}))]);
    sleep(secs(2)).await;
    assert_eq!(known(&core), Some((names(&["web"]), false)));
    assert_eq!(core.known.trouble().unwrap(), ONLY_FOUND);
    assert_eq!(core.known.list()[0].grace, Some(secs(40)), "a kubelet records it");
    world.set_going_down();
    let (took, stopped) = stop(&core, "web", 40).await;
    assert_eq!(took, 2, "nothing is waited for but its own end");
    let remark = stopped.unwrap().remark.unwrap();
    assert!(remark.starts_with("the API server has not listed the pod: its cont"), "{remark}");
    assert_eq!(world.log(), ["2: stop the kubelet", "2: stop uid-web 40"]);
    assert_eq!(known(&core), Some((Vec::new(), false)));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_answers_and_lists_slowly_is_waited_for_as_only_it_knows_priorities() {
    let (world, core) = World::starting([pod("web", json!({}))]);
    world.state().list_takes = Duration::from_millis(2500);
    sleep(secs(2)).await;
    world.set_going_down();
    assert!(core.known.desired().borrow().is_none(), "they would be terminated in no order");
    sleep(secs(1)).await;
    assert_eq!(known(&core), Some((names(&["web"]), true)));
    stop(&core, "web", 40).await.1.unwrap();
    assert_eq!(world.log(), ["3: evict web 40", "3: stop uid-web 40"]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_lists_nothing_is_waited_for_as_long_as_that_may_help() {
    let (never, at_once) = (secs(3600), Duration::ZERO);
    for (scene, list_takes, refuses, is_silent, is_going_down, known_after) in [
        ("it answers others", never, None, false, false, 4000),
        ("it answers nothing", never, None, true, false, 1300),
        ("a shutdown has begun", never, None, false, true, 2000),
        ("it is busy", at_once, Some((503, "starting")), false, false, 3000),
        ("it refuses", at_once, Some((403, "no role")), false, false, 1000),
    ] {
        let (world, core) = World::starting([pod("web", json!({}))]);
        {
            let mut state = world.state();
            (state.list_takes, state.refuses_watches) = (list_takes, refuses);
            state.silent = is_silent;
        }
        if is_going_down {
            world.set_going_down();
        }
        core.known.desired().wait_for(Option::is_some).await.unwrap();
        assert_eq!(world.elapsed_ms(), known_after, "{scene}");
        assert_eq!(known(&core), Some((names(&["web"]), false)), "{scene}");
    }
}

/// A wrong name made a node without pods of it, whose shutdown terminated none and was reported as clean.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_api_server_does_not_have_is_none_without_pods() {
    let (world, core) = World::starting([pod("web", json!({}))]);
    world.remove("web");
    world.state().has_no_node = true;
    sleep(secs(5)).await;
    assert_eq!(known(&core), Some((names(&["web"]), false)));
    assert!(core.known.is_refused() && !core.outage.fails());
    let trouble = core.trouble().unwrap();
    assert!(
        trouble.contains("; the API server answers: it has no node n1, as nodeName"),
        "{trouble}"
    );
    world.state().has_no_node = false;
    sleep(secs(60)).await;
    assert_eq!((known(&core), core.trouble()), (Some((Vec::new(), true)), None));
}

#[tokio::test(start_paused = true)]
async fn hooks_that_the_kubelet_recorded_run_once_and_those_that_did_not_are_named() {
    let (world, core) = World::without_api([pod("hook", json!({}))]);
    sleep(secs(2)).await;
    world.set_going_down();
    let remark = stop(&core, "hook", 40).await.1.unwrap().remark.unwrap();
    assert!(remark.ends_with("; the preStop hook of a did not run"), "{remark}");
    let log = world.log();
    assert_eq!(log[1..], ["2: run the hooks of uid-hook", "2: stop uid-hook 40"], "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_start_and_end_meanwhile_are_noticed() {
    let (world, core) = World::without_api([pod("web", json!({}))]);
    sleep(secs(2)).await;
    world.runs_inside("uid-late");
    sleep(secs(11)).await;
    assert_eq!(known(&core), Some((names(&["late", "web"]), false)));
    world.state().running.remove(&uid("late"));
    sleep(secs(11)).await;
    assert_eq!(known(&core), Some((names(&["web"]), false)));
    // A kubelet may start more until it is held.
    world.set_going_down();
    world.runs_inside("uid-later");
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(known(&core), Some((names(&["later", "web"]), false)));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_answer_either_leaves_the_pods_unknown() {
    let (world, core) = World::without_api([pod("web", json!({}))]);
    world.state().runtime_away = true;
    sleep(secs(30)).await;
    assert_eq!(known(&core), None);
    let Err(RuntimeError::Failed { what, .. }) = core.known.listed() else { panic!("unknown") };
    let wanted = "the API server has not listed this node's pods yet, and the container runtime \
                  does not list them: no socket";
    assert_eq!(what, wanted);
    world.state().runtime_away = false;
    sleep(secs(11)).await;
    assert_eq!(known(&core), Some((names(&["web"]), false)));
    // What is known stays known.
    world.state().runtime_away = true;
    sleep(secs(30)).await;
    assert_eq!(known(&core), Some((names(&["web"]), false)));
}

#[tokio::test(start_paused = true)]
async fn a_node_on_which_nothing_runs_is_known_to_be_empty() {
    let (_world, core) = World::without_api([]);
    sleep(secs(2)).await;
    assert_eq!(known(&core), Some((Vec::new(), false)));
    core.known.listed().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_api_servers_first_list_takes_the_place_of_what_was_found() {
    let (world, core) = World::without_api([pod("web", json!({})), pod("old", json!({}))]);
    // The kubelet knows a manifest's pod by another UID than the API server.
    world.runs_inside("static");
    sleep(secs(2)).await;
    assert_eq!(known(&core), Some((names(&["old", "static", "web"]), false)));
    world.remove("old");
    let mirror =
        json!({"kubernetes.io/config.mirror": "static", "kubernetes.io/config.hash": "static"});
    world.apply(pod("mirror", json!({"metadata": {"annotations": mirror}})));
    world.set_api_away(false);
    sleep(secs(11)).await;
    assert_eq!(known(&core), Some((names(&["mirror", "web"]), true)));
    assert_eq!(core.known.trouble(), None);
    // The pod of the manifest goes on under its other UID.
    let remark = core.stop(&PodUid::new("static"), None, Grace::fixed(secs(9))).await;
    assert!(remark.unwrap().remark.unwrap().starts_with("its mirror pod is gone"));
    // From now on pods are stopped through the API server.
    world.set_going_down();
    stop(&core, "web", 60).await.1.unwrap();
    assert_eq!(world.log(), ["13: evict web 60", "13: stop uid-web 60"]);
}

#[tokio::test(start_paused = true)]
async fn a_manifests_pod_whose_mirror_the_api_server_does_not_take_is_known_and_stopped() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    // Its namespace does not exist, say.
    world.runs_inside("static");
    sleep(secs(61)).await;
    assert_eq!(known(&core), Some((names(&["static", "web"]), true)));
    // It is of a manifest: only its file can end it while the node stays up.
    let refused = core.stop(&PodUid::new("static"), None, Grace::fixed(secs(9))).await;
    assert!(refused.unwrap_err().to_string().contains("manifest"));
    world.set_going_down();
    core.stop(&PodUid::new("static"), None, Grace::fixed(secs(9))).await.unwrap();
    let log = world.log();
    assert!(log.iter().any(|line| line.contains("stop static")), "{log:?}");
    assert!(log.iter().all(|line| !line.contains("evict") && !line.contains("delete")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mirror_pod_that_comes_later_takes_the_place_of_the_manifests_pod() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.runs_inside("static");
    sleep(secs(61)).await;
    let mirror =
        json!({"kubernetes.io/config.mirror": "static", "kubernetes.io/config.hash": "static"});
    world.apply(pod("mirror", json!({"metadata": {"annotations": mirror}})));
    sleep(secs(61)).await;
    assert_eq!(known(&core), Some((names(&["mirror", "web"]), true)));
    // Nor does a list take it back.
    world.break_watch();
    sleep(secs(61)).await;
    assert_eq!(known(&core), Some((names(&["mirror", "web"]), true)));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_comes_back_in_the_middle_of_a_shutdown_changes_nothing_until_it_is_called_off()
 {
    let (world, core) = World::without_api([pod("web", json!({})), pod("next", json!({}))]);
    sleep(secs(2)).await;
    world.set_going_down();
    stop(&core, "web", 40).await.1.unwrap();
    world.set_api_away(false);
    sleep(secs(15)).await;
    assert_eq!(known(&core), Some((names(&["next"]), false)));
    assert_eq!(stop(&core, "next", 40).await.0, 2);
    let log = world.log();
    assert!(log.iter().all(|line| !line.contains("evict") && !line.contains("delete")), "{log:?}");
    world.set_staying_up();
    sleep(secs(1)).await;
    assert!(core.known.is_listed());
    assert!(world.log().last().unwrap().ends_with("start the kubelet"), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_up_leaves_found_pods_to_the_kubelet() {
    let (world, core) = World::without_api([pod("web", json!({}))]);
    sleep(secs(2)).await;
    assert!(waits(&core, "web", 60, 30).await);
    let log = world.log();
    assert!(log.iter().all(|line| line.contains("evict") || line.contains("delete")), "{log:?}");
}
