//! PreStop hooks: each runs once, and nothing cuts it short.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::json;
use tokio::time::{Instant, sleep};
use winddown_shared::Grace;

use super::super::config::CompanionConfig;
use super::called_off::{agent, shut_down};
use super::pods::*;
use super::world::*;

/// A pod whose container has a preStop hook.
fn with_hook(name: &str) -> api::Pod {
    let hook = json!({"preStop": {"exec": {"command": ["drain"]}}});
    pod(name, json!({"spec": {"containers": [{"name": "a", "image": "x", "lifecycle": hook}]}}))
}

/// The requests to the container runtime that stop containers of this pod.
fn stops(world: &World, name: &str) -> Vec<String> {
    let of_pod = format!(" uid-{name}");
    let is_one = |line: &String| line.contains("stop ") && line.contains(&of_pod);
    world.log().into_iter().filter(is_one).collect()
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_back_does_not_cut_short_the_hook_that_winddown_runs() {
    let (world, core) = World::new([with_hook("web")]).await;
    let workers = agent(&core).await;
    world.state().takes = secs(20);
    world.set_api_away(true);
    world.set_going_down();
    let stopping = tokio::spawn({
        let core = Arc::clone(&core);
        async move { shut_down(&workers, &core, "web", 60).await }
    });
    sleep(secs(5)).await;
    world.set_api_away(false);
    sleep(secs(5)).await;
    // As the whole seconds of winddown's own deletion may.
    world.delete_by_others("web", secs(30));
    stopping.await.unwrap().unwrap();
    let log = world.log();
    assert!(log.contains(&"1: run the hooks of uid-web".to_owned()), "{log:?}");
    assert_eq!(stops(&world, "web"), ["1: stop uid-web 60"], "{log:?}");
    assert_eq!(world.elapsed_ms() / 1000, 21);
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_was_shortened_before_costs_no_hook_and_one_that_ends_during_it_does() {
    for (during, wanted) in [
        (None, vec!["1: stop uid-web 39"]),
        (Some(10), vec!["1: stop uid-web 39", "10: stop uid-web 1"]),
    ] {
        let (world, core) = World::new([with_hook("web")]).await;
        world.state().takes = secs(20);
        world.set_api_away(true);
        let begun = Instant::now();
        let (sender, grace) = Grace::until(begun + secs(60));
        let stopping = tokio::spawn(async move { core.stop(&uid("web"), None, grace).await });
        sleep(secs(1)).await;
        sender.shorten_to(begun + secs(40));
        world.set_going_down();
        sleep(secs(4)).await;
        if let Some(during) = during {
            sender.shorten_to(begun + secs(during + 1));
        }
        stopping.await.unwrap().unwrap();
        assert_eq!(stops(&world, "web"), wanted, "{:?}", world.log());
        let hooks = world.log().into_iter().filter(|line| line.contains("run the hooks"));
        assert_eq!(hooks.collect::<Vec<_>>(), ["1: run the hooks of uid-web"]);
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_run_without_a_kubelet_that_an_earlier_agent_stopped_though_the_api_server_is_back() {
    let (world, core) = World::starting([with_hook("web")]);
    world.state().kubelet_stopped = true;
    core.known.desired().wait_for(Option::is_some).await.unwrap();
    world.set_going_down();
    assert_eq!(stop(&core, "web", 60).await.0, 3);
    let log = world.log();
    assert!(log.contains(&"1: run the hooks of uid-web".to_owned()), "{log:?}");
    assert_eq!(stops(&world, "web"), ["1: stop uid-web 59"], "{log:?}");
    world.set_staying_up();
    sleep(secs(1)).await;
    assert!(world.log().last().unwrap().ends_with("start the kubelet"), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn hooks_run_without_a_kubelet_that_ended_before_the_shutdown() {
    let (world, core) = World::new([with_hook("web")]).await;
    world.state().stops_after = Duration::from_millis(50);
    world.kill_kubelet();
    sleep(secs(60)).await;
    world.set_going_down();
    let (took, stopped) = stop(&core, "web", 60).await;
    let log = world.log();
    assert!(log.contains(&"60: run the hooks of uid-web".to_owned()), "{log:?}");
    assert!(!log.iter().any(|line| line.contains("the kubelet runs")), "{log:?}");
    let remark = stopped.unwrap().remark.unwrap_or_default();
    assert!(remark.starts_with("the kubelet is gone: "), "{remark}");
    assert_eq!(took, 2);
}

#[tokio::test(start_paused = true)]
async fn the_kubelet_is_not_stopped_while_it_runs_hooks_and_a_hook_that_it_loses_is_named() {
    let lost = "; the preStop hook of a may have been cut short";
    for (takes, stopped_ms, says) in [(10, 10_000, false), (100, 31_000, true)] {
        let (world, core) = World::new([with_hook("told"), pod("web", json!({}))]).await;
        world.state().takes = secs(takes);
        world.set_going_down();
        let told = tokio::spawn({
            let core = Arc::clone(&core);
            async move { stop(&core, "told", 60).await }
        });
        sleep(secs(1)).await;
        world.set_api_away(true);
        stop(&core, "web", 60).await.1.unwrap();
        let stopped = world.first_ms("stop the kubelet").unwrap();
        assert!((stopped_ms..stopped_ms + 200).contains(&stopped), "{:?}", world.log());
        let remark = told.await.unwrap().1.unwrap().remark.unwrap_or_default();
        assert_eq!(remark.ends_with(lost), says, "{remark}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_called_off_while_the_kubelets_hooks_are_awaited_leaves_the_kubelet_running() {
    let (world, core) = World::new([with_hook("told"), pod("web", json!({}))]).await;
    world.state().takes = secs(100);
    world.set_going_down();
    for (name, away) in [("told", true), ("web", true)] {
        let core = Arc::clone(&core);
        tokio::spawn(async move { stop(&core, name, 60).await });
        sleep(secs(1)).await;
        world.set_api_away(away);
    }
    sleep(secs(5)).await;
    world.set_staying_up();
    sleep(secs(90)).await;
    let log = world.log();
    assert!(log.iter().all(|line| !line.ends_with("stop the kubelet")), "{log:?}");
}

/// The kubelet cannot send the stop signal, and only it knows when the hook has run.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_hook_ran_while_the_runtime_went_away_is_asked_to_exit_before_its_time_is_over()
{
    let (world, core) = World::new([with_hook("web")]).await;
    world.set_going_down();
    world.state().takes = secs(600);
    world.state().processes_known = true;
    let stopping = tokio::spawn(async move { stop(&core, "web", 40).await });
    sleep(secs(1)).await;
    world.state().runtime_away = true;
    let (took, stopped) = stopping.await.unwrap();
    assert_eq!((took, stops(&world, "web")), (40, vec!["38: stop uid-web 2".to_owned()]));
    let remark = stopped.unwrap().remark.unwrap();
    assert!(remark.starts_with("the kubelet cannot terminate the pod without"), "{remark}");
}

/// What that agent asked for, the API server had accepted.
#[tokio::test(start_paused = true)]
async fn the_agent_after_one_that_was_killed_leaves_the_kubelet_its_hooks_though_the_api_server_is_away()
 {
    for answers_after in [0, 3] {
        let (world, core) = World::new([with_hook("told"), pod("web", json!({}))]).await;
        world.state().hooks_begun = vec![uid("told")];
        world.state().hooks_unknown = secs(answers_after);
        world.set_api_away(true);
        world.set_going_down();
        let stops_of = |name: &'static str| {
            let core = Arc::clone(&core);
            tokio::spawn(async move { stop(&core, name, 60).await })
        };
        let (web, told) = (stops_of("web"), stops_of("told"));
        sleep(secs(10)).await;
        assert_eq!(world.first_ms("stop the kubelet"), None, "{:?}", world.log());
        world.state().running.remove(&uid("told"));
        assert_eq!((told.await.unwrap().0, web.await.unwrap().0), (10, 12));
        assert_eq!(stops(&world, "told"), Vec::<String>::new());
    }
}

/// Otherwise the next agent would not know, if this one is killed meanwhile.
#[tokio::test(start_paused = true)]
async fn that_the_kubelet_runs_hooks_is_recorded_though_the_container_runtime_is_busy_at_first() {
    let (world, core) = World::new([with_hook("web")]).await;
    world.state().hooks_unknown = secs(3);
    world.state().takes = secs(10);
    world.set_going_down();
    stop(&core, "web", 60).await.1.unwrap();
    let recorded = world.first_ms("the kubelet runs the hooks of uid-web");
    assert!(recorded.is_some_and(|ms| (3_000..4_100).contains(&ms)), "{:?}", world.log());
}

/// It may be one whose hooks run, but no longer than half of the grace.
#[tokio::test(start_paused = true)]
async fn a_container_runtime_that_never_says_whose_hooks_run_costs_no_pod_more_than_half_its_grace()
{
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().hooks_unknown = secs(1000);
    world.set_api_away(true);
    world.set_going_down();
    stop(&core, "web", 60).await.1.unwrap();
    assert_eq!(stops(&world, "web"), ["30: stop uid-web 30"]);
}

/// The container runtime does not answer the first request.
#[tokio::test(start_paused = true)]
async fn hooks_run_though_the_container_runtime_fails_at_first() {
    let (world, core) = World::new([with_hook("web")]).await;
    world.set_api_away(true);
    world.state().runtime_away = true;
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(Duration::from_millis(1500)).await;
    world.state().runtime_away = false;
    stopping.await.unwrap().1.unwrap();
    let log = world.log();
    let hooks = log.iter().filter(|line| line.ends_with("run the hooks of uid-web")).count();
    let stops = log.iter().filter(|line| line.contains("stop uid-web")).count();
    assert!(hooks > 1 && hooks == stops, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn while_winddown_runs_hooks_a_kubelet_that_cannot_be_stopped_is_told_nothing() {
    let (world, core) = World::new([with_hook("web")]).await;
    world.state().kubelet_is_service = false;
    world.state().takes = secs(20);
    world.set_api_away(true);
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(2)).await;
    world.set_api_away(false);
    assert_eq!(stopping.await.unwrap().0, 20);
    let log = world.log();
    let hooks = log.iter().position(|line| line == "0: run the hooks of uid-web").unwrap();
    let mut during = log[hooks..].iter().filter(|line| !line.starts_with("20: "));
    assert!(!during.any(|line| line.contains("evict") || line.contains("delete")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_does_not_make_the_kubelet_begin_hooks_again_while_the_node_goes_down() {
    let killed = Some("29: stop uid-web 1");
    for (waits_for_api, takes, stopped, ended) in [
        (false, 10, None, 10),
        (false, 600, killed, 30),
        (true, 10, None, 10),
        (true, 600, killed, 30),
    ] {
        let choose = |config: &mut CompanionConfig| config.waits_for_api = waits_for_api;
        let (world, core) = World::with([with_hook("web")], choose).await;
        world.state().takes = secs(takes);
        world.delete_by_others("web", secs(600));
        sleep(Duration::from_millis(1)).await;
        world.set_going_down();
        let end = stop(&core, "web", 30).await.1;
        assert_eq!(stops(&world, "web"), Vec::from_iter(stopped));
        assert_eq!(world.elapsed_ms() / 1000, ended);
        let log = world.log();
        assert!(log.iter().all(|line| !line.contains("delete")), "{log:?}");
        let remark = "its grace was shortened while the kubelet ran its preStop hooks: its containers were stopped \
                      through the container runtime; the preStop hook of a may have been cut short";
        assert_eq!(end.unwrap().remark.as_deref(), stopped.map(|_| remark));
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_shortens_the_grace_of_a_drain_cuts_no_hook_before_its_time() {
    let (world, core) = World::new([with_hook("web")]).await;
    world.state().takes = secs(600);
    let begun = Instant::now();
    let (sender, grace) = Grace::until(begun + secs(60));
    let stopping = tokio::spawn(async move { core.stop(&uid("web"), None, grace).await });
    sleep(secs(5)).await;
    world.set_going_down();
    sender.shorten_to(begun + secs(30));
    stopping.await.unwrap().unwrap();
    let asked: Vec<_> = world.log().into_iter().filter(|line| !line.contains("hooks")).collect();
    assert_eq!(asked, ["0: evict web 60", "29: stop uid-web 1"]);
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_is_told_after_all_when_the_shutdown_is_called_off() {
    let (world, core) = World::new([with_hook("web")]).await;
    world.state().takes = secs(600);
    world.delete_by_others("web", secs(600));
    sleep(Duration::from_millis(1)).await;
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 30).await });
    sleep(secs(10)).await;
    world.set_staying_up();
    stopping.await.unwrap().1.unwrap();
    let asked: Vec<_> = world.log().into_iter().filter(|line| !line.contains("hooks")).collect();
    assert_eq!(asked, ["10: delete web 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_a_manifests_pod_that_did_not_run_is_named() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let etcd = api::Pod { spec: with_hook("etcd").spec, ..pod("etcd", mirror) };
    let (world, core) = World::new([etcd]).await;
    world.set_going_down();
    let remark = stop(&core, "etcd", 30).await.1.unwrap().remark;
    assert_eq!(remark.as_deref(), Some("the preStop hook of a did not run"), "{:?}", world.log());
}

/// A policy refuses winddown's own deletion, or its answer is lost, and the API server shows another's.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_learnt_of_a_pods_end_by_anothers_request_runs_its_hook_to_the_end() {
    let (world, core) = World::new([with_hook("told"), pod("web", json!({}))]).await;
    world.set_budgets(json!([]));
    world.state().takes = secs(20);
    world.state().forbids_deletions = Some("admission webhook \"db\" denied the request: wait");
    world.set_going_down();
    tokio::spawn({
        let core = Arc::clone(&core);
        async move { stop(&core, "told", 60).await }
    });
    sleep(Duration::from_millis(100)).await;
    world.delete_by_others("told", secs(60));
    sleep(secs(1)).await;
    world.set_api_away(true);
    stop(&core, "web", 60).await.1.unwrap();
    let log = world.log();
    assert!(world.first_ms("stop the kubelet").is_some_and(|at| at >= 20_000), "{log:?}");
    assert!(!log.iter().any(|line| line.contains("run the hooks of uid-told")), "{log:?}");
}
