//! `minimal` against a search that tries everything, and against the kubelet's choice.

use std::cmp::Reverse;

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;
use winddown_preemption::{Criterion, Proof, Requirement, Selection, Strategy, select};
use winddown_shared::{Pod, QosClass, ResourceName};

use crate::cases::{self, Case, PodSpec, api_pod, nodes, rows};

// === what is best, written down a second time ===

/// The cost of a set, compared field by field.
type Cost =
    (i32, usize, i128, usize, usize, usize, usize, Vec<Reverse<Option<Timestamp>>>, Vec<String>);

fn cost(set: &[&Pod], requirements: &[Requirement]) -> Cost {
    let count = |of: fn(&Pod) -> bool| set.iter().filter(|pod| of(pod)).count();
    // Over-shoots as fractions of one denominator; the small numbers of these tests allow it.
    let whole: i128 = requirements.iter().map(|(_, need)| i128::from(*need)).product();
    let over = requirements.iter().map(|(name, need)| {
        let freed: i64 = set.iter().map(|pod| pod.accounted_requests().get(name)).sum();
        i128::from(freed - need) * (whole / i128::from(*need))
    });
    let mut born: Vec<_> = set
        .iter()
        .map(|pod| Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)))
        .collect();
    born.sort_unstable_by(|a, b| b.cmp(a));
    let mut uids: Vec<String> = set.iter().map(|pod| pod.uid().to_string()).collect();
    uids.sort_unstable();
    (
        set.iter().map(|pod| pod.priority_or_zero()).max().unwrap_or(i32::MIN),
        set.len(),
        over.sum(),
        count(|pod| pod.metadata.deletion_timestamp.is_none()),
        count(is_bound),
        count(|pod| pod.qos() == QosClass::Guaranteed),
        count(|pod| pod.qos() == QosClass::Burstable),
        born,
        uids,
    )
}

fn is_bound(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    pod.is_static() || pod.is_mirror() || owners.into_iter().any(|o| o.kind == "DaemonSet")
}

fn is_enough(set: &[&Pod], requirements: &[Requirement]) -> bool {
    requirements.iter().all(|(name, need)| {
        let freed = set.iter().map(|pod| i128::from(pod.accounted_requests().get(name)));
        freed.sum::<i128>() >= i128::from(*need)
    })
}

fn best_of_all(preemptor: &Pod, pods: &[Pod], requirements: &[Requirement]) -> Option<Cost> {
    let among: Vec<&Pod> = pods.iter().filter(|pod| preemptor.may_preempt(pod)).collect();
    let sets = (0_u32..1 << among.len()).map(|mask| {
        let inside = among.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
        inside.map(|(_, pod)| *pod).collect::<Vec<&Pod>>()
    });
    let enough = sets.filter(|set| is_enough(set, requirements));
    enough.map(|set| cost(&set, requirements)).min()
}

fn victims<'a>(pods: &'a [Pod], selection: &Selection) -> Vec<&'a Pod> {
    selection.victims.iter().map(|place| &pods[*place]).collect()
}

// === small cases, all of them ===

fn pods() -> impl Generator<Value = Vec<Pod>> {
    let priority = prop_oneof![
        3 => Just(Some(0)),
        1 => Just(None),
        1 => Just(Some(100)),
        1 => Just(Some(-5)),
        1 => Just(Some(2_000_000_000)),
    ];
    let spec = (0_i64..5, 0_i64..5, 0_i64..3, priority, 0..4_u8, 0..4_u8, 0_i64..3, any::<bool>())
        .prop_map(|(cpu, memory, gpus, priority, kind, ending, born, limited)| PodSpec {
            cpu: cpu * 100,
            memory: memory * 50,
            gpus,
            priority,
            is_static: kind == 1,
            is_daemon: kind == 2,
            is_ending: ending == 0,
            born: (born > 0).then_some(born),
            is_limited: limited,
        });
    proptest::collection::vec(spec, 1..=8).prop_map(|specs| {
        specs.iter().enumerate().map(|(i, spec)| spec.pod(&format!("p{i}"))).collect()
    })
}

