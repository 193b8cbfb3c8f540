use proptest::prelude::*;
use winddown_shared::testing::static_pod;
use winddown_shared::{DiskUse, FsLayout, PressureCondition, Quantity};

use super::*;
use crate::cause::Cause;
use crate::exemption::Exemption;
use crate::policy::StaticPods;
use crate::reclaim::Reclaimable;
use crate::signal::Signal;
use crate::tests::{bytes, changed, disk, memory, pod};

const NOTHING: &[Reclaimable] = &[];

fn act(hard: bool, deficit: &str) -> Shortage {
    Shortage {
        cause: Cause::Signal(Signal::MemoryAvailable),
        signal: Signal::MemoryAvailable,
        hard,
        threshold: Quantity::ZERO,
        available: Quantity::ZERO,
        deficit: i64::try_from(bytes(deficit)).unwrap(),
        measured_at: None,
        since: Instant::now(),
        reclaim: NOTHING,
    }
}

fn policy() -> Policy {
    Policy::new(Vec::new(), false)
}

fn ending(
    seconds: u64,
    has_minimal_grace: bool,
    evicted_for: Option<PressureCondition>,
) -> Option<CandidateEnding> {
    Some(CandidateEnding {
        due: Instant::now() + Duration::from_secs(seconds),
        has_minimal_grace,
        evicted_for: evicted_for.into_iter().collect(),
    })
}

struct Node(Vec<(Pod, Option<PodStats>, Option<CandidateEnding>)>);

/// A pod with this usage, on a node that may never measure pods.
fn candidate<'a>(
    (pod, stats, ending): &'a (Pod, Option<PodStats>, Option<CandidateEnding>),
    is_never_measured: bool,
) -> Candidate<'a> {
    Candidate { is_never_measured, ending: *ending, ..Candidate::new(pod, stats.as_ref()) }
}

impl Node {
    fn chosen(
        &self,
        shortage: &Shortage,
        policy: &Policy,
    ) -> (Option<String>, bool, Vec<CandidateVerdict>) {
        let candidates: Vec<_> = self.0.iter().map(|one| candidate(one, false)).collect();
        let choice = choose(shortage, &candidates, policy, Instant::now());
        let verdicts = choice.considered.iter().map(|considered| considered.verdict).collect();
        (choice.victim.map(|pod| pod.name().to_string()), choice.waits, verdicts)
    }
}

/// A pod with more files than can be counted in time was ranked by the few that were, and the others went in its place.
#[tokio::test(start_paused = true)]
async fn a_pod_with_more_files_than_could_be_counted_goes_before_those_of_its_priority_that_were() {
    let uncounted = |mut stats: PodStats| {
        for container in &mut stats.containers {
            container.logs = container.logs.map(|used| DiskUse { is_partial: true, ..used });
        }
        stats
    };
    let requests = |name, priority| pod(name, priority, &[("ephemeral-storage", "1Gi")]);
    let node = Node(vec![
        (requests("larger", 1), Some(disk("0", "3Gi")), None),
        (requests("uncounted", 1), Some(uncounted(disk("0", "1Mi"))), None),
        (requests("lower and above", 0), Some(disk("0", "2Gi")), None),
        (requests("lower and below", 0), Some(disk("0", "1Mi")), None),
    ]);
    let candidates: Vec<_> = node.0.iter().map(|one| candidate(one, false)).collect();
    let order = |signal, layout| -> Vec<(String, bool)> {
        let shortage = Shortage { signal, cause: Cause::Signal(signal), ..act(true, "1Gi") };
        let (policy, _) = policy().for_layout(layout);
        let choice = choose(&shortage, &candidates, &policy, Instant::now());
        choice.considered.iter().map(|one| (one.pod.name().to_string(), one.is_partial)).collect()
    };
    let first = [
        ("lower and above", false),
        ("uncounted", true),
        ("larger", false),
        ("lower and below", false),
    ]
    .map(|(name, is_partial)| (name.to_owned(), is_partial));
    assert_eq!(order(Signal::NodeFsAvailable, FsLayout::One), first);
    let layers = order(Signal::ImageFsAvailable, FsLayout::ImageFs);
    assert!(layers.iter().all(|(_, is_partial)| !is_partial), "logs are elsewhere: {layers:?}");
}

