//! The kubelet's tests of its memory threshold notifier. Here the kernel reports tasks that wait for memory, whatever
//! the threshold, so nothing has to be adjusted as the usage changes; but the usage determines the time of the next
//! sample.

use winddown_shared::MemoryStats;

use super::*;
use crate::{DecisionOutcome, MemoryAvailable, Observations, SamplingIntervals};

/// The kubelet's handler is called for each of four events; here, only for those that the loop has time for.
#[tokio::test(start_paused = true)]
async fn start() {
    let world = World::new(hard(), memory_pods());
    world.is(left("8Gi"), Duration::from_millis(50)).await;
    assert_eq!(world.looks(), 1);
    for event in 2..=5 {
        world.wake.notify_one();
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert_eq!(world.looks(), event);
    }
    for _ in 0..4 {
        world.wake.notify_one();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(world.looks(), 7, "never more often than ten times a second");
    assert_eq!(world.killed(), [], "waits alone end nobody");
}

/// The first event is acted on, and the one right after it does not evict a second pod for the same shortage. A
/// notifier that fails does not stop the sampling.
#[tokio::test(start_paused = true)]
async fn update_memcg_threshold() {
    let world = World::new(hard(), memory_pods());
    world.is(left("8Gi"), Duration::from_millis(150)).await;
    world.helps(LOWEST, left("8Gi"));
    world.node.state().stats = left("500Mi");
    for _ in 0..2 {
        world.wake.notify_one();
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    assert_eq!(names(&world), [LOWEST], "long before the next look was due");
    // No more events wake the loop.
    let looks = world.looks();
    tokio::time::sleep(secs(20)).await;
    assert!(world.looks() >= looks + 19);
}

/// The kubelet's notifier depends on what is left until the threshold, for the node and for the pods; here, the time of
/// the next sample does.
#[test]
fn update_threshold() {
    let policy = Policy::new(hard().thresholds().to_vec(), true);
    let memory = |available: &str| MemoryStats {
        at: None,
        working_set: (8 << 30) - bytes(available),
        available: bytes(available),
        mem_available: None,
    };
    let observed = |node: &str, pods: &str| {
        let stats = {
            let mut stats = NodeStats::default();
            stats.memory = Some(memory(node));
            stats.pods_memory = Some(memory(pods));
            stats
        };
        Observations::of(&stats, MemoryAvailable::WorkingSet)
    };
    let next = |before: &Observations, now: &Observations| {
        SamplingIntervals::default().next(&policy, before, now, secs(1), secs(1)).as_millis()
    };
    let calm = observed("6Gi", "6Gi");
    assert_eq!(next(&calm, &calm), 1250);
    assert_eq!(next(&observed("4Gi", "6Gi"), &observed("3Gi", "6Gi")), 500, "2 GiB last for 2 s");
    assert_eq!(next(&observed("6Gi", "4Gi"), &observed("6Gi", "2Gi")), 125, "1 GiB for half a one");
}

/// Events on a node that cannot be measured evict no pod, and the sampling continues.
#[tokio::test(start_paused = true)]
async fn update_threshold_with_invalid_summary() {
    let world = World::new(hard(), memory_pods());
    // The memory is unknown.
    world.is(NodeStats::default(), secs(3)).await;
    world.node.state().fails = true;
    for _ in 0..10 {
        world.wake.notify_one();
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(world.killed(), []);
    assert!(!world.task.is_finished());
    world.node.state().fails = false;
    world.is(left("500Mi"), secs(2)).await;
    assert!(!world.killed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn processes_that_the_kernel_killed_are_in_the_history_and_end_no_pod() {
    let world = World::new(hard(), memory_pods());
    let killed = |oom_kills: Option<u64>| {
        let mut stats = left("8Gi");
        stats.oom_kills = oom_kills;
        stats
    };
    for oom_kills in [Some(7), Some(7), None, Some(9), Some(9), Some(0), Some(1)] {
        world.is(killed(oom_kills), secs(2)).await;
    }
    let outcomes: Vec<DecisionOutcome> =
        world.view.history().into_iter().map(|r| r.outcome).collect();
    let killed = |processes| DecisionOutcome::KilledByKernel { processes };
    assert_eq!(outcomes, [killed(2), killed(1)], "what was before is not news");
    assert_eq!(world.killed(), []);
}
