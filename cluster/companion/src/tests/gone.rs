//! When a pod is gone, and how it ended.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::pods::*;
use super::world::*;

#[tokio::test(start_paused = true)]
async fn the_runtime_has_to_agree_that_a_pod_is_gone() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().lags = secs(7);
    let took = stop(&core, "web", 30).await.0;
    assert!((9..=10).contains(&took), "{took}");

    // Force-deleted: the object is gone, the containers are not.
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.remove("web");
    sleep(Duration::from_millis(1)).await;
    assert!(waits(&core, "web", 600, 500).await);
    assert_eq!(world.log(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_be_asked_is_not_waited_for() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().lags = secs(600);
    world.state().runtime_away = true;
    assert_eq!(stop(&core, "web", 30).await.0, 2);
}

/// Neither the kubelet nor anyone else ends a pod through a container runtime that is away.
#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_without_its_runtime_keeps_its_grace_and_is_killed_after_it_and_the_report_says_so()
 {
    for (is_api_away, takes, wanted) in
        [(false, 3, 3), (false, 600, 30), (true, 3, 3), (true, 600, 30)]
    {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_going_down();
        world.state().runtime_away = true;
        world.state().processes_known = true;
        world.state().tells_after = secs(600);
        world.state().takes = secs(takes);
        world.set_api_away(is_api_away);
        let (took, stopped) = stop(&core, "web", 30).await;
        assert_eq!(took, wanted, "{is_api_away}");
        let remark = stopped.unwrap().remark.unwrap();
        assert!(remark.contains("the pod's processes were signalled without it"), "{remark}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_gone_when_the_kubelet_has_taken_its_sandbox_down_and_not_when_the_api_server_hears_of_it()
 {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().tells_after = secs(5);
    let (took, stopped) = stop(&core, "web", 30).await;
    assert_eq!((took, stopped.unwrap().forced()), (2, false));

    // The container runtime reports that SIGKILL was needed.
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().tells_after = secs(5);
    world.state().takes = secs(600);
    let (took, stopped) = stop(&core, "web", 30).await;
    assert_eq!((took, stopped.unwrap().forced()), (30, true));

    // It exited by itself just before the kubelet learned of the deletion, so it might be restarted.
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(20);
    world.state().running.remove(&uid("web"));
    let took = stop(&core, "web", 30).await.0;
    assert_eq!(took, 20);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_asks_how_a_pod_ended_only_where_its_grace_was_nearly_over() {
    for (is_going_down, takes, wanted) in
        [(true, 2, (2, false)), (true, 600, (30, true)), (false, 2, (7, false))]
    {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        if is_going_down {
            world.set_going_down();
        }
        world.state().tells_after = secs(60);
        world.state().exits_take = secs(5);
        world.state().takes = secs(takes);
        let (took, stopped) = stop(&core, "web", 30).await;
        assert_eq!((took, stopped.unwrap().forced()), wanted);
    }
}

/// The kernel reports the exit, and the container runtime has not handled it yet.
#[tokio::test(start_paused = true)]
async fn a_pod_that_outlives_its_grace_did_not_exit_by_itself_if_nobody_says_how_it_ended() {
    for (takes, forced) in [(2, false), (600, true)] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.set_going_down();
        world.set_api_away(true);
        world.state().takes = secs(takes);
        let stopped = stop(&core, "web", 30).await.1.unwrap();
        assert_eq!(stopped.forced(), forced, "{stopped:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_waits_for_the_containers_of_a_pod_and_not_for_its_sandbox() {
    for (going_down, ended_before, wanted) in [(true, false, 2), (true, true, 7), (false, false, 7)]
    {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.state().takes_down_after = secs(5);
        if going_down {
            world.set_going_down();
        }
        if ended_before {
            // The kubelet may restart it before it learns of the deletion.
            world.state().running.remove(&uid("web"));
        }
        assert_eq!(stop(&core, "web", 30).await.0, wanted, "{going_down} {ended_before}");
    }
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
        world.state().running.remove(&uid("job"));
        stop(&core, "job", 30).await.1.unwrap();
        assert_eq!(!world.log().is_empty(), deleted, "{policy} {phase} {exit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_has_its_own_policy_or_rule_has_done_its_work_by_that() {
    let rule = |operator: &str| json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}}]);
    for (policy, rules, exit, deleted) in [
        ("Always", json!([]), 0, true),
        ("OnFailure", json!([]), 1, true),
        ("OnFailure", json!([]), 0, false),
        ("Never", json!([]), 1, false),
        ("Never", rule("In"), 42, true),
        ("Never", rule("In"), 1, false),
        ("Never", rule("NotIn"), 42, false),
        ("Never", rule("NotIn"), 1, true),
    ] {
        let container = json!({
            "name": "a", "image": "x", "restartPolicy": policy, "restartPolicyRules": rules,
        });
        let more = json!({
            "spec": {"restartPolicy": "Never", "containers": [container]},
            "status": {"containerStatuses": [terminated(exit)]},
        });
        let (world, core) = World::new([pod("job", more)]).await;
        world.state().running.remove(&uid("job"));
        stop(&core, "job", 30).await.1.unwrap();
        assert_eq!(!world.log().is_empty(), deleted, "{policy} {rules} {exit}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_has_ended() {
    let (world, core) = World::new([]).await;
    assert_eq!(stop(&core, "web", 30).await.1.unwrap(), Default::default());
    assert_eq!(world.log(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_does_not_wait_for_a_runtime_that_hears_late_of_what_the_kernel_tells()
 {
    for (going_down, kernel_tells, ended_before, wanted) in [
        (true, true, false, 2),
        (true, false, false, 5),
        (true, true, true, 5),
        (false, true, false, 5),
    ] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.state().lags = secs(3);
        if kernel_tells {
            world.state().kernel_tells = true;
        }
        if going_down {
            world.set_going_down();
        }
        if ended_before {
            world.end_in_kernel("web");
        }
        let (took, _) = stop(&core, "web", 30).await;
        assert_eq!(took, wanted, "{going_down} {kernel_tells} {ended_before}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_kernel_tells_counts_also_where_it_was_asked_for_after_the_request() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().lags = secs(3);
    world.set_going_down();
    let late = async {
        sleep(Duration::from_millis(500)).await;
        world.state().kernel_tells = true;
    };
    let ((took, _), ()) = tokio::join!(stop(&core, "web", 30), late);
    assert_eq!(took, 2, "the runtime tells it three seconds later");
}

#[tokio::test(start_paused = true)]
async fn a_look_is_taken_when_containers_start_and_none_for_nothing() {
    let (world, _core) = World::new([pod("web", json!({}))]).await;
    sleep(secs(60)).await;
    assert_eq!(world.state().looks, 1, "at the first list");
    world.apply(pod("web", json!({"metadata": {"labels": {"late": "yes"}}})));
    sleep(secs(60)).await;
    assert_eq!(world.state().looks, 1, "nothing was started");
    let mut running = running();
    running["containerID"] = json!("other");
    world.apply(pod("web", json!({"status": {"containerStatuses": [running]}})));
    sleep(secs(60)).await;
    assert_eq!(world.state().looks, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_terminates_for_hours_on_a_node_that_stays_up_is_looked_at_once_a_second() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().takes = secs(6000);
    tokio::spawn(async move { stop(&core, "web", 6000).await });
    sleep(secs(60)).await;
    assert!((60..=65).contains(&world.state().looks), "{}", world.state().looks);
    world.set_going_down();
    sleep(secs(1)).await;
    assert!(world.state().looks >= 70, "{}", world.state().looks);
}

/// The one that has exited may have been started again since the runtime listed them.
#[tokio::test(start_paused = true)]
async fn the_kernel_does_not_tell_the_end_of_a_pod_of_which_a_container_had_exited_when_it_was_asked()
 {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    world.state().lags = secs(3);
    world.state().kernel_tells = true;
    world.state().one_had_exited = true;
    world.set_going_down();
    assert_eq!(stop(&core, "web", 30).await.0, 5);
}