#[tokio::test(start_paused = true)]
async fn the_first_that_can_be_ended_is_and_it_is_said_why_others_are_not() {
    let node = Node(vec![
        (pod("later", 0, &[]), Some(memory("1Mi")), None),
        (pod("unmeasured", -9, &[]), None, None),
        (static_pod("static", "static"), Some(memory("9Gi")), None),
        (pod("critical", 2_000_000_000, &[]), Some(memory("9Gi")), None),
        (pod("hog", 0, &[]), Some(memory("1Gi")), None),
    ]);
    let (victim, waits, verdicts) = node.chosen(&act(true, "1Gi"), &policy());
    assert_eq!((victim.as_deref(), waits), (Some("hog"), false));
    let expected = [
        CandidateVerdict::NotMeasured,
        CandidateVerdict::Critical,
        CandidateVerdict::Chosen,
        CandidateVerdict::NotNeeded,
        CandidateVerdict::Critical,
    ];
    assert_eq!(verdicts, expected);
}

/// As with a kubelet that has no statistics: pods without them come first, and among those the least important.
#[tokio::test(start_paused = true)]
async fn where_no_pod_is_ever_measured_the_least_important_is_ended() {
    let node = Node(vec![
        (pod("web", 10, &[]), None, None),
        (pod("critical", 2_000_000_000, &[]), None, None),
        (pod("batch", -5, &[]), None, None),
    ]);
    for signal in [Signal::MemoryAvailable, Signal::PidAvailable, Signal::NodeFsAvailable] {
        let shortage = Shortage { signal, cause: Cause::Signal(signal), ..act(true, "1Gi") };
        let candidates: Vec<_> = node.0.iter().map(|one| candidate(one, true)).collect();
        let choice = choose(&shortage, &candidates, &policy(), Instant::now());
        assert_eq!(choice.victim.map(|pod| &**pod.name()), Some("batch"), "{signal}");
        let verdicts: Vec<_> = choice.considered.iter().map(|one| one.verdict.as_str()).collect();
        assert_eq!(verdicts, ["chosen", "notNeeded", "critical"], "{signal}");
        assert_eq!(node.chosen(&shortage, &policy()).0, None, "{signal}: for a moment unknown");
    }
}

