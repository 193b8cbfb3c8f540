//! Stops while the API server is away.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use winddown_api_client::refusal::Refusal;

use super::super::config::WithoutApi;
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
    assert!(remark.starts_with("the API server is away: its containers were stopped"), "{remark}");
    assert_eq!(took, 12);
    let log = world.log();
    let at = log.iter().position(|line| line == "10: stop the kubelet").unwrap();
    assert_eq!(log[at + 1], "10: stop uid-web 50", "{log:?}");
    assert!(!core.known.status(&uid("web")).unwrap().any_running());
    assert!(!core.known.list()[0].running);
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
    assert!(!world.log().contains(&"12: start the kubelet".to_owned()), "{:?}", world.log());
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
    assert_eq!(stop(&core, "web", 60).await.0, 12);
    sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.log().last().unwrap(), "13: stop uid-web 1");
    world.set_staying_up();
    sleep(secs(10)).await;
    assert!(world.has_running("web"), "a node that stays up has its pods");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_falls_silent_in_the_middle_costs_a_third_of_the_grace() {
    for (grace, wanted) in [(9, "3: stop uid-web 6"), (4, "1: stop uid-web 2")] {
        let (world, core) = World::new([pod("first", json!({})), pod("web", json!({}))]).await;
        world.set_budgets(json!([]));
        world.state().takes = Duration::ZERO;
        world.set_going_down();
        assert_eq!(stop(&core, "first", grace).await.0, 0);
        // It accepts requests and answers none; no connection breaks.
        world.state().answers_after = secs(1000);
        stop(&core, "web", grace).await.1.unwrap();
        let log = world.log();
        assert_eq!(log.iter().find(|line| line.contains("stop uid")).unwrap(), wanted, "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_late_in_a_stop_is_no_outage() {
    let pods = [pod("web", json!({}))];
    let (world, core) = World::with(pods, |config| config.eviction_timeout = Some(secs(30))).await;
    world.refuse(1000, Refusal::Busy { after: None });
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(15)).await;
    world.set_api_away(true);
    sleep(Duration::from_millis(100)).await;
    world.set_api_away(false);
    stopping.await.unwrap().1.unwrap();
    let log = world.log();
    assert!(log.iter().all(|line| !line.contains("stop")), "{log:?}");
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
    world.state().takes = secs(15);
    world.set_going_down();
    let stopping = tokio::spawn(async move { stop(&core, "web", 60).await });
    sleep(secs(1)).await;
    world.set_api_away(true);
    let took = stopping.await.unwrap().0;
    assert!((15..=17).contains(&took), "{took}");
    assert_eq!(
        world.log(),
        ["0: evict web 60"],
        "the kubelet knows of it, and nothing else stops it"
    );
}
