//! Pods that cannot be created yet, and creations that take time.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use winddown_shared::RuntimeError;

use super::world::{Answer, World, failed, pod};
use crate::pods::{AdmittedPods, Judgement, NodeAdmission};

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_never_fails_the_pod_and_is_tried_for_ever() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/1257
    let world = World::new();
    world.with(|s| s.create.extend((0..25).map(|_| failed("no room"))));
    let mut running = world.start();
    running.ready().await;
    let mut once = pod("a", "u1");
    once.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    world.apply(once);
    world.until("it runs at last", |w| w.phase("u1").as_deref() == Some("Running")).await;
    assert_eq!(world.calls("create u1"), 26);
    let said = world.said("u1");
    assert!(said.iter().all(|u| u.status.phase.as_deref() != Some("Failed")));
    let times = world.call_times("create u1");
    let longest = times.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(longest <= 301 * S, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_spec_ends_the_wait_after_failures() {
    let world = World::new();
    world.with(|s| s.create.extend((0..25).map(|_| failed("no such image"))));
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it failed often", |w| w.calls("create u1") == 20).await;
    let before = world.since_start();
    world.with(|s| s.create.clear());
    world.edit("u1", |p| p.spec.as_mut().unwrap().containers[0].image = Some("image:2".into()));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    assert!(world.since_start() - before < S);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_cannot_do_has_failed_and_is_not_tried_again() {
    let world = World::new();
    let invalid = RuntimeError::Unsupported { field: "spec.x".into(), why: "not here".into() };
    world.with(|s| s.create.push_back(Answer::Fails(invalid)));
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it was tried", |w| w.calls("create u1") == 1).await;
    world.holds_for(1000 * S, "tried once", |w| w.calls("create u1") == 1).await;
    assert_eq!(world.phase("u1").as_deref(), Some("Failed"));
    let reason = world.object("u1").unwrap().status.unwrap().reason;
    assert_eq!(reason.as_deref(), Some("PodFeatureUnsupported"));
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_node_holds_back_no_pod_is_given_to_it_and_each_says_why_it_waits() {
    let world = World::new();
    let mut config = world.config();
    let known = world.clone();
    config.admission = Some(NodeAdmission {
        judge: Arc::new(move |_| {
            ready(match known.since_start() < 20 * S {
                true => Judgement::HoldBack("not known yet"),
                false => Judgement::Resolve,
            })
            .boxed()
        }),
        supports: Arc::new(|_| Ok(())),
        resize: Arc::new(|_| Ok(())),
        admitted: AdmittedPods::default(),
    });
    world.start_with(config).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    let times = world.call_times("create u1");
    assert!(times[0] >= 20 * S && times[0] < 23 * S, "{times:?}");
    let first = world.said("u1").remove(0).status;
    let state = first.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().message.as_deref(), Some("not known yet"));
}

#[tokio::test(start_paused = true)]
async fn a_hung_create_delays_its_own_pod_only_and_is_given_up_at_its_deadline() {
    let world = World::new();
    world.with(|s| s.create.push_back(Answer::Hangs));
    let mut config = world.config();
    config.workers = 2;
    world.start_with(config).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it hangs", |w| w.calls("create u1") == 1).await;
    for n in 0..20 {
        world.apply(pod(&format!("b{n}"), &format!("b{n}")));
    }
    world.until("the others run", |w| w.calls("create b") == 20).await;
    assert!(world.since_start() < 5 * S, "{:?}", world.since_start());
    world.until("it is tried again", |w| w.calls("create u1") == 2).await;
    let times = world.call_times("create u1");
    assert!(times[1] - times[0] >= 60 * S, "{times:?}");
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_during_its_create_is_ended_after_it() {
    let world = World::new();
    world.with(|s| s.create.push_back(Answer::Takes(5 * S)));
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it is being created", |w| w.calls("create u1") == 1).await;
    world.delete("u1", 10);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    let calls = world.with(|s| s.calls.iter().map(|(c, _)| c.clone()).collect::<Vec<_>>());
    let of = |call: &str| calls.iter().position(|c| c.starts_with(call));
    assert!(of("create u1") < of("delete u1") && of("delete u1") < of("remove u1"), "{calls:?}");
    assert_eq!(world.calls("delete u1 10s"), 1, "at once, so with its whole grace: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_create_timed_out_is_ended_all_the_same_when_it_is_deleted() {
    let world = World::new();
    world.with(|s| s.create.extend([Answer::Hangs, Answer::Hangs]));
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    tokio::time::sleep(61 * S).await;
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert!(world.calls("delete u1") >= 1, "whether it was created is open");
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_before_it_was_ever_created_ends_failed_and_goes_at_once() {
    let world = World::new();
    world.with(|s| s.create.extend((0..99).map(|_| failed("no"))));
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it fails", |w| w.calls("create u1") > 5).await;
    let before = world.since_start();
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
    assert!(world.since_start() - before < S);
    let last = world.said("u1").pop().unwrap();
    assert!(last.last);
    assert_eq!(last.status.phase.as_deref(), Some("Failed"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_update_leaves_the_running_pod_as_it_is() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/744
    let world = World::new();
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.with(|s| s.update.extend((0..8).map(|_| failed("no"))));
    world.edit("u1", |p| p.spec.as_mut().unwrap().containers[0].image = Some("image:2".into()));
    world.until("it was tried until it worked", |w| w.calls("update u1") == 9).await;
    assert!(world.said("u1").iter().all(|u| u.status.phase.as_deref() == Some("Running")));
}

#[tokio::test(start_paused = true)]
async fn two_hundred_pods_start_as_fast_as_the_runtime_takes_them() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/840: 10 a second after the first 100.
    let world = World::new();
    for n in 0..200 {
        world.apply(pod(&format!("p{n}"), &format!("u{n}")));
    }
    world.start().ready().await;
    world.until("all are created", |w| w.calls("create") == 200).await;
    assert!(world.since_start() < S, "{:?}", world.since_start());
}
