//! The agent restarts next to pods that run, that have terminated, and that are unwanted.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::world::{Running, World, exited, once, phase, pod, running};
use crate::pods::OrphanPolicy;

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_runs_is_neither_started_nor_stopped_nor_updated() {
    let world = World::new();
    for n in 0..10 {
        let mut api = pod(&format!("p{n}"), &format!("u{n}"));
        api.status = Some((*running()).clone());
        world.apply(api.clone());
        world.runs(api, None);
    }
    world.start().ready().await;
    world
        .holds_for(700 * S, "nothing is asked of the runtime", |w| {
            w.calls("create") + w.calls("update") + w.calls("delete") == 0
        })
        .await;
    assert_eq!(world.said("u3").len(), 1, "its status is told once");
}

#[tokio::test(start_paused = true)]
async fn of_a_record_that_is_lost_in_part_nothing_is_missing_once_the_api_was_listed() {
    let world = World::new();
    world.with(|state| state.misses_kept = true);
    world.apply(pod("a", "u1"));
    let mut running = world.start();
    let is_complete = |running: &Running| running.wanted.borrow().as_ref().map(|w| w.complete);
    assert_ne!(is_complete(&running), Some(true), "a pod may be wanted that is not known");
    running.ready().await;
    assert_eq!(is_complete(&running), Some(true));
    assert!(!world.with(|state| state.misses_kept), "the next agent waits for no API server");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_while_the_agent_was_away_is_told_and_not_started_again() {
    let world = World::new();
    let mut api = once("a", "u1");
    api.status = Some((*running()).clone());
    world.apply(api.clone());
    world.runs(api, Some(2));
    world.start().ready().await;
    world.until("its end is told", |w| w.phase("u1").as_deref() == Some("Failed")).await;
    world.holds_for(600 * S, "it is not started", |w| w.calls("create") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_boot_what_is_left_of_a_terminated_pod_stays_until_its_object_is_deleted() {
    let world = World::new();
    let mut api = once("a", "u1");
    api.status = Some((*exited(137)).clone());
    world.apply(api.clone());
    world.found(api, Some(137));
    world.found(pod("unknown", "u2"), Some(0));
    world.with(|state| state.misses_kept = true);
    let mut first = world.start();
    first.ready().await;
    world.until("what no pod has is removed", |w| w.calls("forget u2") == 1).await;
    world
        .holds_for(700 * S, "its logs stay", |w| w.calls("forget u1") + w.calls("create") == 0)
        .await;
    let (status, _) = first.statuses.changed_since(0);
    assert_eq!(status[0].status.phase.as_deref(), Some("Failed"), "its logs can be read");
    first.kill();
    world.with(|state| state.api_down = true);
    let second = world.start();
    world.holds_for(700 * S, "nor does an outage remove them", |w| w.calls("forget u1") == 0).await;
    world.with(|state| state.api_down = false);
    world.delete("u1", 0);
    world.until("they go with the object", |w| w.calls("forget u1") == 1).await;
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_node_was_not_given_keeps_what_is_left_when_the_api_has_its_end() {
    let world = World::new();
    let mut api = once("a", "u1");
    api.status = Some((*running()).clone());
    world.apply(api.clone());
    world.found(api, Some(2));
    world.with(|state| state.misses_kept = true);
    world.start().ready().await;
    world.until("its end is told", |w| w.phase("u1").as_deref() == Some("Failed")).await;
    // What is wanted is published again.
    world.apply(pod("b", "u2"));
    world.until("another one is started", |w| w.calls("create u2") == 1).await;
    world.holds_for(700 * S, "its logs stay", |w| w.calls("forget") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_unknown_though_the_api_has_its_end_terminates_with_its_grace() {
    let world = World::new();
    let mut api = once("a", "u1");
    api.status = Some((*exited(1)).clone());
    world.apply(api.clone());
    world.found(api, None);
    world.with(|state| state.misses_kept = true);
    world.start().ready().await;
    world.until("it is terminated", |w| w.calls("delete u1 30s") == 1).await;
    world.holds_for(700 * S, "its logs stay", |w| w.calls("forget") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_end_was_never_acknowledged_is_not_started_again() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/762
    let world = World::new();
    let mut api = pod("a", "u1");
    api.status = Some((*running()).clone());
    world.apply(api);
    world.with(|s| s.last_words.insert("u1".into(), exited(1)));
    world.start().ready().await;
    world.holds_for(600 * S, "it is not started", |w| w.calls("create") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_before_what_an_earlier_agent_said_last_is_known() {
    let world = World::new();
    world.apply(pod("a", "u1"));
    world.apply(pod("b", "u2"));
    world.with(|s| {
        s.earlier_words.insert("u1".into(), exited(1));
        s.recall = 8 * S;
    });
    let mut running = world.start();
    world.holds_for(7 * S, "nothing starts", |w| w.calls("create") == 0).await;
    running.ready().await;
    world.until("the other one is started", |w| w.calls("create u2") == 1).await;
    world.holds_for(600 * S, "the one that ended is not", |w| w.calls("create u1") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_does_not_keep_pods_from_starting_for_ever() {
    let world = World::new();
    world.apply(pod("a", "u1"));
    world.with(|s| s.recall = 3600 * S);
    world.start().ready().await;
    world.until("it is started", |w| w.calls("create u1") == 1).await;
    assert!(world.since_start() >= 30 * S && world.since_start() < 60 * S);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_that_ran_with_never_is_lost_and_not_started_again() {
    let world = World::new();
    let mut api = pod("a", "u1");
    api.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    api.status = Some((*running()).clone());
    world.apply(api);
    world.start().ready().await;
    world.until("that is told", |w| w.phase("u1").as_deref() == Some("Failed")).await;
    world.holds_for(600 * S, "it is not started", |w| w.calls("create") == 0).await;
    let status = world.object("u1").unwrap().status.unwrap();
    let state = status.container_statuses.unwrap()[0].state.clone().unwrap();
    assert!(state.running.is_none());
    assert_eq!(state.terminated.unwrap().exit_code, 137);
}

/// As after a power loss: containerd still has the containers, and nothing else is known of the pod.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_exit_the_runtime_has_fails_with_that_exit_and_is_not_started_again() {
    for is_deleting in [false, true] {
        let world = World::new();
        let mut api = once("a", "u1");
        api.status = Some((*running()).clone());
        world.found(api.clone(), Some(255));
        world.with(|s| s.misses_kept = true);
        world.apply(api);
        if is_deleting {
            // Its finalizer keeps it in the API.
            world.edit("u1", |pod| pod.metadata.finalizers = Some(vec!["keeps.it".into()]));
            world.delete("u1", 30);
        }
        world.start().ready().await;
        world.until("that is told", |w| w.phase("u1").as_deref() == Some("Failed")).await;
        world.holds_for(600 * S, "it is not started", |w| w.calls("create") == 0).await;
        let status = world.object("u1").unwrap().status.unwrap();
        let state = status.container_statuses.unwrap()[0].state.clone().unwrap();
        assert_eq!(state.terminated.unwrap().exit_code, 255, "deleting: {is_deleting}");
        assert_eq!((status.reason, status.message), (None, None), "deleting: {is_deleting}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_and_may_run_again_is_started_again() {
    let world = World::new();
    let mut api = pod("a", "u1");
    api.status = Some((*running()).clone());
    world.apply(api);
    world.start().ready().await;
    world.until("it is started", |w| w.calls("create u1") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_before_the_runtime_has_said_what_runs() {
    let world = World::new();
    world.apply(pod("a", "u1"));
    world.with(|s| s.runtime_down = true);
    let mut running = world.start();
    world.holds_for(120 * S, "nothing starts", |w| w.calls("create") == 0).await;
    world.with(|s| s.runtime_down = false);
    running.ready().await;
    world.until("it is started", |w| w.calls("create u1") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_ended_adopted_or_reported_as_is_configured() {
    for (orphans, deletes) in
        [(OrphanPolicy::Stop, 1), (OrphanPolicy::Adopt, 0), (OrphanPolicy::Report, 0)]
    {
        let world = World::new();
        world.runs(pod("orphan", "u0"), None);
        world.apply(pod("a", "u1"));
        let mut config = world.config();
        config.orphans = orphans;
        world.start_with(config).ready().await;
        world.holds_for(700 * S, "as configured", |w| w.calls("delete u0") == deletes).await;
        assert!(world.calls("get u0") >= 1, "it is looked up first");
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_orphan_ends_when_a_new_pod_needs_its_name() {
    let world = World::new();
    world.runs(pod("a", "u0"), None);
    let mut config = world.config();
    config.orphans = OrphanPolicy::Adopt;
    world.start_with(config).ready().await;
    world.holds_for(60 * S, "it is let be", |w| w.calls("delete") == 0).await;
    world.apply(pod("a", "u1"));
    world.until("the new one runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    assert_eq!(world.calls("forget u0"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_ends_nothing_before_every_pod_was_looked_up_several_times() {
    // https://github.com/elotl/kip/issues/107
    let world = World::new();
    for n in 0..5 {
        world.runs(pod(&format!("p{n}"), &format!("u{n}")), None);
    }
    world.start().ready().await;
    assert_eq!(world.calls("delete"), 0, "not with the first look");
    world.until("they are terminated", |w| w.calls("delete") == 5).await;
    assert_eq!(world.calls("get"), 15);
    let (first, last) = (world.call_times("get u0"), world.call_times("delete u0"));
    assert!(last[0] - first[0] >= 10 * S);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_wrongly_has_nothing_ends_nothing() {
    let world = World::new();
    for n in 0..5 {
        let api = pod(&format!("p{n}"), &format!("u{n}"));
        world.apply(api.clone());
        world.runs(api, None);
    }
    world.with(|s| s.empty_lists = true);
    world.start().ready().await;
    world.holds_for(600 * S, "all run on", |w| w.calls("delete") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_api_does_not_answer_no_orphan_is_ended() {
    let world = World::new();
    world.runs(pod("orphan", "u0"), None);
    world.apply(pod("a", "u1"));
    world.with(|s| s.api_down = true);
    world.start().ready().await;
    world.holds_for(900 * S, "it runs on", |w| w.calls("delete") == 0).await;
    world.with(|s| s.api_down = false);
    world.until("it is terminated", |w| w.calls("delete u0") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_under_way_goes_on_and_a_finished_one_is_only_removed() {
    let world = World::new();
    let mut api = pod("a", "u1");
    api.status = Some(phase("Failed"));
    world.apply(api.clone());
    world.delete("u1", 30);
    world.runs(api.clone(), Some(1));
    // The earlier agent had seen its end.
    world.with(|s| s.kept.insert("u1".into(), winddown_shared::Pod::new(api).unwrap()));
    world.start().ready().await;
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert_eq!(world.calls("delete"), 0);
    assert_eq!(world.calls("create"), 0);
}

/// The runtime knows nothing of a pod that ran in an earlier boot; the API has its start time.
#[tokio::test(start_paused = true)]
async fn the_active_deadline_of_a_pod_counts_from_its_first_start_after_a_boot_too() {
    for is_over in [false, true] {
        let world = World::new();
        let mut api = pod("a", "u1");
        api.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
        let mut status = (*running()).clone();
        let age = if is_over { 1000 } else { 50 };
        status.start_time = Some(Time(world.clock().now() - age * S));
        api.status = Some(status);
        world.apply(api);
        world.start().ready().await;
        let failed = |w: &World| {
            let status = w.object("u1")?.status?;
            (status.phase.as_deref() == Some("Failed")).then_some(status.reason)?
        };
        world.until("it fails", |w| failed(w).as_deref() == Some("DeadlineExceeded")).await;
        let ended = world.since_start().as_secs();
        assert!(if is_over { ended < 2 } else { (9..15).contains(&ended) }, "{ended}");
        assert_eq!(world.calls("create"), usize::from(!is_over));
    }
}