#[tokio::test(start_paused = true)]
async fn static_pods_with_a_priority_count_where_all_pods_are_static() {
    let with = |priority| {
        changed("web", priority, &[], |object| {
            let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
            object.metadata.annotations = Some([source].into());
        })
    };
    let mut as_the_kubelet = policy();
    as_the_kubelet.static_pods = StaticPods::Spared;
    let none = static_pod("u", "no-priority");
    for (pod, because, of_kubelet) in [
        (with(0), None, Some(Exemption::Static)),
        (with(2_000_000_000), Some(Exemption::Priority), Some(Exemption::Priority)),
        (none, Some(Exemption::NoPriority), Some(Exemption::Static)),
        (pod("api", 0, &[]), None, None),
    ] {
        assert_eq!(policy().exemption(&pod), because, "{}", pod.name());
        assert_eq!(as_the_kubelet.exemption(&pod), of_kubelet, "{}", pod.name());
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_pod_can_be_evicted_it_is_said_why() {
    let now = Instant::now();
    let figures = memory("1Gi");
    let spared = [static_pod("a", "a"), static_pod("b", "b"), pod("critical", 2_000_000_000, &[])];
    let (new, going) = (pod("new", 0, &[]), pod("going", 0, &[]));
    let ending = ending(1, true, None);
    let of = |pod, stats, ending| Candidate { ending, ..Candidate::new(pod, stats) };
    let mut candidates: Vec<_> = spared.iter().map(|pod| of(pod, Some(&figures), None)).collect();
    let said = |candidates: &[Candidate<'_>]| {
        let choice = choose(&act(true, "1Gi"), candidates, &policy(), now);
        assert!(choice.victim.is_none());
        why_none(&choice.considered, &policy())
    };
    let why =
        ": 1 of a priority of 2000000000 or more; 2 static without a priority in the manifest";
    assert_eq!(said(&candidates), why);
    candidates = vec![of(&spared[0], Some(&figures), None), of(&new, None, None)];
    candidates.push(of(&going, Some(&figures), ending));
    let why = ": 1 not measured yet; 1 static without a priority in the manifest; 1 terminating";
    assert_eq!(said(&candidates), why);
    assert_eq!(said(&[]), "");
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time_while_a_pod_that_was_ended_for_it_is_on_its_way() {
    let leaving = ending(2, true, Some(PressureCondition::Memory));
    let node = Node(vec![
        (pod("leaving", 0, &[]), Some(memory("1Mi")), leaving),
        (pod("next", 0, &[]), Some(memory("1Gi")), None),
    ]);
    let (victim, waits, _) = node.chosen(&act(true, "9Gi"), &policy());
    assert_eq!((victim, waits), (None, true), "however little it gives back");
}

#[tokio::test(start_paused = true)]
async fn what_other_pods_that_are_ending_give_back_counts_if_it_is_enough() {
    let node = |uses: &str| {
        Node(vec![
            (pod("deleted", 0, &[]), Some(memory(uses)), ending(3, false, None)),
            (pod("next", 0, &[]), Some(memory("1Gi")), None),
        ])
    };
    assert_eq!(node("2Gi").chosen(&act(true, "2Gi"), &policy()).0, None);
    assert_eq!(node("1Gi").chosen(&act(true, "2Gi"), &policy()).0.as_deref(), Some("next"));
}

#[tokio::test(start_paused = true)]
async fn a_long_end_is_waited_for_when_there_is_time_and_cut_when_there_is_none() {
    let node = Node(vec![
        (pod("slow", 0, &[]), Some(memory("9Gi")), ending(60, false, None)),
        (pod("next", 0, &[]), Some(memory("1Gi")), None),
    ]);
    assert_eq!(node.chosen(&act(false, "2Gi"), &policy()).0, None);
    assert_eq!(node.chosen(&act(true, "2Gi"), &policy()).0.as_deref(), Some("slow"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_should_have_ended_is_not_waited_for_nor_chosen_again() {
    let overdue = ending(0, true, Some(PressureCondition::Memory));
    let node = Node(vec![
        (pod("stuck", 0, &[]), Some(memory("9Gi")), overdue),
        (pod("next", 0, &[]), Some(memory("1Gi")), None),
    ]);
    let (victim, _, verdicts) = node.chosen(&act(true, "2Gi"), &policy());
    assert_eq!(victim.as_deref(), Some("next"));
    assert_eq!(verdicts, [CandidateVerdict::Stuck, CandidateVerdict::Chosen]);
}

#[tokio::test(start_paused = true)]
async fn with_no_time_what_is_due_within_seconds_is_waited_for_and_on_disks_within_forty() {
    let verdict = |signal, milliseconds| {
        let ending = CandidateEnding {
            due: Instant::now() + Duration::from_millis(milliseconds),
            has_minimal_grace: false,
            evicted_for: Conditions::NONE,
        };
        let shortage = Shortage { signal, cause: Cause::Signal(signal), ..act(true, "1Gi") };
        comes_in_time(&shortage, &ending, Instant::now())
    };
    for (signal, soon) in [
        (Signal::MemoryAvailable, 10_000),
        (Signal::PidAvailable, 10_000),
        (Signal::NodeFsAvailable, 40_000),
        (Signal::NodeFsInodesFree, 40_000),
    ] {
        assert!(!verdict(signal, 0), "{signal:?}: it should be gone");
        assert!(verdict(signal, 1) && verdict(signal, soon), "{signal:?}");
        assert!(!verdict(signal, soon + 1), "{signal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_did_not_end_within_its_own_grace_is_hurried_when_there_is_no_time() {
    let node = Node(vec![
        (pod("overdue", 0, &[]), Some(memory("9Gi")), ending(0, false, None)),
        (pod("next", 0, &[]), Some(memory("1Gi")), None),
    ]);
    let (victim, _, verdicts) = node.chosen(&act(true, "2Gi"), &policy());
    assert_eq!(victim.as_deref(), Some("overdue"));
    assert_eq!(verdicts, [CandidateVerdict::Chosen, CandidateVerdict::NotNeeded]);
    let (victim, _, verdicts) = node.chosen(&act(false, "2Gi"), &policy());
    assert_eq!(victim.as_deref(), Some("next"));
    assert_eq!(verdicts, [CandidateVerdict::Stuck, CandidateVerdict::Chosen]);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_is_overdue_at_the_moment_at_which_it_is_due() {
    let evicted = ending(1, true, Some(PressureCondition::Memory)).unwrap();
    assert!(evicted.is_victim(evicted.due - Duration::from_nanos(1)));
    assert!(!evicted.is_victim(evicted.due));
    let asked_by_others = ending(1, true, None).unwrap();
    assert!(!asked_by_others.is_victim(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_has_in_swap_is_shown_only_where_memory_is_short() {
    let mut stats = memory("1Gi");
    stats.swap = Some(7);
    let node = [(pod("web", 0, &[]), Some(stats), None)];
    let candidates = [candidate(&node[0], false)];
    let shown = |signal| {
        let shortage = Shortage { signal, ..act(true, "1Gi") };
        choose(&shortage, &candidates, &policy(), Instant::now()).considered[0].swap
    };
    assert_eq!(shown(Signal::MemoryAvailable), Some(7));
    assert_eq!(shown(Signal::PidAvailable), None);
}

#[test]
fn grace_is_a_second_for_hard_thresholds_and_at_most_the_pods_own_for_soft_ones() {
    let secs = |seconds| Some(Duration::from_secs(seconds));
    let with_grace = |grace| {
        changed("p", 0, &[], |object| {
            object.spec.as_mut().unwrap().termination_grace_period_seconds = grace;
        })
    };
    let max = |seconds| {
        let mut policy = policy();
        policy.max_pod_grace = secs(seconds);
        policy
    };
    let cases = [
        (policy(), true, Some(30), secs(1)),
        (max(5), true, Some(30), secs(1)),
        (max(5), false, Some(30), secs(5)),
        (max(5), false, Some(2), secs(2)),
        (max(5), false, None, secs(5)),
        (policy(), false, Some(30), None),
    ];
    for (policy, hard, own, expected) in cases {
        assert_eq!(policy.grace(hard, &with_grace(own)), expected, "{hard} {own:?}");
    }
}

proptest! {
    #[test]
    fn the_victim_was_measured_and_is_neither_spared_nor_about_to_end(
        pods in prop::collection::vec(
            (0..4_i32, prop::option::of(0..100_u64), 0..4_u8, any::<bool>()), 0..20,
        ),
        hard in any::<bool>(),
        deficit in 1..100_i64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let node = Node(pods.iter().enumerate().map(|(place, &(priority, usage, state, critical))| {
            let priority = if critical { 2_000_000_000 } else { priority };
            let stats = usage.map(|usage| memory(&usage.to_string()));
            let ending = match state {
                0 => ending(1, true, None),
                1 => ending(100, false, None),
                _ => None,
            };
            (pod(&format!("p{place}"), priority, &[]), stats, ending)
        }).collect());
        let shortage = Shortage { deficit, ..act(hard, "1") };
        let (victim, waits, verdicts) = node.chosen(&shortage, &policy());
        prop_assert_eq!(verdicts.len(), pods.len());
        let chosen = verdicts.iter().filter(|verdict| **verdict == CandidateVerdict::Chosen).count();
        prop_assert_eq!(chosen, usize::from(victim.is_some()));
        let coming: u64 = pods.iter()
            .filter(|(_, _, state, _)| *state == 0 || (*state == 1 && !hard))
            .filter_map(|(_, usage, ..)| *usage)
            .sum();
        prop_assert_eq!(waits, coming >= u64::try_from(deficit).unwrap());
        let can = |(_, usage, state, critical): &&(i32, Option<u64>, u8, bool)| {
            usage.is_some() && !critical && (*state > 1 || (*state == 1 && hard))
        };
        prop_assert_eq!(victim.is_some(), !waits && pods.iter().any(|pod| can(&pod)));
        if let Some(victim) = victim {
            let place: usize = victim[1..].parse().unwrap();
            prop_assert!(can(&&pods[place]));
        }
    }
}
