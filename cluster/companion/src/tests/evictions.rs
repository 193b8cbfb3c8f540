//! How stops are requested from the API server, and how budgets and other clients affect them.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};
use winddown_shared::{Grace, StoppedContainer};

use super::pods::*;
use super::world::*;
use winddown_api_client::refusal::Refusal;

const BLOCKED: Refusal = Refusal::Busy { after: None };

#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_with_its_grace_and_its_end_is_told_as_the_kubelet_saw_it() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    let (took, stopped) = stop(&core, "web", 30).await;
    assert_eq!((took, world.log()), (2, vec!["0: evict web 30".to_owned()]));
    let stopped = stopped.unwrap();
    assert!(stopped.signalled_at.is_some() && !stopped.forced());
    let ended = StoppedContainer::new("a", 0, false);
    assert_eq!(stopped.containers, [ended]);
    assert!(!core.known.status(&uid("web")).unwrap().any_running());
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_against_it_is_asked_each_second_for_ten_and_then_the_pod_is_deleted() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1000, BLOCKED);
    let (took, stopped) = stop(&core, "web", 60).await;
    assert_eq!(took, 12);
    assert_eq!(
        stopped.unwrap().remark.as_deref(),
        Some("the disruption budget web refused for 10 s, and it was deleted without consent")
    );
    let mut wanted: Vec<String> =
        (0..=10).map(|at| format!("{at}: evict web {}", 60 - at)).collect();
    wanted.push("10: delete web 50".into());
    assert_eq!(world.log(), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_budget_gets_a_third_of_a_short_grace_or_what_is_configured() {
    for (configured, at) in
        [(None, 3), (Some(secs(5)), 5), (Some(secs(600)), 9), (Some(secs(0)), 0)]
    {
        let pods = [pod("web", json!({}))];
        let (world, core) = World::with(pods, |config| config.eviction_timeout = configured).await;
        world.refuse(1000, BLOCKED);
        stop(&core, "web", 9).await.1.unwrap();
        let last = world.log().pop().unwrap();
        assert_eq!(last, format!("{at}: delete web {}", (9 - at).max(1)), "{configured:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_agrees_in_time_has_the_pod_evicted() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1000, BLOCKED);
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(Duration::from_millis(3500)).await;
    world.state().refuses.clear();
    assert_eq!(stopping.await.unwrap().0, 6);
    assert_eq!(world.log().last().unwrap(), "4: evict web 56");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_gets_it_and_one_that_forbids_evictions_is_asked_to_delete() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1, Refusal::Busy { after: Some(secs(4)) });
    world.refuse(1, Refusal::NotAllowed);
    stop(&core, "web", 60).await.1.unwrap();
    assert_eq!(world.log(), ["0: evict web 60", "4: evict web 56", "4: delete web 56"]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_against_it_has_the_time_of_a_budget_when_the_node_goes_down() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1000, Refusal::Denied);
    world.set_going_down();
    let remark = stop(&core, "web", 60).await.1.unwrap().remark;
    let wanted = "the API server (admission webhook \"db\" denied the request: it is the primary) refused for 10 s, \
                  and it was deleted without consent";
    assert_eq!(remark.as_deref(), Some(wanted));
    assert!(world.log().contains(&"10: delete web 50".to_owned()), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_against_it_keeps_a_pod_on_a_node_that_stays_up_and_its_whole_grace() {
    for timeout in [None, Some(secs(0))] {
        let pods = [pod("web", json!({}))];
        let (world, core) = World::with(pods, |config| config.eviction_timeout = timeout).await;
        world.state().takes = secs(20);
        world.refuse(1000, Refusal::Denied);
        let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
        sleep(secs(100)).await;
        // An answer that is late is no consent.
        world.state().silent = true;
        sleep(secs(100)).await;
        world.state().silent = false;
        world.state().refuses.clear();
        let (took, stopped) = stopping.await.unwrap();
        assert!(took > 200, "{took}");
        let log = world.log();
        assert!(log.iter().all(|line| line.ends_with("evict web 60")), "{log:?}");
        let remark = stopped.unwrap().remark.unwrap();
        assert!(remark.starts_with("the API server (admission webhook"), "{remark}");
        assert!(!remark.contains("without consent"), "{remark}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_policy_keeps_is_terminated_when_the_node_goes_down_after_all() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1000, Refusal::Denied);
    let (sender, grace) = Grace::until(Instant::now() + secs(600));
    let stopping = tokio::spawn(async move { core.stop(&uid("web"), None, grace).await });
    sleep(secs(100)).await;
    world.set_going_down();
    sender.shorten_to(Instant::now() + secs(30));
    let stopped = stopping.await.unwrap().unwrap();
    assert!(stopped.remark.unwrap().ends_with("and it was deleted without consent"));
    assert!(world.elapsed_ms() < 130_000, "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_is_shortened_is_told_by_a_deletion_also_while_a_budget_is_against_it() {
    for blocked in [false, true] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.state().takes = secs(600);
        world.refuse(if blocked { 1000 } else { 0 }, BLOCKED);
        let begun = Instant::now();
        let (sender, grace) = Grace::until(begun + secs(60));
        let uid = uid("web");
        let stopping = tokio::spawn(async move { core.stop(&uid, None, grace).await });
        sleep(secs(5)).await;
        sender.shorten_to(begun + secs(11));
        let stopped = stopping.await.unwrap().unwrap();
        assert_eq!(begun.elapsed().as_secs(), 11);
        assert!(stopped.forced());
        let last = world.log().pop().unwrap();
        assert_eq!(last, if blocked { "7: delete web 4" } else { "5: delete web 6" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_another_client_deletes_is_awaited_and_only_a_shorter_grace_is_sent() {
    for (theirs, ours, wanted) in [(20, 30, &[][..]), (600, 30, &["0: delete web 30"][..])] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.state().takes = secs(10);
        world.delete_by_others("web", secs(theirs));
        sleep(Duration::from_millis(1)).await;
        let took = stop(&core, "web", ours).await.0;
        assert!((9..=10).contains(&took), "{took}");
        assert_eq!(world.log(), wanted);
    }
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(1000, BLOCKED);
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(Duration::from_millis(2500)).await;
    world.delete_by_others("web", secs(30));
    assert_eq!(stopping.await.unwrap().0, 4);
    assert_eq!(
        world.log(),
        ["0: evict web 60", "1: evict web 59", "2: evict web 58", "3: evict web 57"]
    );
}

#[tokio::test(start_paused = true)]
async fn sigterm_is_told_as_of_the_request_that_was_granted() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.refuse(7, BLOCKED);
    let begun = Instant::now();
    let stopped = stop(&core, "web", 60).await.1.unwrap();
    assert_eq!((stopped.signalled_at.unwrap() - begun).as_secs(), 7);
    assert_eq!(stopped.remark.as_deref(), Some("the disruption budget web refused for 7 s"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_budget_selects_is_deleted_and_stopped_at_once_when_the_node_goes_down() {
    let of = |kind| {
        let owner = json!({
            "apiVersion": "v1", "kind": kind, "name": "x", "uid": "x", "controller": true,
        });
        json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [owner]}})
    };
    let budget = |app| {
        let selector = json!({"matchLabels": {"app": app}});
        json!([{"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": selector}}])
    };
    for (down, kind, budgets, wanted) in [
        (true, "ReplicaSet", Some(json!([])), "0: delete web 30"),
        (true, "ReplicaSet", Some(budget("db")), "0: delete web 30"),
        (true, "ReplicaSet", Some(budget("web")), "0: evict web 30"),
        (true, "Job", Some(json!([])), "0: evict web 30"),
        (false, "ReplicaSet", Some(json!([])), "0: evict web 30"),
        // Unknown budgets are not the same as none.
        (true, "ReplicaSet", None, "0: evict web 30"),
    ] {
        let (world, core) = World::new([pod("web", of(kind))]).await;
        if let Some(budgets) = budgets.clone() {
            world.set_budgets(budgets);
        }
        if down {
            world.set_going_down();
        }
        stop(&core, "web", 30).await.1.unwrap();
        let stop = down.then_some("0: stop uid-web 30");
        let wanted: Vec<&str> = [wanted].into_iter().chain(stop).collect();
        assert_eq!(world.log(), wanted, "{down} {kind} {budgets:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_pods_wait_for_their_turn_at_a_slow_api_server_and_it_is_not_called_silent() {
    // A hundred requests at a time, so the last ones are sent after 0.9 s.
    let names: Vec<String> = (0..120).map(|number| format!("web-{number}")).collect();
    for budgets in [None, Some(json!([]))] {
        let (world, core) = World::new(names.iter().map(|name| pod(name, json!({})))).await;
        world.state().answers_after = Duration::from_millis(900);
        if let Some(budgets) = budgets {
            world.set_budgets(budgets);
        }
        world.set_going_down();
        let ends = names.iter().map(|name| stop(&core, name, 12));
        for (took, stopped) in join_all(ends).await {
            assert!(took < 10, "{took}");
            assert_eq!(stopped.unwrap().remark, None);
        }
        let log = world.log();
        assert_eq!(log.len(), 2 * names.len(), "each is asked for and stopped once: {log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_turn_is_no_time_that_the_api_server_takes() {
    let names: Vec<String> = (0..250).map(|number| format!("web-{number}")).collect();
    let (world, core) = World::new(names.iter().map(|name| pod(name, json!({})))).await;
    world.set_budgets(json!([]));
    world.state().takes = secs(0);
    world.state().answers_after = Duration::from_millis(600);
    world.set_going_down();
    join_all(names.iter().map(|name| stop(&core, name, 3))).await;
    assert_eq!(world.first_ms("stop the kubelet"), None);
}

#[tokio::test(start_paused = true)]
async fn budgets_that_take_long_to_list_are_no_silence_of_the_api_server() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_going_down();
    world.state().budgets_hang = true;
    world.state().answers_after = Duration::from_millis(500);
    world.state().takes = secs(1);
    stop(&core, "web", 3).await.1.unwrap();
    assert_eq!(world.log(), ["1: evict web 2", "1: stop uid-web 2"], "the kubelet is not stopped");
}

#[tokio::test(start_paused = true)]
async fn containers_are_stopped_when_the_api_server_tells_the_end_and_not_before() {
    let hook = json!({"spec": {"containers": [
        {"name": "a", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
    ]}});
    let budget = json!([{
        "metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {}},
    }]);
    for (what, more, budgets, lag, stopped) in [
        ("nothing objects", json!({}), json!([]), 0, Some(700)),
        ("a budget may object", json!({}), budget, 0, Some(700)),
        ("the watches lag", json!({}), json!([]), 400, Some(1100)),
        ("the kubelet runs its hook", hook, json!([]), 0, None),
    ] {
        let (world, core) = World::new([pod("web", more)]).await;
        world.set_budgets(budgets);
        world.state().answers_after = Duration::from_millis(700);
        world.state().tells_end_after = Duration::from_millis(lag);
        world.state().kernel_tells = true;
        world.set_going_down();
        let (took, _) = stop(&core, "web", 30).await;
        assert_eq!(took, (2700 + lag) / 1000, "{what}");
        assert_eq!(world.first_ms("stop uid-web"), stopped, "{what}: {:?}", world.log());
    }
}

/// A pod without hooks gets no signal before the kubelet has learnt of its end.
#[tokio::test(start_paused = true)]
async fn the_stop_signal_is_not_told_as_of_the_request_that_was_accepted() {
    let hook =
        json!({"containers": [{"name": "a", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]});
    for (more, wanted) in [(json!({}), 4), (json!({"spec": hook}), 0)] {
        let (world, core) = World::new([pod("web", more)]).await;
        world.set_budgets(json!([]));
        world.state().tells_end_after = secs(4);
        world.state().kernel_tells = true;
        world.set_going_down();
        let begun = Instant::now();
        let stopped = stop(&core, "web", 30).await.1.unwrap();
        assert_eq!((stopped.signalled_at.unwrap() - begun).as_secs(), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_learns_late_of_a_pods_end_does_not_start_it_again() {
    for (answer, lag) in [(0, 0), (5, 0), (0, 5), (4, 4)] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_budgets(json!([]));
        world.state().takes = secs(0);
        world.state().answers_after = secs(answer);
        world.state().tells_end_after = secs(lag);
        world.state().kernel_tells = true;
        world.set_going_down();
        let (took, stopped) = stop(&core, "web", 30).await;
        assert_eq!((took, stopped.unwrap().remark), (answer + lag, None));
        sleep(secs(3)).await;
        let log = world.log();
        assert!(log.iter().all(|line| !line.contains("again")), "{log:?}");
        assert!(log.iter().all(|line| !line.contains("stop the kubelet")), "{log:?}");
    }
}

/// A kubelet whose watch has broken lists later than the agent.
#[tokio::test(start_paused = true)]
async fn an_end_that_a_new_list_tells_is_not_known_to_the_kubelet_yet() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(0);
    world.state().tells_end_after = Duration::from_millis(1500);
    world.state().kernel_tells = true;
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 30).await });
    sleep(Duration::from_millis(100)).await;
    world.break_watch();
    assert_eq!(stopping.await.unwrap().0, 1);
    sleep(secs(3)).await;
    let log = world.log();
    assert!(log.iter().all(|line| !line.contains("again")), "{log:?}");
    assert!(log.iter().all(|line| !line.contains("stop the kubelet")), "{log:?}");
}

/// No watch tells the end: the kubelet, which may not learn of it either, is stopped before it can start the pod again.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_accepted_and_not_told_is_waited_for_a_third_of_the_grace() {
    for (is_evicted, goes_away) in [(false, false), (false, true), (true, false), (true, true)] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        if !is_evicted {
            world.set_budgets(json!([]));
        }
        world.state().tells_end_after = secs(1000);
        world.set_going_down();
        let stopping = {
            let core = core.clone();
            tokio::spawn(async move { stop(&core, "web", 30).await })
        };
        sleep(secs(1)).await;
        world.set_api_away(goes_away);
        stopping.await.unwrap().1.unwrap();
        let wanted = if goes_away { 1 } else { 10 };
        let log = world.log();
        let both = [
            format!("{wanted}: stop the kubelet"),
            format!("{wanted}: stop uid-web {}", 30 - wanted),
        ];
        assert_eq!(log[1..], both);
    }
}
