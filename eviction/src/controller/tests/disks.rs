//! Full disks.

use serde_json::json;
use winddown_shared::{FsStats, GateReason, GateReasons, PressureCondition};

use super::*;
use crate::DecisionOutcome;
use crate::tests::disk;

fn disk_left(available: &str) -> NodeStats {
    let nodefs = FsStats {
        at: None,
        capacity_bytes: Some(bytes("100Gi")),
        available_bytes: Some(bytes(available)),
        inodes: Some(1_000_000),
        inodes_free: Some(900_000),
        ..FsStats::default()
    };
    {
        let mut stats = left("8Gi");
        stats.nodefs = Some(nodefs);
        stats
    }
}

fn disk_policy() -> Policy {
    policy(json!({"evictionHard": {"nodefs.available": "1Gi", "memory.available": "1Gi"}}))
}

fn pods() -> Vec<(Pod, PodStats)> {
    let both = |name: &str, rootfs: &str| {
        let mut stats = disk(rootfs, "0");
        stats.memory_working_set = Some(bytes(rootfs));
        (pod(name, 0, &[]), stats)
    };
    vec![both("much", "900Mi"), both("little", "100Mi")]
}

#[tokio::test(start_paused = true)]
async fn reclaim_is_judged_by_what_was_short_and_by_nothing_else() {
    let policy = policy(json!({
        "evictionHard": {"nodefs.available": "1Gi"},
        "evictionSoft": {"memory.available": "10Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1h"},
    }));
    let world = World::new(policy, pods());
    world.node.state().after_reclaim = Some(disk_left("5Gi"));
    world.is(disk_left("500Mi"), MINUTE).await;
    assert_eq!(names(&world), [""; 0], "memory is short for less than its grace");
    assert!(world.has(PressureCondition::Memory) && world.has(PressureCondition::Disk));
    let outcome = &world.view.history()[0].outcome;
    assert!(matches!(outcome, DecisionOutcome::Reclaimed(back) if back.items == 3), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_wait_while_disk_space_is_given_back() {
    let world = World::new(disk_policy(), pods());
    world.node.state().reclaim_takes = secs(3600);
    world.is(disk_left("500Mi"), secs(5)).await;
    assert_eq!(names(&world), [""; 0]);
    let mut short = left("500Mi");
    short.nodefs = disk_left("500Mi").nodefs;
    world.helps("much", disk_left("500Mi"));
    world.is(short, secs(1)).await;
    assert_eq!(names(&world), ["much"]);
    world.is(disk_left("500Mi"), secs(65)).await;
    assert_eq!(names(&world).len(), 2, "after a minute no more is hoped for from it");
    // A reclaim that hung is not retried before the next pod, nor for five minutes.
    let (next, used) = pods().remove(0);
    let next = winddown_shared::testing::pod_with("next", "next", |object| {
        object.spec.clone_from(&next.object().spec);
    });
    world.add(next, used);
    tokio::time::sleep(secs(20)).await;
    assert_eq!(names(&world).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn disk_space_is_given_back_while_memory_is_short_and_there_is_no_pod_to_end() {
    let world = World::new(disk_policy(), Vec::new());
    let mut short = left("500Mi");
    short.nodefs = disk_left("500Mi").nodefs;
    world.is(short, secs(5)).await;
    assert_eq!(world.node.state().reclaimed.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_that_is_under_way_when_a_drain_begins_stops_and_says_what_it_gave_back() {
    let world = World::new(disk_policy(), pods());
    world.node.state().reclaim_takes = secs(3);
    world.is(disk_left("500Mi"), secs(5)).await;
    world.paused_by.send_replace(GateReasons::from_iter([GateReason::Drain]));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.node.state().reclaimed.len(), 1);
    let outcome = &world.view.history()[0].outcome;
    assert!(matches!(outcome, DecisionOutcome::Reclaimed(back) if back.items == 1), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_evicted_pod_leaves_on_the_disk_is_waited_for_and_given_back() {
    let world = World::new(disk_policy(), pods());
    let much = pods()[0].0.clone();
    world.killer.stays_mounted(much.uid(), ["/var/lib/x"], Some(secs(8)));
    world.is(disk_left("500Mi"), secs(7)).await;
    assert_eq!(names(&world), ["much"]);
    world.node.state().reclaimed.clear();
    world.node.state().after_reclaim = Some(disk_left("5Gi"));
    world.is(disk_left("500Mi"), MINUTE).await;
    assert_eq!(names(&world), ["much"]);
    assert_eq!(world.node.state().reclaimed.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_does_not_keep_a_full_disk_waiting_for_its_files() {
    let world = World::new(disk_policy(), pods());
    world.killer.hangs(pods()[0].0.uid(), secs(3600));
    world.is(disk_left("500Mi"), MINUTE).await;
    assert_eq!(names(&world), ["much", "little"]);
    let calls = world.killer.calls();
    assert_eq!((calls[1].at - calls[0].at).as_secs(), 10, "its second, and nine more");
}

#[tokio::test(start_paused = true)]
async fn the_full_disk_waits_while_pods_over_their_own_limit_end() {
    let limited = changed("limited", 9, &[], |object| {
        let limit = [("ephemeral-storage", "1Gi")];
        object.spec.as_mut().unwrap().containers = vec![container("main", &[], &limit)];
    });
    let mut pods = pods();
    pods.push((limited, disk("2Gi", "0")));
    let world = World::new(disk_policy(), pods);
    world.helps("limited", disk_left("5Gi"));
    world.is(disk_left("500Mi"), MINUTE).await;
    assert_eq!(names(&world), ["limited"]);
    let json = serde_json::to_value(world.view.history()).unwrap();
    assert_eq!(json[0]["signal"], "ephemeralpodfs.limit");
}

/// Two pods on a disk that is short by half a GiB; the larger one was evicted and has stopped.
async fn much_has_ended() -> World {
    let world = World::new(disk_policy(), pods());
    world.is(disk_left("500Mi"), secs(2)).await;
    assert_eq!(names(&world), ["much"]);
    world
}

#[tokio::test(start_paused = true)]
async fn no_second_victim_while_a_runtime_still_removes_the_first_ones_files() {
    let world = much_has_ended().await;
    world.is(disk_left("490Mi"), secs(25)).await;
    assert_eq!(names(&world), ["much"]);
    world.is(disk_left("1380Mi"), MINUTE).await;
    assert_eq!(names(&world), ["much"]);
    let was = |outcome: &DecisionOutcome| {
        matches!(outcome, DecisionOutcome::Evicting | DecisionOutcome::NoCandidate { .. })
    };
    assert!(!world.view.history().iter().any(|record| was(&record.outcome)));
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_follows_at_once_when_what_came_back_was_not_enough() {
    let policy = policy(json!({"evictionHard": {"nodefs.available": "2Gi"}}));
    let world = World::new(policy, pods());
    world.is(disk_left("500Mi"), secs(4)).await;
    assert_eq!(names(&world), ["much"]);
    world.is(disk_left("1300Mi"), secs(1)).await;
    assert_eq!(names(&world), ["much", "little"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_victim_that_was_hurried_leaves_on_the_disk_counts_once() {
    let mut policy = policy(json!({
        "evictionHard": {"nodefs.available": "2Gi"},
        "evictionSoft": {"nodefs.available": "4Gi"},
        "evictionSoftGracePeriod": {"nodefs.available": "10s"},
    }));
    policy.max_pod_grace = None;
    let world = World::new(policy, pods());
    world.killer.takes(pods()[0].0.uid(), secs(25));
    world.is(disk_left("3Gi"), secs(15)).await;
    world.is(disk_left("500Mi"), secs(3)).await;
    assert_eq!(names(&world), ["much", "much"]);
    world.is(disk_left("1400Mi"), secs(2)).await;
    assert_eq!(names(&world), ["much", "much", "little"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_victim_had_is_not_waited_for_longer_than_thirty_seconds() {
    let world = much_has_ended().await;
    world.is(disk_left("500Mi"), secs(27)).await;
    assert_eq!(names(&world), ["much"]);
    world.is(disk_left("500Mi"), secs(3)).await;
    assert_eq!(names(&world), ["much", "little"]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_keeps_filling_waits_for_five_seconds_only() {
    let world = much_has_ended().await;
    for left in ["440Mi", "380Mi"] {
        world.is(disk_left(left), secs(1)).await;
    }
    assert_eq!(names(&world), ["much"]);
    for left in ["320Mi", "260Mi", "200Mi"] {
        world.is(disk_left(left), secs(1)).await;
    }
    assert_eq!(names(&world), ["much", "little"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_wait_for_pods_that_had_nothing_on_it() {
    let mut pods = pods();
    pods[0].1 = disk("0", "0");
    pods[1].1 = disk("0", "0");
    let world = World::new(disk_policy(), pods);
    world.is(disk_left("500Mi"), secs(4)).await;
    assert_eq!(names(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn volumes_that_do_not_go_with_the_victim_are_not_waited_for() {
    let kept = changed("kept", 0, &[], |object| {
        let volume = json!([{"name": "v", "hostPath": {"path": "/srv"}}]);
        object.spec.as_mut().unwrap().volumes = serde_json::from_value(volume).unwrap();
    });
    let used = winddown_shared::DiskUse { bytes: bytes("900Mi"), inodes: 9, is_partial: false };
    let mut stats = disk("1Mi", "0");
    stats.volumes = vec![winddown_shared::VolumeStats { name: "v".into(), used }];
    let world = World::new(disk_policy(), vec![(kept, stats), pods().remove(1)]);
    world.is(disk_left("500Mi"), secs(2)).await;
    assert_eq!(names(&world), ["kept"]);
    world.is(disk_left("501Mi"), secs(1)).await;
    assert_eq!(names(&world), ["kept", "little"]);
}