fn requirements() -> impl Generator<Value = Vec<Requirement>> {
    let amount = |most: i64| prop_oneof![2 => 1..=most, 1 => Just(0)];
    (amount(900), amount(450), amount(4), amount(5)).prop_map(|(cpu, memory, gpus, pods)| {
        let all = [
            (ResourceName::Cpu, cpu),
            (ResourceName::Memory, memory),
            (ResourceName::from("example.com/gpu"), gpus),
            (ResourceName::Pods, pods),
        ];
        all.into_iter().filter(|(_, amount)| *amount > 0).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn of_up_to_eight_pods_the_best_set_of_all_is_found(
        pods in pods(),
        requirements in requirements(),
    ) {
        let preemptor = api_pod("critical", Some(2_000_001_000));
        let best = best_of_all(&preemptor, &pods, &requirements);
        match select(&preemptor, &pods, &requirements, Strategy::Minimal) {
            Ok(selection) => {
                prop_assert_eq!(Some(cost(&victims(&pods, &selection), &requirements)), best);
                prop_assert_eq!(selection.proof, Proof::UpTo(Criterion::Identity));
            }
            Err(_) => prop_assert_eq!(best, None),
        }
    }

    #[test]
    fn the_order_in_which_pods_are_listed_does_not_matter(
        pods in pods(),
        requirements in requirements(),
        seed in any::<u64>(),
    ) {
        let preemptor = api_pod("critical", Some(2_000_001_000));
        let mut shuffled = pods.clone();
        shuffled.sort_by_key(|pod| cases::mixed(seed, pod.name()));
        let names = |pods: &[Pod]| {
            let chosen = select(&preemptor, pods, &requirements, Strategy::Minimal);
            chosen.map(|chosen| victims(pods, &chosen).iter().map(|p| p.name().clone()).collect::<Vec<_>>())
        };
        prop_assert_eq!(names(&pods), names(&shuffled));
    }
}

// === the corpus ===

fn compared_with_the_kubelet(case: &Case) {
    let Ok(theirs) = case.select(Strategy::Distance) else {
        let ours = case.select(Strategy::Minimal).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(ours, Err(case.error.clone().unwrap()), "{}", case.id);
        return;
    };
    let ours = case.select(Strategy::Minimal).unwrap();
    let (ours, theirs) = (victims(&case.pods, &ours), victims(&case.pods, &theirs));
    let coarse = |set: &[&Pod]| (set.iter().map(|p| p.priority_or_zero()).max(), set.len());
    assert!(coarse(&ours) <= coarse(&theirs), "{}: {ours:?} {theirs:?}", case.id);
    assert!(ours.iter().all(|pod| case.preemptor.may_preempt(pod)), "{}", case.id);
    assert!(is_enough(&ours, &case.requirements), "{}: {ours:?}", case.id);
    for needless in 0..ours.len() {
        let mut without = ours.clone();
        without.remove(needless);
        assert!(!is_enough(&without, &case.requirements), "{}: {ours:?}", case.id);
    }
}

#[test]
fn in_every_case_of_the_corpus_it_is_never_worse_than_the_kubelet_and_ends_no_pod_in_vain() {
    rows().iter().chain(nodes()).for_each(compared_with_the_kubelet);
}

#[test]
fn in_every_case_of_the_corpus_the_number_of_victims_is_shown_to_be_the_least() {
    let proofs =
        rows().iter().filter_map(|case| Some((case.select(Strategy::Minimal).ok()?, case)));
    let (mut all, mut exact) = (0, 0);
    for (selection, case) in proofs {
        all += 1;
        exact += usize::from(selection.proof.is_exact());
        assert!(
            selection.proof >= Proof::UpTo(Criterion::Number),
            "{}: {:?}",
            case.id,
            selection.proof
        );
    }
    println!("best by every criterion: {exact} of {all}");
}

#[test]
fn the_corpus_has_the_same_victims_when_it_is_listed_backwards() {
    for case in rows() {
        let mut backwards = case.pods.clone();
        backwards.reverse();
        let names = |pods: &[Pod]| {
            let chosen = select(&case.preemptor, pods, &case.requirements, Strategy::Minimal);
            chosen.map(|chosen| {
                victims(pods, &chosen).iter().map(|p| p.name().clone()).collect::<Vec<_>>()
            })
        };
        assert_eq!(names(&case.pods), names(&backwards), "{}", case.id);
    }
}
