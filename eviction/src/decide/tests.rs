use std::time::Duration;

use proptest::prelude::*;
use winddown_shared::PressureCondition;

use super::*;
use crate::observation::MemoryAvailable;
use crate::threshold::ThresholdConfig;

const GI: i64 = 1 << 30;
const MI: i64 = 1 << 20;
const CAPACITY: i64 = 10 * GI;

fn config(fields: serde_json::Value) -> Policy {
    let config: ThresholdConfig = serde_json::from_value(fields).unwrap();
    Policy::new(config.thresholds().unwrap(), false)
}

fn hard_memory() -> Policy {
    config(serde_json::json!({
        "evictionHard": {"memory.available": "1Gi"},
        "evictionMinimumReclaim": {"memory.available": "500Mi"},
    }))
}

fn soft_memory() -> Policy {
    config(serde_json::json!({
        "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "2m"},
    }))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A sequence of samples, each at its own time.
struct Looks {
    policy: Policy,
    state: EvictionState,
    now: Instant,
}

impl Looks {
    fn new(policy: Policy) -> Self {
        Self { policy, state: EvictionState::default(), now: Instant::now() }
    }

    fn later(&mut self, seconds: u64, left: &[(Signal, i64)]) -> EvictionDecision {
        self.now += secs(seconds);
        let at = Some(self.now);
        self.look(left.iter().map(|&(signal, left)| (signal, left, CAPACITY, at)), None)
    }

    fn look(
        &mut self,
        left: impl IntoIterator<Item = (Signal, i64, i64, Option<Instant>)>,
        pressure: Option<PressureStats>,
    ) -> EvictionDecision {
        let mut observations = Observations::default();
        for (signal, available, capacity, at) in left {
            observations.set(signal, Some(Observation { available, capacity, at }));
        }
        let snapshot = Snapshot { now: self.now, observations, pressure };
        let decision = decide(&snapshot, &self.policy, &self.state);
        self.state = decision.state;
        decision
    }
}

fn acts(decision: &EvictionDecision) -> Option<Signal> {
    decision.shortage.map(|shortage| shortage.signal)
}

const MEMORY: Signal = Signal::MemoryAvailable;

#[tokio::test(start_paused = true)]
async fn thresholds_met_strictly_and_with_what_is_to_be_reclaimed_once_they_were() {
    let mut looks = Looks::new(hard_memory());
    assert_eq!(acts(&looks.later(1, &[(MEMORY, GI)])), None, "as much as there should be");
    let shortage = looks.later(1, &[(MEMORY, GI - 1)]).shortage.unwrap();
    assert_eq!(
        (shortage.threshold.to_string(), shortage.deficit),
        ("1Gi".to_owned(), 500 * MI + 1)
    );
    assert_eq!(acts(&looks.later(1, &[(MEMORY, GI + 50 * MI)])), Some(MEMORY));
    assert_eq!(acts(&looks.later(1, &[(MEMORY, GI + 500 * MI)])), None, "all is regained");
    assert_eq!(acts(&looks.later(1, &[(MEMORY, GI + 50 * MI)])), None, "and stays so");
}

#[tokio::test(start_paused = true)]
async fn percentage_thresholds_met_are_shares_of_the_capacity() {
    let mut looks = Looks::new(config(serde_json::json!({
        "evictionHard": {"memory.available": "20%", "nodefs.available": "30%"},
        "evictionMinimumReclaim": {"memory.available": "5%"},
    })));
    let disk = Signal::NodeFsAvailable;
    let part = |percent: i64| CAPACITY / 1000 * percent;
    let cases = [
        ([(MEMORY, part(350)), (disk, part(350))], vec![]),
        ([(MEMORY, part(150)), (disk, part(350))], vec![MEMORY]),
        ([(MEMORY, part(225)), (disk, part(350))], vec![MEMORY]),
        ([(MEMORY, part(300)), (disk, part(250))], vec![disk]),
    ];
    for (left, expected) in cases {
        let decision = looks.later(1, &left);
        let met: Vec<Signal> = decision.met(&looks.policy).map(|t| t.signal).collect();
        assert_eq!(met, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn thresholds_updated_stats_only_what_was_measured_anew_is_acted_on() {
    let mut looks = Looks::new(hard_memory());
    let start = looks.now;
    let mut look = |seconds: u64, at: Option<u64>| {
        let at = at.map(|at| start + secs(at));
        looks.now = start + secs(seconds);
        acts(&looks.look([(MEMORY, 0, CAPACITY, at)], None))
    };
    assert_eq!(look(20, Some(10)), Some(MEMORY), "there was none before");
    assert_eq!(look(21, Some(10)), None, "the same");
    assert_eq!(look(22, Some(9)), None, "an older one");
    assert_eq!(look(23, Some(11)), Some(MEMORY));
    assert_eq!(look(24, None), Some(MEMORY), "what has no time is new");
}

#[tokio::test(start_paused = true)]
async fn thresholds_met_grace_period_from_the_first_time_on() {
    let mut looks = Looks::new(soft_memory());
    for seconds in 0..12 {
        let decision = looks.later(10, &[(MEMORY, GI)]);
        assert_eq!(acts(&decision), None, "after {} s", seconds * 10);
        assert!(
            decision.conditions.contains(PressureCondition::Memory),
            "before the grace is over"
        );
    }
    let shortage = looks.later(10, &[(MEMORY, GI)]).shortage.unwrap();
    assert!(!shortage.hard);
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_that_is_over_for_a_moment_goes_on() {
    let mut looks = Looks::new(soft_memory());
    looks.later(0, &[(MEMORY, GI)]);
    assert_eq!(acts(&looks.later(100, &[(MEMORY, GI)])), None);
    looks.later(5, &[(MEMORY, 3 * GI)]);
    assert_eq!(acts(&looks.later(14, &[(MEMORY, 3 * GI)])), None, "it is not met");
    let mut looks = Looks::new(soft_memory());
    looks.later(0, &[(MEMORY, GI)]);
    looks.later(111, &[(MEMORY, GI)]);
    looks.later(4, &[(MEMORY, 3 * GI)]);
    assert_eq!(acts(&looks.later(5, &[(MEMORY, GI)])), Some(MEMORY), "120 s in all");
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_that_is_over_for_ten_seconds_starts_anew() {
    let mut looks = Looks::new(soft_memory());
    looks.later(0, &[(MEMORY, GI)]);
    looks.later(100, &[(MEMORY, GI)]);
    looks.later(5, &[(MEMORY, 3 * GI)]);
    looks.later(5, &[(MEMORY, 3 * GI)]);
    assert_eq!(acts(&looks.later(110, &[(MEMORY, GI)])), None);
    assert_eq!(acts(&looks.later(120, &[(MEMORY, GI)])), Some(MEMORY));
}

#[tokio::test(start_paused = true)]
async fn node_conditions_observed_since_the_transition_period() {
    let mut policy = hard_memory();
    policy.transition_period = secs(120);
    let mut looks = Looks::new(policy);
    looks.later(1, &[(MEMORY, 0)]);
    let healthy = [(MEMORY, 5 * GI), (Signal::PidAvailable, 5)];
    assert!(looks.later(119, &healthy).conditions.contains(PressureCondition::Memory));
    assert!(looks.later(1, &healthy).conditions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_condition_holds_for_as_long_as_its_signal_cannot_be_measured() {
    let mut policy = hard_memory();
    policy.transition_period = secs(120);
    let mut looks = Looks::new(policy);
    looks.later(1, &[(MEMORY, 0)]);
    for _ in 0..5 {
        let blind = looks.later(100, &[]);
        assert!(blind.conditions.contains(PressureCondition::Memory));
        assert!(blind.shortage.is_none() && blind.met(&looks.policy).count() == 0);
    }
    let healthy = [(MEMORY, 5 * GI)];
    assert!(looks.later(119, &healthy).conditions.contains(PressureCondition::Memory));
    assert!(looks.later(1, &healthy).conditions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_not_measured_is_neither_short_nor_over() {
    let mut looks = Looks::new(hard_memory());
    assert_eq!(acts(&looks.later(1, &[(MEMORY, 0)])), Some(MEMORY));
    assert_eq!(acts(&looks.later(1, &[])), None);
    assert_eq!(acts(&looks.later(1, &[(MEMORY, GI + 1)])), Some(MEMORY), "it was not regained");
}

#[tokio::test(start_paused = true)]
async fn of_several_hard_ones_come_first_then_memory_then_what_lacks_most() {
    let policy = config(serde_json::json!({
        "evictionHard": {"memory.available": "1Gi", "nodefs.available": "1Gi",
                         "imagefs.available": "1Gi", "nodefs.inodesFree": "1Gi"},
        "evictionSoft": {"memory.available": "2Gi", "pid.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1s", "pid.available": "1s"},
    }));
    let mut looks = Looks::new(policy);
    let shortage = |looks: &mut Looks, left: &[(Signal, i64)]| {
        looks.later(1, left);
        looks.later(1, left).shortage.map(|shortage| (shortage.signal, shortage.hard))
    };
    let (node, image, pid) =
        (Signal::NodeFsAvailable, Signal::ImageFsAvailable, Signal::PidAvailable);
    let all = [(MEMORY, 0), (node, 0), (image, 0), (pid, 0)];
    assert_eq!(shortage(&mut looks, &all), Some((MEMORY, true)));
    let soft_memory = [(MEMORY, 3 * GI / 2), (node, GI / 2), (image, GI / 4), (pid, 0)];
    assert_eq!(shortage(&mut looks, &soft_memory), Some((image, true)));
    let only_soft = [(MEMORY, 3 * GI / 2), (node, GI), (image, GI), (pid, 0)];
    assert_eq!(shortage(&mut looks, &only_soft), Some((MEMORY, false)));
}

#[tokio::test(start_paused = true)]
async fn of_two_disks_that_lack_the_same_part_the_first_of_the_policy_is_acted_on() {
    let mut looks = Looks::new(config(serde_json::json!({
        "evictionHard": {"nodefs.available": "1Gi", "imagefs.available": "2Gi"},
    })));
    let left = [(Signal::NodeFsAvailable, GI / 2), (Signal::ImageFsAvailable, GI)];
    assert_eq!(acts(&looks.later(1, &left)), Some(Signal::NodeFsAvailable));
}

#[tokio::test(start_paused = true)]
async fn a_small_disk_that_lacks_half_comes_before_a_large_one_that_lacks_more_bytes() {
    let mut looks = Looks::new(config(serde_json::json!({
        "evictionHard": {"nodefs.available": "4Gi", "imagefs.available": "1Gi"},
    })));
    let left = [(Signal::NodeFsAvailable, 3 * GI), (Signal::ImageFsAvailable, GI / 2)];
    assert_eq!(acts(&looks.later(1, &left)), Some(Signal::ImageFsAvailable));
}

#[tokio::test(start_paused = true)]
async fn containerfs_counts_in_the_first_look_already() {
    let policy = config(serde_json::json!({"evictionHard": {"imagefs.available": "2Gi"}}));
    let (policy, overwritten) = policy.for_layout(winddown_shared::FsLayout::ImageFs);
    assert!(overwritten.is_empty());
    let mut looks = Looks::new(policy);
    let decision = looks.later(0, &[(Signal::ContainerFsAvailable, GI)]);
    assert_eq!(acts(&decision), Some(Signal::ContainerFsAvailable));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_configuration_ends_no_pod_for_ten_seconds() {
    let (old, new) = (hard_memory(), soft_memory());
    let wider = config(serde_json::json!({"evictionHard": {"memory.available": "9Gi"}}));
    let mut looks = Looks::new(old.clone());
    looks.later(1, &[(MEMORY, 0)]);
    let carried = looks.state.carried_over(&old, &wider, looks.now);
    looks = Looks { policy: wider.clone(), state: carried, now: looks.now };
    assert_eq!(acts(&looks.later(9, &[(MEMORY, 2 * GI)])), None);
    assert_eq!(acts(&looks.later(1, &[(MEMORY, 2 * GI)])), Some(MEMORY));
    let back = looks.state.carried_over(&wider, &new, looks.now);
    assert_eq!(back.tracked[0].first, None);
}

#[tokio::test(start_paused = true)]
async fn a_threshold_that_a_change_of_the_configuration_leaves_alone_goes_on() {
    let both = config(serde_json::json!({
        "evictionHard": {"pid.available": "10"},
        "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "2m"},
    }));
    let mut looks = Looks::new(soft_memory());
    looks.later(0, &[(MEMORY, GI)]);
    looks.later(110, &[(MEMORY, GI)]);
    looks.state = looks.state.carried_over(&looks.policy, &both, looks.now);
    looks.policy = both;
    assert_eq!(acts(&looks.later(10, &[(MEMORY, GI)])), Some(MEMORY), "120 s in all");
}

fn stalled(avg10: f32, total: u64) -> PressureStats {
    PressureStats {
        full_avg10: avg10,
        some_avg10: avg10,
        some_total_us: total,
        full_total_us: total,
        at: None,
    }
}

fn pressed(looks: &mut Looks, left: i64, pressure: PressureStats) -> Option<Cause> {
    looks.now += secs(1);
    looks
        .look([(MEMORY, left, CAPACITY, None)], Some(pressure))
        .shortage
        .map(|shortage| shortage.cause)
}

#[tokio::test(start_paused = true)]
async fn waiting_for_memory_ends_a_pod_only_if_memory_is_short_and_the_waiting_grows() {
    let mut policy = config(serde_json::json!({}));
    policy.memory_pressure = Some(PressureRule::default());
    let cause = Some(Cause::MemoryStall);
    let mut looks = Looks::new(policy);
    assert_eq!(pressed(&mut looks, GI / 2, stalled(50.0, 1)), None, "nothing to compare with");
    assert_eq!(pressed(&mut looks, GI / 2, stalled(60.0, 2)), cause);
    assert_eq!(pressed(&mut looks, GI / 2, stalled(40.0, 3)), None, "it falls");
    assert_eq!(pressed(&mut looks, GI / 2, stalled(50.0, 3)), None, "nobody has waited since");
    assert_eq!(pressed(&mut looks, 5 * GI, stalled(90.0, 4)), None, "there is plenty");
    assert_eq!(pressed(&mut looks, GI / 2, stalled(9.9, 5)), None, "little");
    assert_eq!(pressed(&mut looks, GI / 2, stalled(99.0, 6)), cause);
    looks.state.note_memory_eviction(looks.now);
    assert_eq!(pressed(&mut looks, GI / 2, stalled(99.0, 7)), None, "somebody was just ended");
    looks.now += secs(10);
    assert_eq!(pressed(&mut looks, GI / 2, stalled(99.0, 8)), cause);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_memory_comes_after_a_hard_want_of_memory_and_before_everything_else() {
    let mut policy = config(serde_json::json!({
        "evictionHard": {"memory.available": "256Mi", "nodefs.available": "1Gi"},
        "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1s"},
    }));
    policy.memory_pressure = Some(PressureRule::default());
    let mut looks = Looks::new(policy);
    let mut total = 0;
    let mut cause = |memory: i64, disk: i64| {
        looks.now += secs(1);
        total += 1;
        let at = Some(looks.now);
        let disk = (Signal::NodeFsAvailable, disk, CAPACITY, at);
        let left = [(MEMORY, memory, CAPACITY, at), disk];
        looks
            .look(left, Some(stalled(50.0, total)))
            .shortage
            .map(|shortage| (shortage.cause, shortage.hard))
    };
    cause(5 * GI, 5 * GI);
    assert_eq!(cause(GI / 2, GI / 2), Some((Cause::MemoryStall, true)), "a disk can wait");
    assert_eq!(cause(GI / 2, 5 * GI), Some((Cause::MemoryStall, true)), "the soft one waits");
    assert_eq!(cause(GI * 3 / 2, 5 * GI), Some((Cause::Signal(MEMORY), false)), "there is enough");
    assert_eq!(cause(0, 5 * GI), Some((Cause::Signal(MEMORY), true)), "memory is gone");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_memory_ends_no_pod_while_enough_memory_is_available() {
    let mut policy = config(serde_json::json!({}));
    let rule = PressureRule::default();
    policy.memory_pressure = Some(rule);
    let mut looks = Looks::new(policy);
    let enough = rule.below.of(CAPACITY).value();
    pressed(&mut looks, enough, stalled(50.0, 1));
    assert_eq!(pressed(&mut looks, enough, stalled(50.0, 2)), None);
    let short = pressed(&mut looks, enough - 1, stalled(50.0, 3));
    assert_eq!(short, Some(Cause::MemoryStall));
}

#[test]
fn file_cache_that_can_be_given_back_is_not_used_unless_the_working_set_is_asked_for() {
    let memory = Some(winddown_shared::MemoryStats {
        at: None,
        working_set: 9,
        available: 1,
        mem_available: Some(8),
    });
    let swap = Some(winddown_shared::SwapStats { total: 9, free: 5, ..Default::default() });
    let mut stats = winddown_shared::NodeStats::default();
    (stats.memory, stats.swap) = (memory, swap);
    let left = [MemoryAvailable::default(), MemoryAvailable::WorkingSet].map(|which| {
        let left = Observations::of(&stats, which).get(MEMORY).unwrap();
        (left.available, left.capacity)
    });
    assert_eq!(left, [(8, 10), (1, 10)], "and free swap never counts");
}

proptest! {
    #[test]
    fn whatever_is_left_the_decision_is_about_something_that_is_short_and_measured(
        steps in prop::collection::vec(
            (prop::collection::vec(prop::option::of(0..12_i64), Signal::COUNT), 0..200_u64),
            1..12,
        ),
    ) {
        let policy = config(serde_json::json!({
            "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%",
                             "pid.available": "2Gi", "imagefs.inodesFree": "5%"},
            "evictionSoft": {"memory.available": "3Gi", "nodefs.available": "40%"},
            "evictionSoftGracePeriod": {"memory.available": "1m", "nodefs.available": "30s"},
            "evictionMinimumReclaim": {"memory.available": "1Gi", "nodefs.available": "10%"},
        }));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let mut looks = Looks::new(policy.clone());
        for (left, seconds) in steps {
            looks.now += secs(seconds);
            let at = Some(looks.now);
            let left: Vec<_> = Signal::ALL
                .into_iter()
                .zip(left)
                .filter_map(|(signal, left)| Some((signal, left? * GI, CAPACITY, at)))
                .collect();
            let before = looks.state;
            let decision = looks.look(left.clone(), None);
            prop_assert_eq!(&decision, &decide(
                &Snapshot { now: looks.now, observations: decision.state.last, pressure: None },
                &policy,
                &before,
            ));
            for threshold in decision.met(&policy) {
                prop_assert!(decision.conditions.contains(threshold.signal.condition()));
            }
            let Some(shortage) = decision.shortage else { continue };
            let (_, left, ..) = left.iter().find(|(signal, ..)| *signal == shortage.signal).unwrap();
            let met: Vec<_> = decision.met(&policy).filter(|t| t.signal == shortage.signal).collect();
            prop_assert!(met.iter().any(|t| t.is_hard() == shortage.hard));
            prop_assert!(met.iter().any(|t| t.quantity(CAPACITY, true).value() > *left));
            prop_assert!(shortage.deficit >= 1);
            let hard = decision.met(&policy).any(Threshold::is_hard);
            prop_assert!(shortage.hard || !hard || seconds == 0, "a hard one waits for a soft one");
        }
    }
}
