use winddown_eviction::{Signal, Threshold, ThresholdValue};
use winddown_shared::{FsLayout, FsStats};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const GIB: u64 = 1 << 30;

fn policy(signal: Signal, share: f32, min_reclaim: Option<f32>) -> Arc<Policy> {
    let mut threshold = Threshold::new(signal, ThresholdValue::Share(share));
    threshold.min_reclaim = min_reclaim.map(ThresholdValue::Share);
    Arc::new(Policy::new(vec![threshold], false))
}

/// A disk of 1000 GiB with so many left.
fn disk(left: u64) -> FsStats {
    FsStats {
        at: Some(Instant::now()),
        capacity_bytes: Some(1000 * GIB),
        available_bytes: Some(left * GIB),
        inodes: Some(1000),
        inodes_free: Some(1000),
        ..FsStats::default()
    }
}

fn node(left: u64) -> NodeStats {
    {
        let mut stats = NodeStats::default();
        stats.nodefs = Some(disk(left));
        stats.layout = Some(FsLayout::One);
        stats
    }
}

fn turns(policy: Arc<Policy>) -> DiskTurns {
    // The sender is dropped, so the rules do not change.
    DiskTurns::new(watch::Sender::new(policy).subscribe())
}

/// Returns which of `looks` samples, one `every` so often, queried a disk whose `stats` depend on the second.
async fn asked(
    turns: &mut DiskTurns,
    looks: usize,
    every: Duration,
    stats: impl Fn(u64) -> NodeStats,
) -> Vec<usize> {
    let begun = Instant::now();
    let mut asked = Vec::new();
    for look in 0..looks {
        let now = Instant::now();
        if turns.are_due(now) {
            asked.push(look);
            turns.answered(now, Some(&stats(begun.elapsed().as_secs())));
        }
        tokio::time::sleep(every).await;
    }
    asked
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_asked_at_each_look_once_a_fifth_of_it_is_left_above_the_threshold() {
    // (threshold, minimum reclaim, GiB left of 1000, whether that is calm)
    let table = [
        (0.1, None, 302, true),
        (0.1, None, 298, false),
        (0.3, None, 602, true),
        (0.3, None, 598, false),
        (0.1, Some(0.1), 402, true),
        (0.1, Some(0.1), 398, false),
        (0.1, None, 50, false),
        (0.1, None, 0, false),
        (0.01, None, 1000, true),
    ];
    for (share, reclaim, left, is_calm) in table {
        let mut turns = turns(policy(Signal::NodeFsAvailable, share, reclaim));
        let asked = asked(&mut turns, 22, SECOND, |_| node(left)).await;
        let times = if is_calm { 4 } else { 22 };
        assert_eq!(asked.len(), times, "{share} {reclaim:?} {left}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fills_is_asked_the_sooner_the_faster_it_fills() {
    let rules = || policy(Signal::NodeFsAvailable, 0.1, None);
    // 800 GiB above the threshold, which is reached after 40 s.
    let left = |second: u64| node(900_u64.saturating_sub(second * 20));
    let fast = asked(&mut turns(rules()), 60, SECOND, left).await;
    for pair in fast.windows(2).skip(1) {
        let rest = 40_usize.saturating_sub(pair[0]);
        assert!(pair[1] - pair[0] <= rest.div_ceil(4).clamp(1, 10), "{fast:?}");
    }
    assert!(fast.iter().filter(|look| **look < 20).count() < 10, "{fast:?}");
    // A quarter of the capacity in a second.
    let left = |second: u64| node(900 - second.min(2) * 250);
    let fastest = asked(&mut turns(rules()), 4, SECOND, left).await;
    assert_eq!(fastest, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_begins_to_fill_between_two_answers_is_met_within_ten_seconds() {
    let left = |second: u64| node(if second < 15 { 900 } else { 50 });
    let asked =
        asked(&mut turns(policy(Signal::NodeFsAvailable, 0.1, None)), 40, SECOND, left).await;
    assert_eq!(asked[..3], [0, 1, 11]);
    assert_eq!(asked[3..], (21..40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn inodes_and_derived_thresholds_count_as_well() {
    let few_inodes = |_| {
        let mut stats = node(1000);
        stats.nodefs.as_mut().unwrap().inodes_free = Some(100);
        stats
    };
    let mut inodes = turns(policy(Signal::NodeFsInodesFree, 0.05, None));
    assert_eq!(asked(&mut inodes, 20, SECOND, few_inodes).await.len(), 20);
    // With images on a disk of their own, its threshold also applies to the writable layers.
    let split = |_| {
        let mut stats = node(1000);
        stats.imagefs = Some(disk(1000));
        stats.containerfs = Some(disk(100));
        stats.layout = Some(FsLayout::ImageFs);
        stats
    };
    let mut layers = turns(policy(Signal::ImageFsAvailable, 0.1, None));
    assert_eq!(asked(&mut layers, 20, SECOND, split).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn looks_in_quick_succession_ask_each_time_and_a_late_timer_is_none() {
    let rules = || policy(Signal::NodeFsAvailable, 0.1, None);
    let quick = Duration::from_millis(250);
    assert_eq!(asked(&mut turns(rules()), 20, quick, |_| node(900)).await.len(), 20);
    let late = Duration::from_millis(995);
    assert!(asked(&mut turns(rules()), 20, late, |_| node(900)).await.len() <= 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_used_again_keeps_its_time_and_what_was_not_answered_is_asked_again() {
    let mut turns = turns(policy(Signal::NodeFsAvailable, 0.1, None));
    let said = node(900);
    asked(&mut turns, 3, SECOND, |_| said).await;
    let mut stats = NodeStats::default();
    turns.enter(&mut stats);
    assert_eq!(stats, said);
    assert!(stats.nodefs.unwrap().at.unwrap().elapsed() >= 3 * SECOND);
    assert!(!turns.are_due(Instant::now()));
    turns.answered(Instant::now(), None);
    for _ in 0..3 {
        tokio::time::sleep(SECOND).await;
        assert!(turns.are_due(Instant::now()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_given_up_is_asked_again_at_the_next_look() {
    let mut turns = turns(policy(Signal::NodeFsAvailable, 0.1, None));
    asked(&mut turns, 11, SECOND, |_| node(900)).await;
    for _ in 0..3 {
        assert!(turns.are_due(Instant::now()), "nothing was answered");
        tokio::time::sleep(SECOND).await;
    }
}
