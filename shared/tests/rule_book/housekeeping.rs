//! The effect of a pass over the desired pods, the workers and the runtime, for every combination.

use winddown_shared::testing::FakeRuntime;
use winddown_shared::{KillReason, KillRequest, Lifecycle, Pod, PodKiller, Runtime, UpdateKind};

use super::node::{job, node, with_label};
use super::{deleted, in_phase, in_runtime, pod, request, secs, settle, static_pod, with_grace};

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_the_runtime_knows_is_ended_once() {
    let runtime = FakeRuntime::default();
    let stray = pod("stray");
    runtime.sync_pod(&stray).await.unwrap();
    let node = node(runtime);
    node.want(&[]).await;
    assert_eq!(node.lifecycle(&stray), None, "stopped, and no record is left");
    tokio::time::sleep(secs(600)).await;
    assert_eq!((node.stops(&stray), node.orphans()), (1, 1));
    assert!(node.forgotten(&stray));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_that_cannot_be_stopped_is_tried_again_after_it_left_its_source() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.want(&[&web]).await;
    node.runtime.stop_fails(web.uid(), 4);
    node.want(&[&deleted("web", 2)]).await;
    node.want(&[]).await;
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Terminating));
    tokio::time::sleep(secs(60)).await;
    assert_eq!((node.stops(&web), node.orphans()), (5, 0));
    assert_eq!(node.lifecycle(&web), None);
    assert!(node.forgotten(&web));
}

#[tokio::test(start_paused = true)]
async fn a_stray_that_cannot_be_stopped_is_tried_again_until_it_is_gone() {
    let runtime = FakeRuntime::default();
    let stray = pod("stray");
    runtime.sync_pod(&stray).await.unwrap();
    runtime.stop_fails(stray.uid(), 3);
    let node = node(runtime);
    node.want(&[]).await;
    assert_eq!(node.lifecycle(&stray), Some(Lifecycle::Terminating));
    tokio::time::sleep(secs(60)).await;
    assert_eq!((node.stops(&stray), node.orphans()), (4, 1));
    assert_eq!(node.lifecycle(&stray), None);
}

