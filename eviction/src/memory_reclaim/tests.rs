//! Memory that the kernel reclaims from a pod instead of its eviction.

use serde_json::json;
use winddown_shared::{NodeStats, Pod, SwapStats};

use super::*;
use crate::Policy;
use crate::controller::tests::world::World;
use crate::controller::tests::{MINUTE, left, policy, secs};
use crate::tests::{bytes, memory, pod};

const HALF: Duration = Duration::from_millis(500);

fn reclaims() -> Policy {
    policy(json!({"evictionHard": {"memory.available": "1Gi"}}))
}

/// One pod with this much recently used file cache and swappable memory.
fn pods_with(active_file: &str, swappable: &str) -> Vec<(Pod, PodStats)> {
    let stats = {
        let mut stats = memory("900Mi");
        stats.active_file = Some(bytes(active_file));
        stats.swappable = Some(bytes(swappable));
        stats
    };
    vec![(pod("web", 0, &[]), stats)]
}

fn with_swap(available: &str, free: &str) -> NodeStats {
    let swap = SwapStats { total: bytes("4Gi"), free: bytes(free), ..SwapStats::default() };
    {
        let mut stats = left(available);
        stats.swap = Some(swap);
        stats
    }
}

fn reclaiming(policy: Policy, pods: Vec<(Pod, PodStats)>) -> World {
    World::reclaiming(policy, pods, HALF)
}

fn outcomes(world: &World) -> Vec<String> {
    world.view.history().into_iter().map(|record| record.outcome.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_can_go_to_swap_does_not_end() {
    let world = reclaiming(reclaims(), pods_with("0", "800Mi"));
    world.node.state().after_reclaim = Some(with_swap("2Gi", "3Gi"));
    world.is(with_swap("512Mi", "4Gi"), MINUTE).await;
    assert!(world.killed().is_empty(), "{:?}", world.killed());
    let asked = world.node.state().memory_asked.clone();
    let wanted = bytes("800Mi");
    assert_eq!(asked, [("web".to_owned(), MemoryFigure::Anonymous, wanted)], "all it has");
    let all = outcomes(&world);
    assert!(
        all.len() == 1
            && all[0].starts_with("reclaimed 838860800 bytes of memory from default/web in"),
        "{all:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn half_the_threshold_is_taken_back_beyond_what_is_lacking() {
    let world = reclaiming(reclaims(), pods_with("0", "900Mi"));
    world.node.state().after_reclaim = Some(with_swap("2Gi", "3Gi"));
    world.is(with_swap("1000Mi", "4Gi"), MINUTE).await;
    assert_eq!(world.node.state().memory_asked[0].2, bytes("24Mi") + bytes("512Mi"));
}

#[tokio::test(start_paused = true)]
async fn file_cache_is_taken_back_where_it_counts_as_used() {
    let mut policy = reclaims();
    policy.memory_available = MemoryAvailable::WorkingSet;
    let world = reclaiming(policy, pods_with("600Mi", "0"));
    world.node.state().after_reclaim = Some(left("2Gi"));
    world.is(left("512Mi"), MINUTE).await;
    assert!(world.killed().is_empty());
    assert_eq!(world.node.state().memory_asked[0].1, MemoryFigure::WorkingSet);
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_at_once_where_too_little_can_be_taken_back() {
    let no_swap = with_swap("512Mi", "0");
    let little_swap = with_swap("512Mi", "500Mi");
    for (pods, node) in [
        (pods_with("800Mi", "800Mi"), no_swap),
        (pods_with("800Mi", "800Mi"), little_swap),
        (pods_with("0", "500Mi"), with_swap("512Mi", "4Gi")),
        (vec![(pod("web", 0, &[]), memory("900Mi"))], with_swap("512Mi", "4Gi")),
    ] {
        let world = reclaiming(reclaims(), pods);
        world.helps("web", left("4Gi"));
        world.is(node, secs(1)).await;
        assert_eq!(world.killed().len(), 1);
        assert!(world.node.state().memory_asked.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_when_taking_back_takes_too_long() {
    let world = reclaiming(reclaims(), pods_with("0", "800Mi"));
    world.node.state().reclaim_takes = MINUTE;
    world.helps("web", left("4Gi"));
    let begun = tokio::time::Instant::now();
    world.is(with_swap("512Mi", "4Gi"), MINUTE).await;
    let asked = world.killer.calls()[0].at - begun;
    assert!(asked >= HALF * 2 && asked < HALF * 3, "{asked:?}");
    let all = outcomes(&world);
    assert!(
        matches!(&all[..], [tried, ended] if tried.starts_with("cannot reclaim memory from default/web: the kernel: no answer")
            && ended.starts_with("terminated in")),
        "{all:?}"
    );
    let (_, stats) = pods_with("0", "800Mi").remove(0);
    world.add(pod("next", 0, &[]), stats);
    world.helps("next", left("4Gi"));
    world.is(with_swap("512Mi", "4Gi"), secs(1)).await;
    assert_eq!(world.killed().len(), 2);
    assert_eq!(world.node.state().memory_asked.len(), 1, "not again for five minutes");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_its_memory_again_ends_and_not_twice_in_ten_seconds_is_it_asked_for() {
    let world = reclaiming(reclaims(), pods_with("0", "800Mi"));
    world.helps("web", left("4Gi"));
    // The kernel reports success, but memory is as short as before.
    world.is(with_swap("512Mi", "4Gi"), secs(1)).await;
    assert_eq!((world.killed().len(), world.node.state().memory_asked.len()), (1, 1));
}
