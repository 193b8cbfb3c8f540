//! Stops while the API server is away.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1 as api;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use winddown_api_client::refusal::Refusal;
use winddown_shared::Grace;

use super::super::stop::StopCore;
use super::pods::*;
use super::world::*;

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_with_another_uid_is_left_alone() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_api_away(true);
    let stopping = {
        let core = core.clone();
        tokio::spawn(async move { stop(&core, "web", 60).await })
    };
    sleep(Duration::from_millis(50)).await;
    // Meanwhile another client has replaced the pod, and the kubelet has stopped the old one.
    world.remove("web");
    world.apply(pod("web", json!({"metadata": {"uid": "uid-new"}})));
    world.state().running.remove(&uid("web"));
    world.set_api_away(false);
    assert!(stopping.await.unwrap().0 < 10);
    assert!(world.objects().contains(&"uid-new".to_owned()));
    assert!(world.log().iter().all(|line| !line.contains("stop")), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn without_the_api_containers_are_stopped_through_the_runtime_once_the_node_goes_down() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_api_away(true);
    world.set_going_down();
    let (took, stopped) = stop(&core, "web", 60).await;
    let remark = stopped.unwrap().remark.unwrap();
    assert!(
        remark.starts_with("the API server is unavailable: its containers were stopped"),
        "{remark}"
    );
    assert_eq!(took, 2, "a connection that is refused is an answer");
    let log = world.log();
    let at = log.iter().position(|line| line == "0: stop the kubelet").unwrap();
    assert_eq!(log[at + 1], "0: stop uid-web 60", "{log:?}");
    assert!(!core.known.status(&uid("web")).unwrap().any_running());
    assert!(!core.known.list()[0].running);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_has_just_answered_is_known_to_be_away_or_silent_no_later_than_another()
{
    for (is_silent, wanted) in [(false, 20), (true, 320)] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        sleep(Duration::from_millis(20)).await;
        // It has listed the pods 20 ms ago.
        match is_silent {
            true => world.state().silent = true,
            false => world.set_api_away(true),
        }
        world.set_going_down();
        stop(&core, "web", 60).await.1.unwrap();
        assert_eq!(world.first_ms("stop the kubelet"), Some(wanted), "{:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn containers_lose_none_of_their_grace_to_rounding_when_the_kubelet_is_held_first() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(100);
    world.state().stops_after = Duration::from_millis(600);
    world.state().silent = true;
    world.set_going_down();
    let begun = Instant::now();
    stop(&core, "web", 30).await.1.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 30, "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_api_server_accepts_late_gives_the_kubelet_no_less_time_than_is_left() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(100);
    world.state().answers_after = Duration::from_millis(600);
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    let log = world.log();
    assert!(log.iter().all(|line| !line.ends_with(" 29")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_was_stopped_ends_no_pod_and_comes_back_when_the_shutdown_is_called_off() {
    let (world, core) = World::new([pod("web", json!({})), pod("late", json!({}))]).await;
    world.set_api_away(true);
    world.set_going_down();
    stop(&core, "web", 60).await.1.unwrap();
    assert!(!world.has_running("web"));
    // The API server is back and grants the eviction, but no kubelet learns of it.
    world.set_api_away(false);
    core.outage.recovered().await;
    let (took, stopped) = stop(&core, "late", 60).await;
    assert_eq!(took, 2, "it is not waited for");
    let remark = stopped.unwrap().remark.unwrap();
    assert!(remark.starts_with("the kubelet is stopped: its containers were stopped"), "{remark}");
    assert!(world.log().iter().all(|line| !line.contains("start the")), "{:?}", world.log());
    world.set_staying_up();
    sleep(secs(1)).await;
    assert!(world.log().last().unwrap().ends_with("start the kubelet"), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_that_cannot_be_stopped_starts_again_is_ended_again() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().kubelet_is_service = false;
    world.set_api_away(true);
    world.set_going_down();
    assert_eq!(stop(&core, "web", 60).await.0, 2);
    sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.log().last().unwrap(), "3: stop uid-web 1");
    world.set_staying_up();
    sleep(secs(10)).await;
    assert!(world.has_running("web"), "a node that stays up has its pods");
}

/// Every node is told so after a restart of its API server.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_told_that_its_version_has_expired_is_no_outage() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.expire_watch();
    assert!(timeout(secs(5), core.outage.begun()).await.is_err());
    world.apply(pod("db", json!({})));
    sleep(secs(1)).await;
    assert_eq!(core.known.list().len(), 2, "it is watched again");
}

/// A node that goes down, with these pods. The API server has accepted the end of another one, and a second ago fell silent.
async fn fallen_silent(
    pods: impl IntoIterator<Item = api::Pod>,
    budgets: serde_json::Value,
) -> (World, Arc<StopCore<World, World>>) {
    let (world, core) = World::new(pods.into_iter().chain([pod("first", json!({}))])).await;
    world.set_budgets(budgets);
    world.state().takes = Duration::ZERO;
    world.set_going_down();
    assert_eq!(stop(&core, "first", 9).await.0, 0);
    // It accepts requests and answers none; no connection breaks.
    world.state().silent = true;
    sleep(secs(1)).await;
    (world, core)
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_falls_silent_is_found_out_in_300_ms_and_costs_no_pod_its_grace() {
    let hook = json!({"spec": {"containers": [
        {"name": "a", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
    ]}});
    let budget = json!([{
        "metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {}},
    }]);
    for (what, more, budgets, stopped) in [
        ("nothing objects", json!({}), json!([]), 300),
        ("a budget may object", json!({}), budget, 300),
        ("a hook", hook, json!([]), 300),
    ] {
        let (world, core) = fallen_silent([pod("web", more)], budgets).await;
        let begun = world.elapsed_ms();
        let remark = stop(&core, "web", 9).await.1.unwrap().remark.unwrap();
        let held = world.first_ms("stop the kubelet").unwrap() - begun;
        assert!((300..320).contains(&held), "{what}: {held} {:?}", world.log());
        assert!(remark.starts_with("the API server is unavailable"), "{what}: {remark}");
        let of_web = ["stop uid-web", "run the hooks of uid-web"];
        let first = of_web.into_iter().filter_map(|what| world.first_ms(what)).min().unwrap();
        assert!((stopped..stopped + 20).contains(&(first - begun)), "{what}: {:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_has_just_answered_and_has_many_pods_to_stop_has_a_second() {
    for (pods, found_out) in [(8, 300), (9, 1000)] {
        let names: Vec<String> = (0..pods).map(|number| format!("web-{number}")).collect();
        let all = names.iter().map(|name| pod(name, json!({})));
        let (world, core) = fallen_silent(all, json!([])).await;
        let begun = world.elapsed_ms();
        join_all(names.iter().map(|name| stop(&core, name, 9))).await;
        let held = world.first_ms("stop the kubelet").unwrap() - begun;
        assert!((found_out..found_out + 20).contains(&held), "{pods}: {held} {:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_api_server_that_has_accepted_many_ends_and_tells_them_late_is_no_silent_one() {
    for (pods, is_taken_for_silent) in [(8, true), (9, false)] {
        let names: Vec<String> = (0..pods).map(|number| format!("web-{number}")).collect();
        let (world, core) = World::new(names.iter().map(|name| pod(name, json!({})))).await;
        world.set_budgets(json!([]));
        world.state().probe_takes = Duration::from_millis(700);
        world.state().tells_end_after = secs(2);
        world.set_going_down();
        join_all(names.iter().map(|name| stop(&core, name, 30))).await;
        let held = world.first_ms("stop the kubelet");
        assert_eq!(held.is_some(), is_taken_for_silent, "{pods}: {:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_had_no_processor_takes_no_server_for_silent_that_it_did_not_hear() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_budgets(json!([]));
    world.state().probe_takes = Duration::from_millis(700);
    // Nothing but the probe is answered.
    world.state().answers_after = secs(1000);
    // The list was heard before.
    sleep(secs(1)).await;
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 30).await.0 });
    sleep(Duration::from_millis(400)).await;
    world.state().probe_takes = Duration::ZERO;
    tokio::time::advance(Duration::from_millis(450)).await;
    stopping.await.unwrap();
    assert!(world.first_ms("stop the kubelet") >= Some(9000), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_but_does_not_accept_a_deletion_is_waited_for_a_third_of_the_grace() {
    // The kubelet, which knows of no end, would start the container again.
    for (grace, wanted, ended) in [(9, 3_u64, 4), (60, 10, 11), (2, 1, 2)] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_budgets(json!([]));
        world.state().takes = secs(1);
        world.state().answers_after = secs(1000);
        world.set_going_down();
        let (took, stopped) = stop(&core, "web", grace).await;
        stopped.unwrap();
        let wanted = Some(u128::from(wanted) * 1000);
        assert_eq!(world.first_ms("stop the kubelet"), wanted, "{grace}");
        assert_eq!(world.first_ms("stop uid-web"), wanted, "{grace}");
        assert!(world.first_ms("start uid-web").is_none(), "{:?}", world.log());
        assert_eq!(took, ended, "{:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_is_shortened_leaves_the_api_server_a_third_of_what_is_left() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_budgets(json!([]));
    world.state().answers_after = secs(1000);
    world.set_going_down();
    let begun = Instant::now();
    let (sender, grace) = Grace::until(begun + secs(30));
    let stopping = tokio::spawn(async move { core.stop(&uid("web"), None, grace).await });
    sleep(secs(1)).await;
    sender.shorten_to(begun + secs(4));
    stopping.await.unwrap().unwrap();
    assert_eq!(world.first_ms("stop the kubelet"), Some(2000), "{:?}", world.log());
}

/// One whose storage is away: it answers probes from memory.
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_eviction_has_a_third_of_the_grace() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().answers_after = secs(1000);
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    assert_eq!(world.first_ms("stop the kubelet"), Some(10_000), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_refused_after_a_silence_has_the_time_of_a_budget() {
    let pods = [pod("web", json!({}))];
    let (world, core) = World::with(pods, |config| config.eviction_timeout = Some(secs(30))).await;
    world.refuse(1000, Refusal::Busy { after: None });
    world.state().answers_after = secs(1000);
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(4)).await;
    world.state().answers_after = Duration::ZERO;
    stopping.await.unwrap().1.unwrap();
    let log = world.log();
    assert!(log.iter().all(|line| !line.contains("stop the kubelet")), "{log:?}");
    assert_eq!(log.last().unwrap(), "30: stop uid-web 30");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forbids_a_deletion_is_quoted_and_not_called_unavailable() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(30);
    world.refuse(1, Refusal::NotAllowed);
    world.state().forbids_deletions = Some("policy keep denied the request");
    world.set_going_down();
    let remark = stop(&core, "web", 9).await.1.unwrap().remark.unwrap();
    for part in [
        "its eviction was refused, and it was deleted without consent: pods \"web\" is forbidden: User",
        "the API server refuses to delete it (policy keep denied the request): its containers",
    ] {
        assert!(remark.contains(part), "{remark}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_policy_keeps_costs_no_other_pod_its_kubelet() {
    let (world, core) = World::new([pod("web", json!({})), pod("other", json!({}))]).await;
    world.set_budgets(json!([]));
    world.state().takes = secs(1);
    world.state().forbids_deletions = Some("policy keep denied the request");
    world.set_going_down();
    let remark = stop(&core, "web", 9).await.1.unwrap().remark.unwrap();
    assert!(remark.starts_with("the API server refuses to delete it"), "{remark}");
    world.state().forbids_deletions = None;
    stop(&core, "other", 9).await.1.unwrap();
    // The kubelet restarts what it was not asked to stop.
    sleep(secs(10)).await;
    let log = world.log();
    assert!(log.iter().any(|line| line.ends_with("stop uid-web 1")), "{log:?}");
    assert!(log.iter().all(|line| !line.contains("stop the kubelet")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_concerns_all_pods_and_has_the_kubelet_stopped() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_budgets(json!([]));
    let why = r#"pods "web" is forbidden: User "system:node:n1" cannot delete resource "pods""#;
    world.state().forbids_deletions = Some(why);
    world.set_going_down();
    stop(&core, "web", 9).await.1.unwrap();
    assert_eq!(world.first_ms("stop the kubelet"), Some(3000), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_after_a_budgets_refusals_has_its_own_time_to_be_accepted() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1000, Refusal::Busy { after: None });
    world.state().answers_after = Duration::from_millis(1200);
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    let log = world.log();
    assert!(log.iter().any(|line| line.contains("delete web")), "{log:?}");
    assert!(log.iter().all(|line| !line.contains("stop the kubelet")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_refused_while_the_node_stays_up_is_no_outage() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1, Refusal::NotAllowed);
    world.state().forbids_deletions = Some("policy keep denied the request");
    assert!(waits(&core, "web", 60, 20).await, "it is asked again");
    assert_eq!(core.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_late_in_a_stop_is_no_outage() {
    let pods = [pod("web", json!({}))];
    let (world, core) = World::with(pods, |config| config.eviction_timeout = Some(secs(30))).await;
    world.refuse(1000, Refusal::Busy { after: None });
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(15)).await;
    world.break_watch();
    stopping.await.unwrap().1.unwrap();
    let log = world.log();
    assert!(log.iter().all(|line| !line.contains("stop the kubelet")), "{log:?}");
    assert_eq!(log.last().unwrap(), "30: stop uid-web 30");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_began_earlier_is_not_waited_out_again() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_api_away(true);
    sleep(secs(100)).await;
    world.set_going_down();
    assert_eq!(stop(&core, "web", 60).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_a_node_that_stays_up_waits_for_it_and_so_does_one_that_is_told_to() {
    for (going_down, waits_for_api) in [(false, false), (true, true)] {
        let pods = [pod("web", json!({}))];
        let (world, core) = World::with(pods, |config| config.waits_for_api = waits_for_api).await;
        world.set_api_away(true);
        // Longer than a list, which may be the first to show the end, takes to count.
        world.state().takes = secs(3);
        if going_down {
            world.set_going_down();
        }
        let asked = Arc::clone(&core);
        assert!(!asked.awaits_api_server(), "it has answered so far");
        let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
        sleep(secs(30)).await;
        assert!(!stopping.is_finished());
        assert_eq!(asked.awaits_api_server(), waits_for_api);
        world.set_api_away(false);
        let took = stopping.await.unwrap().0;
        assert!((30..=36).contains(&took), "{took}");
        let log = world.log();
        let requests: Vec<_> = log.iter().filter(|line| !line.contains("stop uid-web")).collect();
        assert!(requests.last().unwrap().contains("delete web"), "{log:?}");
        // What the API server has accepted may be stopped.
        let stops = log.iter().rev().take_while(|line| line.contains("stop uid-web")).count();
        assert_eq!(
            (stops, requests.len()),
            (usize::from(going_down), log.len() - stops),
            "{log:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_goes_away_after_it_was_told_leaves_the_kubelet_as_it_is() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(15);
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(1)).await;
    world.set_api_away(true);
    let took = stopping.await.unwrap().0;
    assert!((15..=17).contains(&took), "{took}");
    assert_eq!(
        world.log(),
        ["0: evict web 60", "0: stop uid-web 60"],
        "the kubelet knows of it, and gives its volumes back"
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_that_goes_away_after_it_was_told_keeps_no_pod_waiting_of_which_nothing_runs() {
    for has_sandbox in [true, false] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        let mut waiting = running();
        waiting["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        world.apply(pod("web", json!({"status": {"containerStatuses": [waiting]}})));
        world.set_budgets(json!([]));
        world.state().takes = secs(5);
        world.state().running.remove(&uid("web"));
        if !has_sandbox {
            world.state().sandboxes.remove(&uid("web"));
        }
        sleep(Duration::from_millis(1)).await;
        world.set_going_down();
        let stopping = tokio::spawn(async move { stop(&core, "web", 30).await });
        sleep(Duration::from_millis(500)).await;
        world.set_api_away(true);
        let (took, stopped) = stopping.await.unwrap();
        assert_eq!((took, stopped.unwrap().remark), (2, None), "{has_sandbox}");
        // The kubelet had not learnt of it, and starts it late.
        world.runs_inside("uid-web");
        sleep(secs(3)).await;
        assert!(!world.has_running("web"), "{:?}", world.log());
    }
}
