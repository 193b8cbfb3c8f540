//! The termination of pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::world::{Running, World, exited, once, pod, runs};
use winddown_api_client::refusal::Refusal;
use winddown_shared::{KillReason, KillRequest, StatusOverride};

const S: Duration = Duration::from_secs(1);

async fn with_a_running_pod() -> (World, Running) {
    with_running(pod("a", "u1")).await
}

async fn with_running(pod: k8s_openapi::api::core::v1::Pod) -> (World, Running) {
    let world = World::new();
    let mut running = world.start();
    running.ready().await;
    world.apply(pod);
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    (world, running)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_before_its_grace_is_over_goes_at_once() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/982
    let (world, _running) = with_a_running_pod().await;
    let before = world.since_start();
    world.delete("u1", 600);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    let took = world.since_start() - before;
    assert!(took >= 2 * S && took < 3 * S, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_any_status_is_ended_before_its_object_goes() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/938
    let world = World::new();
    world.acks(false);
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it was created", |w| w.calls("create u1") == 1).await;
    world.delete("u1", 30);
    world.until("it is asked to terminate", |w| w.calls("delete u1 30s") == 1).await;
    world.holds_for(20 * S, "not before its end is told", |w| w.calls("remove") == 0).await;
    world.acks(true);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_from_the_api_before_the_api_has_its_last_word() {
    let (world, _running) = with_a_running_pod().await;
    world.acks(false);
    world.delete("u1", 10);
    world.until("its last word is said", |w| w.said("u1").iter().any(|u| u.last)).await;
    world.holds_for(300 * S, "it stays", |w| w.calls("remove") == 0).await;
    world.acks(true);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

/// The status manager of a kubelet waits for this as well. A new pod of this name may need the volumes elsewhere.
#[tokio::test(start_paused = true)]
async fn nothing_goes_from_the_api_before_the_node_has_freed_what_the_pod_held() {
    let (world, running) = with_a_running_pod().await;
    world.with(|state| state.is_held = true);
    world.delete("u1", 10);
    world.until("its last word is said", |w| w.said("u1").iter().any(|u| u.last)).await;
    world.holds_for(300 * S, "it stays", |w| w.calls("remove") == 0).await;

    running.stop().await.unwrap();
    let world = world.after_restart();
    world.with(|state| state.is_held = true);
    let mut running = world.start();
    running.ready().await;
    world.holds_for(300 * S, "it stays over a restart", |w| w.calls("remove") == 0).await;
    world.with(|state| state.is_held = false);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_is_killed_and_stays_until_it_has_ended() {
    let (world, _running) = with_a_running_pod().await;
    world.with(|s| (s.ends_after, s.immortal) = (None, true));
    world.delete("u1", 10);
    world.until("it is killed", |w| w.calls("delete u1 0s") >= 3).await;
    let times = world.call_times("delete u1");
    assert!(times[1] - times[0] >= 10 * S && times[1] - times[0] < 15 * S, "{times:?}");
    assert!(world.object("u1").is_some(), "what runs is never taken out of the API");
    world.with(|s| s.immortal = false);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_shortened_grace_reaches_the_runtime_and_a_longer_one_does_not() {
    let (world, _running) = with_a_running_pod().await;
    world.with(|s| s.ends_after = None);
    world.delete("u1", 100);
    world.until("it is asked to terminate", |w| w.calls("delete u1 100s") == 1).await;
    world.delete("u1", 20);
    world.until("it is asked again", |w| w.calls("delete u1 20s") == 1).await;
    world.delete("u1", 500);
    world
        .until("it is killed when the shorter one is over", |w| w.calls("delete u1 0s") == 1)
        .await;
    assert_eq!(world.calls("delete u1"), 3);
    let times = world.call_times("delete u1");
    assert!(times[2] - times[1] < 23 * S, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_gives_what_is_left_of_the_grace_and_not_a_fresh_one() {
    let (world, running) = with_a_running_pod().await;
    world.with(|s| s.ends_after = None);
    world.delete("u1", 30);
    world.until("it is asked to terminate", |w| w.calls("delete u1 30s") == 1).await;
    tokio::time::sleep(20 * S).await;
    running.stop().await.unwrap();
    let world = world.after_restart();
    world.start().ready().await;
    world.until("it is asked to terminate", |w| w.calls("delete u1 10s") == 1).await;
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert!(world.since_start() < 15 * S, "{:?}", world.since_start());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_deleted_while_the_node_could_not_hear_of_it_has_its_whole_grace() {
    let (world, running) = with_a_running_pod().await;
    world.with(|s| s.ends_after = None);
    let minute_ago = world.clock().now() - 60 * S;
    world.edit("u1", |p| {
        p.metadata.deletion_timestamp = Some(Time(minute_ago));
        p.metadata.deletion_grace_period_seconds = Some(30);
    });
    world.until("it is asked to terminate", |w| w.calls("delete u1 30s") == 1).await;
    world.edit("u1", |p| p.metadata.labels = Some([("a".into(), "b".into())].into()));
    world.holds_for(20 * S, "a later event takes none of it", |w| w.calls("delete") == 1).await;
    running.stop().await.unwrap();
    let world = world.after_restart();
    world.start().ready().await;
    world.until("the next agent gives it the rest", |w| w.calls("delete u1 10s") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_removed_while_the_node_could_not_hear_of_it_has_its_whole_grace() {
    let (world, _running) = with_a_running_pod().await;
    let minute_ago = world.clock().now() - 60 * S;
    world.vanish("u1", |p| {
        p.metadata.deletion_timestamp = Some(Time(minute_ago));
        p.metadata.deletion_grace_period_seconds = Some(30);
    });
    world.until("it is asked to terminate", |w| w.calls("delete u1 30s") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_by_force_is_killed_after_its_object_is_gone() {
    let (world, _running) = with_a_running_pod().await;
    let now = world.clock().now();
    world.vanish("u1", |p| {
        p.metadata.deletion_timestamp = Some(Time(now));
        p.metadata.deletion_grace_period_seconds = Some(0);
    });
    world.until("it is killed", |w| w.calls("delete u1 0s") == 1).await;
    world.until("it is forgotten", |w| w.calls("forget u1") == 1).await;
    assert_eq!(world.calls("remove"), 0);
}

#[tokio::test(start_paused = true)]
async fn finalizers_keep_the_object_and_the_delete_is_not_repeated() {
    let (world, _running) = with_a_running_pod().await;
    world.edit("u1", |p| p.metadata.finalizers = Some(vec!["x.dev/f".into()]));
    world.delete("u1", 10);
    world.until("it was removed", |w| w.calls("remove u1") == 1).await;
    world.holds_for(600 * S, "once", |w| w.calls("remove u1") == 1).await;
    // The server's data is restored from a backup.
    world.edit("u1", |p| p.metadata.deletion_grace_period_seconds = Some(10));
    world.until("it was removed again", |w| w.calls("remove u1") == 2).await;
    world.holds_for(600 * S, "once", |w| w.calls("remove u1") == 2).await;
    assert_eq!(world.calls("forget"), 0);
    world.vanish("u1", |_| ());
    world.until("it is forgotten", |w| w.calls("forget u1") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn t27_a_pod_made_anew_under_its_name_waits_for_the_old_one_and_is_never_harmed() {
    let (world, _running) = with_a_running_pod().await;
    world.vanish("u1", |_| ());
    world.apply(pod("a", "u2"));
    world.until("the new one runs", |w| w.phase("u2").as_deref() == Some("Running")).await;
    let calls = world.with(|s| s.calls.iter().map(|(c, _)| c.clone()).collect::<Vec<_>>());
    let of = |call: &str| calls.iter().position(|c| c.starts_with(call)).unwrap();
    assert!(of("delete u1") < of("forget u1") && of("forget u1") < of("create u2"), "{calls:?}");
    world.holds_for(60 * S, "the new one is let be", |w| w.calls("delete u2") == 0).await;
    assert_eq!(world.calls("remove"), 0);
}

/// Counts what is logged as a warning.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// By a policy or a webhook, which says nothing of the server.
#[tokio::test(start_paused = true)]
async fn a_delete_that_is_denied_again_and_again_is_told_once_whatever_works_meanwhile() {
    let (world, _running) = with_a_running_pod().await;
    let told = Arc::<AtomicUsize>::default();
    let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&told)));
    world.with(|s| s.denied = "u1");
    world.delete("u1", 10);
    world.until("it is denied", |w| w.calls("remove u1") > 0).await;
    for uid in ["v1", "v2", "v3"] {
        world.apply(pod(uid, uid));
        world.until("another runs", |w| w.phase(uid).as_deref() == Some("Running")).await;
        world.delete(uid, 10);
        world.until("it is removed", |w| w.object(uid).is_none()).await;
    }
    assert_eq!(told.load(Ordering::Relaxed), 1);
    world.with(|s| s.denied = "");
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn t27_answers_of_the_final_delete() {
    for (refusal, tries) in [
        (Refusal::NotFound, 1),
        (Refusal::OtherUid, 1),
        (Refusal::Conflict, 2),
        (Refusal::Busy { after: Some(3 * S) }, 2),
        (Refusal::NoAnswer, 2),
    ] {
        let (world, _running) = with_a_running_pod().await;
        world.with(|s| s.refusals.push_back(refusal));
        world.delete("u1", 10);
        world.until("it is removed", |w| w.calls("remove u1") == tries).await;
        if refusal.is_gone() {
            world.until("it is forgotten", |w| w.calls("forget u1") == 1).await;
        } else {
            world.until("it goes", |w| w.object("u1").is_none()).await;
        }
        let times = world.call_times("remove u1");
        if refusal.retry_after().is_some() {
            assert!(times[1] - times[0] >= 3 * S, "{times:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_by_itself_stays_until_it_is_deleted() {
    let (world, _running) = with_running(once("a", "u1")).await;
    world.ends("u1", 3);
    world.until("its end is told", |w| w.phase("u1").as_deref() == Some("Failed")).await;
    world.holds_for(1000 * S, "it stays", |w| w.calls("remove") + w.calls("create") == 1).await;
    let asked = world.calls("delete");
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert_eq!(world.calls("delete"), asked, "nothing of it runs");
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_that_another_client_marks_as_failed_is_terminated_with_its_own_grace() {
    // The kubelet does the same: the pod's controller has already replaced it.
    let (world, _running) = with_a_running_pod().await;
    world.edit("u1", |pod| pod.status.as_mut().unwrap().phase = Some("Failed".into()));
    world.until("it is asked to terminate", |w| w.calls("delete u1 30s") == 1).await;
    world.until("it has ended", |w| w.with(|s| s.running["u1"].exit.is_some())).await;
    world
        .holds_for(600 * S, "its object stays, and it is not started again", |w| {
            w.object("u1").is_some() && w.calls("create") == 1
        })
        .await;
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_during_an_outage_of_the_api_is_told_and_removed_after_it() {
    let (world, _running) = with_a_running_pod().await;
    world.delete("u1", 30);
    world.until("it is asked to terminate", |w| w.calls("delete u1") == 1).await;
    world.acks(false);
    world.with(|s| (s.api_down, s.deaf) = (true, true));
    world.watch_fails();
    world.until("it has ended", |w| w.with(|s| s.running["u1"].exit.is_some())).await;
    tokio::time::sleep(600 * S).await;
    assert!(world.object("u1").is_some());
    world.with(|s| s.api_down = false);
    world.acks(true);
    world.relist();
    world.until("it goes", |w| w.object("u1").is_none()).await;
    let said = world.said("u1");
    assert_eq!(said.iter().filter(|u| u.last).count(), 1);
    assert_eq!(said.last().unwrap().status.phase, exited(0).phase);
}

#[tokio::test(start_paused = true)]
async fn what_the_pod_does_last_is_the_last_that_is_said() {
    let (world, _running) = with_running(once("a", "u1")).await;
    for _ in 0..50 {
        world.changes("u1");
    }
    world.ends("u1", 7);
    world.until("its end is told", |w| w.said("u1").iter().any(|u| u.last)).await;
    let last = world.said("u1").pop().unwrap().status;
    assert_eq!(last.phase, exited(7).phase);
    let state = last.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 7);
}

#[tokio::test(start_paused = true)]
async fn t24_a_pod_that_the_node_itself_ends_says_so_and_its_object_stays_until_it_is_deleted() {
    let (world, running) = with_a_running_pod().await;
    let pod = running.wanted.borrow().clone().unwrap().pods[0].clone();
    let status = StatusOverride::failed("Terminated", "The node wants it to go.", None);
    let request = KillRequest::new(KillReason::Operator).with_status(Some(status));
    running.workers.request_kill(pod, &request);
    world.until("its end is told", |w| w.phase("u1").as_deref() == Some("Failed")).await;
    let last = world.said("u1").pop().unwrap();
    assert!(last.last && !runs(&last.status));
    assert_eq!(last.status.reason.as_deref(), Some("Terminated"));
    world
        .holds_for(600 * S, "it stays, and is not started", |w| {
            w.object("u1").is_some() && w.calls("create") == 1
        })
        .await;
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}