#[tokio::test(start_paused = true)]
async fn a_desired_pod_that_no_worker_knows_is_started() {
    let node = node(FakeRuntime::default());
    node.want(&[&pod("web")]).await;
    assert_eq!((node.starts(&pod("web")), node.active(), node.restarted()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_desired_pod_that_is_over_is_not_started() {
    let node = node(FakeRuntime::default());
    let over = in_phase("over", "Failed");
    for _ in 0..3 {
        node.want(&[&over]).await;
        tokio::time::sleep(secs(400)).await;
    }
    assert_eq!((node.starts(&over), node.active(), node.restarted()), (0, 0, 0));
    assert_eq!(node.stops(&over), 0, "the runtime was listed: nothing of it runs");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_not_started_by_a_later_pass() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.refuse(&web);
    node.want(&[&web]).await;
    node.refused.send_modify(Vec::clear);
    tokio::time::sleep(secs(900)).await;
    node.want(&[&web]).await;
    assert_eq!((node.starts(&web), node.active(), node.restarted()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pass_does_not_repeat_the_stop_of_a_desired_pod() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.want(&[&web]).await;
    node.runtime.stop_fails(web.uid(), 9);
    node.workers.request_kill(web.clone(), &request());
    settle().await;
    assert_eq!(node.stops(&web), 1);
    for _ in 0..5 {
        node.want(&[&web]).await;
    }
    assert_eq!(node.stops(&web), 1, "its own retry has its time");
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Terminating));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_held_back_and_not_desired_is_ended_if_the_runtime_has_it() {
    let runtime = FakeRuntime::default();
    let (first, held) = (static_pod("first", "web"), static_pod("held", "web"));
    runtime.sync_pod(&first).await.unwrap();
    runtime.sync_pod(&held).await.unwrap();
    runtime.stop_fails(held.uid(), 1);
    let node = node(runtime);
    node.want(&[&first, &held]).await;
    assert_eq!(node.lifecycle(&held), Some(Lifecycle::Waiting));
    node.want(&[&first]).await;
    assert_eq!(node.lifecycle(&held), Some(Lifecycle::Terminating));
    tokio::time::sleep(secs(10)).await;
    assert_eq!(node.stops(&held), 2);
    assert_eq!(node.lifecycle(&held), None);
    assert!(node.forgotten(&held));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_held_back_and_desired_waits_on() {
    let node = node(FakeRuntime::default());
    let (first, held) = (static_pod("first", "web"), static_pod("held", "web"));
    node.want(&[&first, &held]).await;
    tokio::time::sleep(secs(900)).await;
    assert_eq!(node.lifecycle(&held), Some(Lifecycle::Waiting));
    assert_eq!((node.starts(&held), node.stops(&held)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_held_back_and_neither_desired_nor_running_is_just_forgotten() {
    let node = node(FakeRuntime::default());
    let (first, held) = (static_pod("first", "web"), static_pod("held", "web"));
    node.want(&[&first, &held]).await;
    node.want(&[&first]).await;
    assert_eq!(node.lifecycle(&held), None);
    assert_eq!((node.starts(&held), node.stops(&held)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_recreated_while_it_cannot_be_stopped_waits_for_its_own_end() {
    let node = node(FakeRuntime::default());
    let web = static_pod("web", "web");
    node.want(&[&web]).await;
    node.runtime.stop_fails(web.uid(), 2);
    node.workers.request_kill(web.clone(), &with_grace(1));
    settle().await;
    node.workers.update(UpdateKind::Create, web.clone(), None);
    node.want(&[&web]).await;
    assert_eq!((node.stops(&web), node.restarted()), (1, 0));
    assert!(node.workers.has_restart_requests());
    assert!(!node.workers.should_content_be_removed(web.uid()), "not deleted");
    tokio::time::sleep(secs(10)).await;
    assert_eq!((node.stops(&web), node.restarted()), (3, 1));
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Syncing));
}

#[tokio::test(start_paused = true)]
async fn a_started_static_pod_that_left_its_source_is_stopped_with_its_own_grace() {
    let node = node(FakeRuntime::default());
    let web = static_pod("web", "web");
    node.want(&[&web]).await;
    node.runtime.stop_takes(web.uid(), secs(3600));
    node.want(&[]).await;
    let snapshot = node.workers.snapshot();
    assert_eq!(snapshot[0].lifecycle, Lifecycle::Terminating);
    // The kubelet passes none on here and has the runtime derive the same 30 s.
    assert_eq!(snapshot[0].grace_left.map(|left| left.as_secs_f64().round()), Some(30.0));
    tokio::time::sleep(secs(29)).await;
    assert!(node.runtime.runs(web.uid()));
    tokio::time::sleep(secs(2)).await;
    assert!(node.forgotten(&web));
}

#[tokio::test(start_paused = true)]
async fn a_started_static_pod_that_left_its_source_is_retried_until_it_is_finished() {
    let node = node(FakeRuntime::default());
    let web = static_pod("web", "web");
    let mirror = pod("mirror");
    node.want(&[&web]).await;
    node.workers.update(UpdateKind::Update, web.clone(), Some(mirror));
    node.runtime.stop_fails(web.uid(), 1);
    node.want(&[]).await;
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Terminating));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(node.stops(&web), 2);
    assert_eq!(node.lifecycle(&web), None);
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_that_is_wanted_anew_is_forgotten_and_started_in_one_pass() {
    let node = node(FakeRuntime::default());
    let (first, second) = (with_label("web", "1"), with_label("web", "2"));
    node.want(&[&first]).await;
    node.workers.kill_pod(first.clone(), with_grace(1)).await.unwrap();
    settle().await;
    assert_eq!(node.lifecycle(&first), Some(Lifecycle::Finished));
    node.workers.update(UpdateKind::Create, second.clone(), None);
    node.want(&[&second]).await;
    assert_eq!((node.stops(&first), node.restarted()), (1, 1));
    let pods = node.workers.running().pods;
    assert!(pods.len() == 1 && pods[0].is_same_object(&second));
}

#[tokio::test(start_paused = true)]
async fn an_unwanted_pod_in_the_runtime_is_asked_to_end_through_its_worker_and_only_once() {
    let runtime = FakeRuntime::default();
    let stray = pod("stray");
    runtime.sync_pod(&stray).await.unwrap();
    runtime.stop_takes(stray.uid(), secs(3600));
    let node = node(runtime);
    for _ in 0..4 {
        node.want(&[]).await;
    }
    assert_eq!((node.stops(&stray), node.orphans()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_that_is_deleted_is_taken_to_its_end() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.refuse(&web);
    node.want(&[&web]).await;
    assert_eq!(node.lifecycle(&web), None);
    node.want(&[&deleted("web", 0)]).await;
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Finished));
    assert_eq!(node.starts(&web), 0);
    let status = node.statuses.get(web.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"), "it stays what it was");
    node.want(&[]).await;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(node.lifecycle(&web), None);
    assert!(node.statuses.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_removed_while_the_runtime_fails_is_stopped_once_the_runtime_works_again() {
    let node = node(FakeRuntime::default());
    let web = pod("web");
    node.want(&[&web]).await;
    node.runtime.fail(true);
    node.want(&[]).await;
    tokio::time::sleep(secs(300)).await;
    assert_eq!(node.lifecycle(&web), Some(Lifecycle::Terminating));
    assert!(node.stops(&web) < 60, "with a back-off");
    node.runtime.fail(false);
    tokio::time::sleep(secs(20)).await;
    assert!(node.forgotten(&web) && !node.runtime.runs(web.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_stray_that_appears_later_is_found_by_its_first_change_and_by_the_slow_look_at_last() {
    for announced in [true, false] {
        let node = node(FakeRuntime::default());
        node.want(&[&pod("web")]).await;
        let lists = node.runtime.lists();
        let stray = pod("stray");
        node.runtime.sync_pod(&stray).await.unwrap();
        tokio::time::sleep(secs(60)).await;
        assert_eq!(node.runtime.lists(), lists, "nothing is listed without a reason");
        if announced {
            node.runtime.announce(stray.uid());
        }
        tokio::time::sleep(if announced { secs(1) } else { secs(300) }).await;
        assert_eq!((node.stops(&stray), node.orphans()), (1, 1), "announced: {announced}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_changes_were_lost_every_pod_is_looked_at_and_the_runtime_is_listed() {
    let node = node(FakeRuntime::default());
    let done = job("done");
    node.want(&[&done]).await;
    let stray = pod("stray");
    node.runtime.sync_pod(&stray).await.unwrap();
    node.runtime.exit(done.uid(), 0);
    for _ in 0..200 {
        node.runtime.announce(pod("other").uid());
    }
    tokio::time::sleep(secs(1)).await;
    assert_eq!(node.lifecycle(&done), Some(Lifecycle::Finished));
    assert_eq!(node.stops(&stray), 1);
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_finished_pod_are_stopped_and_the_pod_stays_finished() {
    let node = node(FakeRuntime::default());
    let done = job("done");
    node.want(&[&done]).await;
    node.runtime.exit(done.uid(), 0);
    settle().await;
    assert_eq!(node.lifecycle(&done), Some(Lifecycle::Finished));
    let stops = node.stops(&done);
    node.runtime.revive(done.uid());
    node.runtime.stop_fails(done.uid(), 1);
    tokio::time::sleep(secs(305)).await;
    assert!(!node.runtime.runs(done.uid()));
    assert_eq!(node.stops(&done), stops + 2, "tried again until it was so");
    assert_eq!(node.lifecycle(&done), Some(Lifecycle::Finished));
    assert_eq!((node.restarted(), node.orphans()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_to_end_a_pod_with_such_containers_waits_for_them() {
    let done = job("done");
    for target in [done.clone(), Pod::of_runtime(&in_runtime(&done))] {
        let node = node(FakeRuntime::default());
        node.want(&[&done]).await;
        node.runtime.exit(done.uid(), 0);
        settle().await;
        node.runtime.revive(done.uid());
        node.runtime.stop_fails(done.uid(), 2);
        node.workers.kill_runtime_pod(&in_runtime(&done));
        settle().await;
        assert_eq!(node.workers.runs(done.uid()), Some(true));
        let stopped = node.workers.kill_pod(target, KillRequest::new(KillReason::Shutdown));
        assert!(!stopped.await.unwrap().containers.is_empty());
        assert!(!node.runtime.runs(done.uid()));
        assert_eq!(node.workers.runs(done.uid()), Some(false));
        assert_eq!(node.lifecycle(&done), Some(Lifecycle::Finished));
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_static_pods_of_one_name_the_one_that_ran_before_the_restart_goes_on() {
    for names in [["1", "2"], ["2", "1"]] {
        let runtime = FakeRuntime::default();
        let [ran, new] = names.map(|u| static_pod(u, "web"));
        runtime.sync_pod(&ran).await.unwrap();
        let node = node(runtime);
        node.want(&[&new, &ran]).await;
        assert_eq!(node.lifecycle(&ran), Some(Lifecycle::Syncing));
        assert_eq!(node.lifecycle(&new), Some(Lifecycle::Waiting));
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_edited_while_the_agent_was_away_ends_the_old_pod_before_the_new_one_starts() {
    let runtime = FakeRuntime::default();
    let (old, new) = (static_pod("old", "web"), static_pod("new", "web"));
    runtime.sync_pod(&old).await.unwrap();
    runtime.stop_takes(old.uid(), secs(20));
    runtime.stop_fails(old.uid(), 2);
    let node = node(runtime);
    node.want(&[&new]).await;
    assert_eq!(node.lifecycle(&new), Some(Lifecycle::Waiting));
    while node.runtime.runs(old.uid()) {
        assert_eq!(node.starts(&new), 0);
        tokio::time::sleep(secs(1) / 10).await;
    }
    settle().await;
    assert_eq!((node.starts(&new), node.orphans()), (1, 1));
}
