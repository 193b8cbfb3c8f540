//! The lifecycle of a pod: virtual-kubelet's `TestPodLifecycle` and related scenarios.

use std::time::Duration;

use super::world::{World, failed, phase, pod};
use crate::pods::{RunError, RunState};

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn t1_a_pod_is_created_runs_is_deleted_and_goes() {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.delete("u1", 10);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert_eq!(world.said("u1").last().unwrap().status.phase.as_deref(), Some("Succeeded"));
    world.until("it is forgotten", |w| w.calls("forget u1") == 1).await;
    assert_eq!(world.calls("delete u1 10s"), 1);
    assert!(world.with(|s| s.kept.is_empty()), "the next agent knows nothing of it");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn t2_a_pod_that_the_runtime_cannot_find_to_end_is_deleted() {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.with(|s| s.running.clear());
    world.delete("u1", 10);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert_eq!(world.calls("delete u1 10s"), 1, "it was asked all the same");
    assert_eq!(world.said("u1").last().unwrap().status.phase.as_deref(), Some("Failed"));
}

#[tokio::test(start_paused = true)]
async fn t3_a_pod_whose_end_fails_stays_and_its_end_is_tried_on() {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.with(|s| s.delete.extend((0..40).map(|_| failed("no"))));
    world.delete("u1", 10);
    world.until("it was tried often", |w| w.calls("delete u1") >= 30).await;
    let object = world.object("u1").unwrap();
    assert!(object.metadata.deletion_timestamp.is_some());
    world.until("the runtime recovers, and it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn t4_a_pod_that_only_the_node_has_is_ended_once_by_the_time_the_controller_is_ready() {
    let world = World::new();
    world.runs(pod("old", "u0"), None);
    world.apply(pod("a", "u1"));
    let mut controller = world.start();
    controller.ready().await;
    let wanted = controller.wanted.borrow().clone().unwrap();
    let old = wanted.pods.iter().find(|pod| pod.uid().as_str() == "u0").unwrap();
    assert_eq!(old.metadata.deletion_grace_period_seconds, Some(30));
    world.until("it is forgotten", |w| w.calls("forget u0") == 1).await;
    assert_eq!((world.calls("delete u0 30s"), world.calls("delete")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn t5_a_pod_that_both_have_and_that_is_being_deleted_goes() {
    let world = World::new();
    world.runs(pod("a", "u1"), None);
    world.apply(pod("a", "u1"));
    world.delete("u1", 10);
    world.start().ready().await;
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn t6_t7_a_pod_that_had_its_end_before_the_start_is_left_as_it_is() {
    for word in ["Failed", "Succeeded"] {
        let world = World::new();
        let mut done = pod("a", "u1");
        done.status = Some(phase(word));
        world.apply(done);
        let before = world.object("u1");
        let mut running = world.start();
        running.ready().await;
        let mut sync = running.handle.queues().sync;
        sync.wait_for(|counts| counts.total == 0).await.unwrap();
        world.holds_for(30 * S, "nothing is done", |w| w.calls("create") == 0).await;
        assert_eq!(world.object("u1"), before);
        assert!(world.said("u1").is_empty());
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn t8_a_changed_deadline_of_a_running_pod_is_an_update() {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.edit("u1", |p| p.spec.as_mut().unwrap().active_deadline_seconds = Some(99));
    world.until("it is updated", |w| w.calls("update u1") == 1).await;
    world.holds_for(10 * S, "updated once", |w| w.calls("update u1") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn t19_t21_t22_a_pod_is_created_once_and_updated_only_when_it_changed() {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    // The same again, also through a list.
    world.edit("u1", |_| ());
    world.relist();
    world.holds_for(5 * S, "nothing changes", |w| w.calls("update") == 0).await;
    world.edit("u1", |p| p.spec.as_mut().unwrap().containers[0].image = Some("image:2".into()));
    world.until("it is updated", |w| w.calls("update u1") == 1).await;
    assert_eq!(world.calls("create"), 1);
}

#[tokio::test(start_paused = true)]
async fn t30_cancelled_after_it_was_ready_it_ends_without_error() {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    let mut handle = running.handle.clone();
    running.stop().await.unwrap();
    assert!(handle.done().await.is_none());
    assert!(matches!(handle.state(), RunState::Done(None)));
    assert!(!handle.ready().await, "ready means nothing after the end");
}

#[tokio::test(start_paused = true)]
async fn cancelled_before_anything_was_listed_it_says_so() {
    let world = World::new();
    world.with(|s| s.silent = true);
    let running = world.start();
    tokio::time::sleep(S).await;
    let mut handle = running.handle.clone();
    assert!(matches!(running.stop().await, Err(RunError::NotSynced)));
    assert!(matches!(handle.done().await.as_deref(), Some(RunError::NotSynced)));
}
