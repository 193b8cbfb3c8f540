//! A kubelet that is dead, is killed, or restarts stopped containers.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use winddown_shared::PodUid;

use super::super::config::CompanionConfig;
use super::pods::*;
use super::world::*;

#[tokio::test(start_paused = true)]
async fn a_dead_kubelet_costs_only_pods_with_hooks_the_grace_when_the_node_goes_down() {
    let hook = json!({"spec": {"containers": [
        {"name": "a", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
    ]}});
    let left_to_it =
        ["0: evict web 20", "0: the kubelet runs the hooks of uid-web", "20: stop uid-web 1"];
    for (more, took, log) in
        [(json!({}), 2, &["0: evict web 20", "0: stop uid-web 20"][..]), (hook, 21, &left_to_it)]
    {
        let (world, core) = World::new([pod("web", more)]).await;
        world.state().kubelet_dead = true;
        world.set_going_down();
        assert_eq!(stop(&core, "web", 20).await.0, took);
        assert_eq!(world.log(), log);
    }

    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().kubelet_dead = true;
    assert!(
        waits(&core, "web", 20, 300).await,
        "a node that stays up has its pods terminated by its kubelet"
    );
    assert!(world.has_running("web"));
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_is_killed_while_the_node_goes_down_costs_its_pods_no_grace() {
    let (world, core) = World::new([pod("web", json!({})), pod("late", json!({}))]).await;
    world.state().takes = secs(600);
    world.set_going_down();
    let stopping = {
        let core = core.clone();
        tokio::spawn(async move { stop(&core, "web", 20).await })
    };
    sleep(secs(5)).await;
    world.kill_kubelet();
    let (took, stopped) = stopping.await.unwrap();
    assert_eq!(took, 20);
    assert_eq!(stopped.unwrap().remark, None, "it was winddown that stopped it");
    assert_eq!(stop(&core, "late", 10).await.0, 10);
    let log = world.log();
    let wanted = ["0: evict web 20", "0: stop uid-web 20", "5: stop the kubelet"];
    assert_eq!(log[..3], wanted);
    assert!(log.contains(&"20: stop uid-late 10".to_owned()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_starts_again_after_the_end_of_a_pod_is_ended_again() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().kubelet_is_service = false;
    world.set_going_down();
    let stopped = stop(&core, "web", 30).await.1.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(stopped.afterwards.get(), None);
    for (stops, said) in [
        (1, "the kubelet restarted it, and it was stopped again"),
        (2, "the kubelet restarted it 2 times, and it was stopped each time"),
    ] {
        // The second run ignores the stop signal.
        let code = if stops == 2 { 137 } else { 0 };
        world.state().exit_codes.insert(PodUid::new("uid-web"), code);
        world.runs_inside("uid-web");
        sleep(secs(3)).await;
        let mut log = world.log();
        log.retain(|line| !line.ends_with("stop the kubelet"));
        assert_eq!(log[..3], ["0: evict web 30", "0: stop uid-web 30", "2: stop uid-web 1"]);
        assert_eq!(log[2..].len(), stops, "{log:?}");
        assert_eq!(stopped.afterwards.get().as_deref(), Some(said));
        assert_eq!(stopped.afterwards.is_killed(), stops == 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_cannot_be_stopped_at_first_is_stopped_a_second_later() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().stop_fails = 2;
    world.set_api_away(true);
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    sleep(secs(5)).await;
    let log = world.log();
    let attempts: Vec<_> = log.iter().filter(|line| line.ends_with("stop the kubelet")).collect();
    assert_eq!(attempts, ["0: stop the kubelet", "1: stop the kubelet", "2: stop the kubelet"]);
}

/// It has to have learnt of the pod's end, and has not. One start may have been under way when it did.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_goes_on_starting_a_pod_whose_end_it_was_told_is_stopped() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.set_budgets(json!([]));
    world.set_going_down();
    stop(&core, "web", 30).await.1.unwrap();
    for is_stopped in [false, true] {
        sleep(secs(1)).await;
        world.runs_inside("uid-web");
        sleep(secs(3)).await;
        let stopped = world.first_ms("stop the kubelet");
        assert_eq!(stopped.is_some(), is_stopped, "{:?}", world.log());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_pod_that_takes_its_time_keeps_no_other_waiting() {
    let (world, core) = World::new([pod("slow", json!({})), pod("web", json!({}))]).await;
    world.set_going_down();
    for name in ["slow", "web"] {
        stop(&core, name, 30).await.1.unwrap();
    }
    sleep(Duration::from_millis(1)).await;
    world.state().takes = secs(600);
    world.runs_inside("uid-slow");
    sleep(Duration::from_millis(500)).await;
    world.runs_inside("uid-web");
    sleep(Duration::from_millis(400)).await;
    let log = world.log();
    assert!(log[4..].iter().any(|line| line.ends_with("stop uid-web 1")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_ends_only_after_the_wait_for_its_end_is_held_from_then_on() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().kubelet_is_service = false;
    world.set_going_down();
    core.kubelet.hold().await;
    assert!(!core.kubelet.is_held());
    world.state().kubelet_is_service = true;
    world.kill_kubelet();
    sleep(secs(2)).await;
    assert_eq!(stop(&core, "web", 20).await.0, 2, "its pods get their whole grace");
}

/// An agent in a pod, whose container exits while the kubelet is stopped, is never started again.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_alone_could_start_the_agent_again_is_stopped_only_when_the_machine_goes_down()
 {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let (machine_down, may_stop) = watch::channel(false);
    let choose = |config: &mut CompanionConfig| config.may_stop_kubelet = may_stop;
    let (world, core) = World::with([pod("etcd", mirror)], choose).await;
    // For a notice, or a drain with a deadline.
    world.set_going_down();
    stop(&core, "etcd", 30).await.1.unwrap();
    world.kill_kubelet();
    sleep(secs(5)).await;
    let holds = |world: &World| world.log().iter().any(|line| line.contains("stop the kubelet"));
    assert!(!holds(&world), "{:?}", world.log());
    machine_down.send_replace(true);
    sleep(secs(1)).await;
    assert!(holds(&world) && core.kubelet.is_held(), "{:?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_begins_while_the_kubelet_starts_again_holds_it_again() {
    let (world, core) = World::new([]).await;
    world.state().starts_after = secs(3);
    world.set_going_down();
    core.kubelet.hold().await;
    world.set_staying_up();
    sleep(secs(1)).await;
    world.set_going_down();
    assert!(!core.kubelet.is_held(), "it is being started");
    core.kubelet.hold().await;
    assert_eq!(world.log(), ["0: stop the kubelet", "3: start the kubelet", "3: stop the kubelet"]);
    assert!(core.kubelet.is_held());
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_starts_that_somebody_else_started_is_ended_again() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}});
    let (world, core) = World::new([pod("etcd", mirror)]).await;
    world.set_going_down();
    let stopped = stop(&core, "etcd", 30).await.1.unwrap();
    assert!(core.kubelet.is_held());
    sleep(Duration::from_millis(1)).await;
    world.state().kubelet_stopped = false;
    world.runs_inside("uid-etcd");
    sleep(Duration::from_millis(1500)).await;
    assert!(!world.has_running("etcd"), "{:?}", world.log());
    let said = "the kubelet restarted it, and it was stopped again";
    assert_eq!(stopped.afterwards.get().as_deref(), Some(said));
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_is_held_since_it_exited_is_not_stopped_once_more() {
    let (world, core) = World::new([]).await;
    world.kill_kubelet();
    world.set_going_down();
    sleep(secs(1)).await;
    assert!(core.kubelet.is_held());
    world.state().stop_fails = 1;
    core.kubelet.hold().await;
    sleep(Duration::from_millis(1)).await;
    assert!(core.kubelet.is_held(), "{:?}", world.log());
    assert_eq!(world.log(), ["0: stop the kubelet"]);
}
