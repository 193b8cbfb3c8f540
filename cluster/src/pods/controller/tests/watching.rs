//! What the watch reports, and what it misses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::world::{World, pod};
use crate::pods::RunError;

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanished_while_the_watch_was_away_is_ended_after_the_next_list() {
    // virtual-kubelet ignores such deletes since it keys pods by UID.
    let world = World::new();
    world.start().ready().await;
    for n in 0..3 {
        world.apply(pod(&format!("p{n}"), &format!("u{n}")));
    }
    world.until("they run", |w| w.calls("create") == 3).await;
    world.with(|s| s.deaf = true);
    world.vanish("u1", |_| ());
    world.holds_for(30 * S, "nobody knows", |w| w.calls("delete") == 0).await;
    let lists = world.with(|s| s.lists);
    world.relist();
    world.until("it is terminated", |w| w.calls("forget u1") == 1).await;
    assert_eq!(world.with(|s| s.lists), lists + 1);
    assert_eq!(world.calls("delete u1 30s"), 1);
    assert_eq!(world.calls("delete"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_says_nothing_about_the_pods_it_did_not_reach() {
    let world = World::new();
    world.start().ready().await;
    for n in 0..3 {
        world.apply(pod(&format!("p{n}"), &format!("u{n}")));
    }
    world.until("they run", |w| w.calls("create") == 3).await;
    world.with(|s| {
        let first = s.objects["u0"].clone();
        s.send_events([
            kube::runtime::watcher::Event::Init,
            kube::runtime::watcher::Event::InitApply(first),
        ]);
    });
    world.watch_fails();
    world.holds_for(60 * S, "all run on", |w| w.calls("get") + w.calls("delete") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_suddenly_empty_ends_nothing_that_the_api_still_has() {
    let world = World::new();
    world.start().ready().await;
    for n in 0..3 {
        world.apply(pod(&format!("p{n}"), &format!("u{n}")));
    }
    world.until("they run", |w| w.calls("create") == 3).await;
    world.with(|s| s.empty_lists = true);
    world.relist();
    world.holds_for(600 * S, "all run on", |w| w.calls("delete") == 0).await;
    // They are still watched as before.
    world.delete("u1", 10);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn t34_the_filter_is_asked_about_every_change() {
    let world = World::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let mut config = world.config();
    config.filter = Some(Arc::new({
        let asked = asked.clone();
        move |pod| {
            asked.fetch_add(1, Ordering::Relaxed);
            pod.metadata.labels.as_ref().is_none_or(|labels| !labels.contains_key("other"))
        }
    }));
    world.start_with(config).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.edit("u1", |p| p.metadata.annotations = Some([("a".into(), "b".into())].into()));
    world.until("it is updated", |w| w.calls("update") == 1).await;
    assert!(asked.load(Ordering::Relaxed) >= 3);
    // A pod that no longer passes the filter counts as deleted.
    world.edit("u1", |p| p.metadata.labels = Some([("other".into(), String::new())].into()));
    world.until("it is terminated", |w| w.calls("forget u1") == 1).await;
    assert_eq!(world.calls("remove"), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_nodes_and_mirror_pods_are_not_for_this_one() {
    let world = World::new();
    world.start().ready().await;
    let mut other = pod("other", "u1");
    other.spec.as_mut().unwrap().node_name = Some("node-2".into());
    world.apply(other);
    let mut mirror = pod("mirror", "u2");
    mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".into(), "x".into())].into());
    world.apply(mirror);
    world.holds_for(60 * S, "neither starts", |w| w.calls("create") == 0).await;
    world.vanish("u2", |_| ());
    world.holds_for(60 * S, "nothing ends", |w| w.calls("delete") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_lost_is_found_missing_by_the_slow_comparison() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/977 is the other direction.
    let world = World::new();
    world.start().ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.with(|s| s.running.remove("u1"));
    world.until("it is made again", |w| w.calls("create u1") == 2).await;
    world.found(pod("x", "u9"), None);
    world.until("what is not wanted is terminated", |w| w.calls("delete u9") >= 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_part_that_panics_ends_the_run_with_an_error() {
    let world = World::new();
    let mut controller = world.start();
    controller.ready().await;
    world.apply(pod("a", "panic"));
    assert!(matches!(controller.end().await, Err(RunError::Worker(_))));
}
