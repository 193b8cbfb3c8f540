//! How pods come to their end.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};
use winddown_shared::{Grace, StoppedContainer};

use super::super::config::WithoutApi;
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
    let ended = StoppedContainer { name: "a".into(), exit_code: 0, forced: false };
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
    world.agree_again();
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
async fn a_grace_that_is_shortened_is_told_by_a_deletion_also_while_a_budget_is_against_it() {
    for blocked in [false, true] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_takes(secs(600));
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
        world.set_takes(secs(10));
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
async fn a_pod_of_the_same_name_with_another_uid_is_left_alone() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_api_away(true);
    let stopping = {
        let core = core.clone();
        tokio::spawn(async move { stop(&core, "web", 60).await })
    };
    sleep(Duration::from_millis(50)).await;
    // Meanwhile somebody replaced it, and the kubelet has ended the old one.
    world.remove("web");
    world.apply(pod("web", json!({"metadata": {"uid": "uid-new"}})));
    world.forget_containers("web");
    world.set_api_away(false);
    assert!(stopping.await.unwrap().0 < 10);
    assert!(world.objects().contains(&"uid-new".to_owned()));
    assert!(world.log().iter().all(|line| !line.contains("stop")), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn the_runtime_has_to_agree_that_a_pod_is_gone() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_lags(secs(7));
    let took = stop(&core, "web", 30).await.0;
    assert!((9..=10).contains(&took), "{took}");

    // Taken away with force: the object is gone, the containers are not.
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.remove("web");
    sleep(Duration::from_millis(1)).await;
    assert!(waits(&core, "web", 600, 500).await);
    assert_eq!(world.log(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_be_asked_is_not_waited_for() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_lags(secs(600));
    world.set_runtime_away();
    assert_eq!(stop(&core, "web", 30).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_containers_are_stopped_through_the_runtime_once_the_node_goes_down() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_api_away(true);
    world.set_going_down();
    let (took, stopped) = stop(&core, "web", 60).await;
    let remark = stopped.unwrap().remark.unwrap();
    assert!(remark.starts_with("the API server is away: its containers were stopped"), "{remark}");
    assert_eq!(took, 12);
    let log = world.log();
    let at = log.iter().position(|line| line == "10: stop the kubelet").unwrap();
    assert_eq!(log[at + 1], "10: stop uid-web 50", "{log:?}");
    assert!(!core.known.status(&uid("web")).unwrap().any_running());
    assert!(!core.known.list()[0].running);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_gone_when_the_kubelet_has_taken_its_sandbox_down_and_not_when_the_api_server_hears_of_it()
 {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_tells_after(secs(5));
    let (took, stopped) = stop(&core, "web", 30).await;
    assert_eq!((took, stopped.unwrap().forced()), (2, false));

    // That SIGKILL was needed is known from the container runtime.
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_tells_after(secs(5));
    world.set_takes(secs(600));
    let (took, stopped) = stop(&core, "web", 30).await;
    assert_eq!((took, stopped.unwrap().forced()), (30, true));

    // It ended by itself in the moment before the kubelet heard of its end: it may be started again.
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_takes(secs(20));
    world.forget_containers("web");
    let took = stop(&core, "web", 30).await.0;
    assert_eq!(took, 20);
}

#[tokio::test(start_paused = true)]
async fn many_pods_wait_for_their_turn_at_a_slow_api_server_and_it_is_not_called_silent() {
    // Sixteen at a time, so the last is asked for after six seconds and more.
    let names: Vec<String> = (0..120).map(|number| format!("web-{number}")).collect();
    for budgets in [None, Some(json!([]))] {
        let (world, core) = World::new(names.iter().map(|name| pod(name, json!({})))).await;
        world.set_answers_after(Duration::from_millis(900));
        if let Some(budgets) = budgets {
            world.set_budgets(budgets);
        }
        world.set_going_down();
        let ends = names.iter().map(|name| stop(&core, name, 12));
        for (took, stopped) in join_all(ends).await {
            assert!(took < 10, "{took}");
            assert_eq!(stopped.unwrap().remark, None);
        }
        assert_eq!(world.log().len(), names.len(), "each is asked for once: {:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn budgets_that_take_long_to_list_are_no_silence_of_the_api_server() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_going_down();
    world.hang_budgets();
    world.set_answers_after(Duration::from_millis(500));
    world.set_takes(secs(1));
    stop(&core, "web", 3).await.1.unwrap();
    assert_eq!(world.log(), ["1: evict web 2"], "the kubelet is not stopped");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_asks_how_a_pod_ended_only_where_its_grace_was_nearly_over() {
    for (is_going_down, takes, wanted) in
        [(true, 2, (2, false)), (true, 600, (35, true)), (false, 2, (7, false))]
    {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        if is_going_down {
            world.set_going_down();
        }
        world.set_tells_after(secs(60));
        world.set_exits_take(secs(5));
        world.set_takes(secs(takes));
        let (took, stopped) = stop(&core, "web", 30).await;
        assert_eq!((took, stopped.unwrap().forced()), wanted);
    }
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
async fn a_kubelet_that_was_stopped_ends_no_pod_and_comes_back_when_the_shutdown_is_called_off() {
    let (world, core) = World::new([pod("web", json!({})), pod("late", json!({}))]).await;
    world.set_api_away(true);
    world.set_going_down();
    stop(&core, "web", 60).await.1.unwrap();
    assert!(!world.has_running("web"));
    // The API server is back and grants the eviction, of which no kubelet hears.
    world.set_api_away(false);
    sleep(secs(5)).await;
    let took = stop(&core, "late", 60).await.0;
    assert_eq!(took, 2, "it is not waited for");
    assert!(!world.log().contains(&"12: start the kubelet".to_owned()), "{:?}", world.log());
    world.set_staying_up();
    sleep(secs(1)).await;
    assert!(world.log().last().unwrap().ends_with("start the kubelet"), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_that_cannot_be_stopped_starts_again_is_ended_again() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_kubelet_no_service();
    world.set_api_away(true);
    world.set_going_down();
    assert_eq!(stop(&core, "web", 60).await.0, 12);
    sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.log().last().unwrap(), "13: stop uid-web 1");
    world.set_staying_up();
    sleep(secs(10)).await;
    assert!(world.has_running("web"), "a node that stays up has its pods");
}

#[tokio::test(start_paused = true)]
async fn pods_of_manifests_end_after_those_that_need_the_kubelet() {
    let mirror = json!({"metadata": {"annotations": {
        "kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash",
        "kubernetes.io/config.source": "file",
    }}});
    let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
    world.runs_inside("hash");
    world.set_takes(secs(4));
    world.set_going_down();
    let both = tokio::join!(stop(&core, "etcd", 30), stop(&core, "web", 30));
    assert_eq!((both.0.0, both.1.0), (8, 4));
    let wanted = ["0: evict web 30", "4: stop the kubelet", "4: stop hash 26"];
    assert_eq!(world.log(), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_is_not_stopped_before_it_has_unmounted_what_its_pods_had() {
    // What is never unmounted is waited for half of the grace.
    for (unmounts_after, stopped_at) in [(3, 5), (1000, 15)] {
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
        let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
        world.set_unmounts_after(secs(unmounts_after));
        world.set_going_down();
        let _ = tokio::join!(stop(&core, "etcd", 30), stop(&core, "web", 30));
        let stopped = format!("{stopped_at}: stop the kubelet");
        assert!(world.log().contains(&stopped), "{:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_began_earlier_is_not_waited_out_again() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_api_away(true);
    sleep(secs(100)).await;
    world.set_going_down();
    assert_eq!(stop(&core, "web", 60).await.0, 3);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_a_node_that_stays_up_waits_for_it_and_so_does_one_that_is_told_to() {
    for (going_down, choice) in [(false, WithoutApi::StopContainers), (true, WithoutApi::Wait)] {
        let pods = [pod("web", json!({}))];
        let (world, core) = World::with(pods, |config| config.without_api = choice).await;
        world.set_api_away(true);
        if going_down {
            world.set_going_down();
        }
        let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
        sleep(secs(30)).await;
        assert!(!stopping.is_finished());
        world.set_api_away(false);
        let took = stopping.await.unwrap().0;
        assert!((30..=36).contains(&took), "{took}");
        let log = world.log();
        assert!(log.last().unwrap().contains("delete web"), "{log:?}");
        assert!(log.iter().all(|line| !line.contains("stop")), "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_goes_away_after_it_was_told_leaves_the_end_to_the_kubelet() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_takes(secs(15));
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(1)).await;
    world.set_api_away(true);
    let took = stopping.await.unwrap().0;
    assert!((15..=17).contains(&took), "{took}");
    assert_eq!(
        world.log(),
        ["0: evict web 60"],
        "the kubelet knows of it, and nobody else stops it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_kubelet_leaves_is_stopped_at_the_end_of_the_grace_when_the_node_goes_down() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_kubelet_dead();
    world.set_going_down();
    assert_eq!(stop(&core, "web", 20).await.0, 21);
    assert_eq!(world.log(), ["0: evict web 20", "20: stop uid-web 1"]);

    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_kubelet_dead();
    assert!(
        waits(&core, "web", 20, 300).await,
        "a node that stays up has its pods ended by its kubelet"
    );
    assert!(world.has_running("web"));
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_is_killed_while_the_node_goes_down_costs_its_pods_no_grace() {
    let (world, core) = World::new([pod("web", json!({})), pod("late", json!({}))]).await;
    world.set_takes(secs(600));
    world.set_going_down();
    let stopping = {
        let core = core.clone();
        tokio::spawn(async move { stop(&core, "web", 20).await })
    };
    sleep(secs(5)).await;
    world.kill_kubelet();
    let (took, stopped) = stopping.await.unwrap();
    assert_eq!(took, 20);
    assert_eq!(
        stopped.unwrap().remark.as_deref(),
        Some("the kubelet is gone: its containers were stopped through the container runtime")
    );
    assert_eq!(stop(&core, "late", 10).await.0, 10);
    let log = world.log();
    let wanted = ["0: evict web 20", "5: stop the kubelet", "5: stop uid-web 15"];
    assert_eq!(log[..3], wanted);
    assert!(log.contains(&"20: stop uid-late 10".to_owned()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn the_pod_of_a_manifest_is_stopped_under_its_own_uid_and_only_when_the_node_goes_down() {
    let mirror = json!({"metadata": {"annotations": {
        "kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash",
        "kubernetes.io/config.source": "file",
    }}});
    let (world, core) = World::new([pod("etcd", mirror)]).await;
    world.runs_inside("hash");
    let error = stop(&core, "etcd", 30).await.1.unwrap_err().to_string();
    let wanted = "pod default/etcd is left as it is: the kubelet runs it from a manifest file, so only \
                  the removal of that file ends it while the node stays up";
    assert_eq!(error, wanted);

    world.set_going_down();
    let (took, stopped) = stop(&core, "etcd", 30).await;
    stopped.unwrap();
    assert_eq!(
        (took, world.log()),
        (2, vec!["0: stop the kubelet".to_owned(), "0: stop hash 30".to_owned()])
    );

    world.set_runtime_away();
    world.apply(pod(
        "other",
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}}),
    ));
    sleep(Duration::from_millis(1)).await;
    let error = stop(&core, "other", 30).await.1.unwrap_err().to_string();
    assert!(
        error.ends_with("from a manifest file, and the container runtime: no socket"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_done_its_work_is_not_deleted_and_one_between_two_restarts_is() {
    for (policy, phase, exit, deleted) in [
        ("Never", "Succeeded", 0, false),
        ("Never", "Running", 1, false),
        ("OnFailure", "Running", 0, false),
        ("OnFailure", "Running", 1, true),
        ("Always", "Running", 0, true),
        ("Always", "Failed", 1, false),
    ] {
        let more = json!({
            "spec": {"restartPolicy": policy},
            "status": {"phase": phase, "containerStatuses": [terminated(exit)]},
        });
        let (world, core) = World::new([pod("job", more)]).await;
        world.forget_containers("job");
        stop(&core, "job", 30).await.1.unwrap();
        assert_eq!(!world.log().is_empty(), deleted, "{policy} {phase} {exit}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_has_ended() {
    let (world, core) = World::new([]).await;
    assert_eq!(stop(&core, "web", 30).await.1.unwrap(), Default::default());
    assert_eq!(world.log(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_waits_for_the_containers_of_a_pod_and_not_for_its_sandbox() {
    for (going_down, ended_before, wanted) in [(true, false, 2), (true, true, 7), (false, false, 7)]
    {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_takes_down_after(secs(5));
        if going_down {
            world.set_going_down();
        }
        if ended_before {
            // The kubelet may start it again before it hears of its end.
            world.forget_containers("web");
        }
        assert_eq!(stop(&core, "web", 30).await.0, wanted, "{going_down} {ended_before}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_starts_again_after_the_end_of_a_pod_is_ended_again() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    world.runs_inside("uid-web");
    sleep(secs(2)).await;
    assert_eq!(world.log(), ["0: evict web 30", "2: stop uid-web 1"]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_manifests_do_not_wait_for_what_the_kubelet_has_still_to_tell() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let (world, core) = World::new([pod("etcd", mirror), pod("web", json!({}))]).await;
    world.set_tells_after(secs(10));
    world.set_going_down();
    let etcd = {
        let core = core.clone();
        tokio::spawn(async move { stop(&core, "etcd", 60).await })
    };
    stop(&core, "web", 30).await.1.unwrap();
    world.apply(pod("web", json!({"metadata": {"labels": {"late": "yes"}}})));
    assert_eq!(etcd.await.unwrap().0, 4);
}

#[tokio::test(start_paused = true)]
async fn a_network_is_given_back_by_the_kubelet_and_without_one_through_the_container_runtime() {
    for held in [false, true] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_takes_down_after(secs(5));
        world.set_going_down();
        stop(&core, "web", 30).await.1.unwrap();
        assert_eq!(core.held(&uid("web")).await.unwrap(), ["its network"]);
        if held {
            core.kubelet.hold().await;
        }
        core.give_network_back(&uid("web")).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(core.held(&uid("web")).await.unwrap().is_empty(), held);
        sleep(secs(6)).await;
        assert_eq!(core.held(&uid("web")).await.unwrap(), Vec::<String>::new());
    }
    let on_host = pod("web", json!({"spec": {"hostNetwork": true}}));
    let (_, core) = World::new([on_host]).await;
    assert_eq!(core.held(&uid("web")).await.unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_no_pod_had_when_a_pods_end_began_is_waited_for_ten_seconds_by_all_together()
{
    let claimed =
        json!({"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}});
    let pods = ["first", "second", "plain"]
        .map(|name| pod(name, if name == "plain" { json!({}) } else { claimed.clone() }));
    let (world, core) = World::new(pods).await;
    world.set_unused_volume("/stale");
    world.set_going_down();
    let held = async |name| core.held(&uid(name)).await.unwrap();
    stop(&core, "plain", 30).await.1.unwrap();
    assert_eq!(held("plain").await, [""; 0], "it has no volumes");
    stop(&core, "first", 30).await.1.unwrap();
    assert_eq!(
        held("first").await,
        ["/stale"],
        "an agent that was started again may have missed its use"
    );
    sleep(secs(8)).await;
    assert_eq!(held("first").await, [""; 0]);
    stop(&core, "second", 30).await.1.unwrap();
    assert_eq!(held("second").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_became_unused_while_a_pod_ended_may_be_its_and_is_waited_for() {
    let claimed =
        json!({"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}});
    let (world, core) = World::new([pod("web", claimed)]).await;
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    world.set_unused_volume("/own");
    for _ in 0..3 {
        assert_eq!(core.held(&uid("web")).await.unwrap(), ["/own"]);
        sleep(secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_budget_selects_is_deleted_at_once_when_the_node_goes_down() {
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
        // That they are not known does not mean that there are none.
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
        assert_eq!(world.log(), [wanted], "{down} {kind} {budgets:?}");
    }
}
