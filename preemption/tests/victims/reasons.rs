//! Reasons for keeping a pod that could have taken a victim's place.

use k8s_openapi::api::core::v1::PodStatus;
use winddown_preemption::{Criterion, Requirement, Strategy, VictimVerdict, explain};
use winddown_shared::{Pod, ResourceName};

use crate::cases::{PodSpec, api_pod};

/// Returns why `other` is kept when `victim` is chosen.
fn why_kept(victim: &PodSpec, other: &PodSpec, requirements: &[(&str, i64)]) -> VictimVerdict {
    let pods: Vec<Pod> = vec![victim.pod("a"), other.pod("b")];
    let requirements: Vec<Requirement> =
        requirements.iter().map(|(name, need)| (ResourceName::from(*name), *need)).collect();
    let preemptor = api_pod("critical", Some(2_000_001_000));
    let explained = explain(&preemptor, &pods, &requirements, Strategy::Minimal);
    assert_eq!(explained.considered[0].verdict, VictimVerdict::Taken(1), "{victim:?} {other:?}");
    explained.considered[1].verdict
}

fn asks(cpu: i64, memory: i64) -> PodSpec {
    PodSpec { cpu, memory, born: Some(5), ..PodSpec::default() }
}

#[test]
fn the_first_criterion_by_which_it_would_be_worse_is_named() {
    let same = || asks(1, 100);
    for (victim, other, criterion) in [
        (same(), asks(1, 101), Criterion::Overshoot),
        (PodSpec { is_ending: true, ..same() }, same(), Criterion::Ending),
        (same(), PodSpec { is_daemon: true, ..same() }, Criterion::Bound),
        (same(), PodSpec { is_limited: true, ..same() }, Criterion::Class),
        (same(), PodSpec { born: Some(4), ..same() }, Criterion::Age),
        (same(), same(), Criterion::Identity),
    ] {
        assert_eq!(why_kept(&victim, &other, &[("memory", 100)]), VictimVerdict::Worse(criterion));
    }
}

/// Requirements of which `distance` takes the first pods; the text says why the last one is kept.
type OfClasses<'a> = (&'a [PodSpec], &'a [(&'a str, i64)], &'a str);

#[test]
fn a_pod_of_a_class_without_victims_is_told_on_which_side_of_it_they_are() {
    let (best_effort, burstable) = (PodSpec::default, || asks(100, 0));
    let guaranteed = || PodSpec { gpus: 1, is_limited: true, ..asks(1, 1) };
    let (lower, higher) = (
        "kept: pods of lower QoS classes are enough",
        "kept: victims of higher QoS classes are needed anyway; with them, its own class is not",
    );
    let cases: [OfClasses<'_>; 4] = [
        (&[best_effort(), burstable()], &[("pods", 1)], lower),
        (&[burstable(), guaranteed()], &[("cpu", 1)], lower),
        (&[burstable(), best_effort()], &[("pods", 1), ("cpu", 100)], higher),
        // One victim is of a lower class, the other of a higher one.
        (
            &[best_effort(), guaranteed(), burstable()],
            &[("pods", 2), ("example.com/gpu", 1)],
            higher,
        ),
    ];
    let preemptor = api_pod("critical", Some(2_000_001_000));
    for (pods, requirements, text) in cases {
        let pods: Vec<Pod> = pods.iter().enumerate().map(|(i, p)| p.pod(&i.to_string())).collect();
        let requirements: Vec<Requirement> =
            requirements.iter().map(|(name, need)| (ResourceName::from(*name), *need)).collect();
        let explained = explain(&preemptor, &pods, &requirements, Strategy::Distance);
        let (kept, taken) = explained.considered.split_last().unwrap();
        assert!(taken.iter().all(|pod| matches!(pod.verdict, VictimVerdict::Taken(_))));
        assert_eq!(kept.verdict.to_string(), text, "{requirements:?}");
    }
}

#[test]
fn a_pod_that_says_only_when_it_started_is_as_old_as_that() {
    let started = |name: &str, born| {
        let mut object = PodSpec { born: Some(born), ..asks(1, 100) }.pod(name).object().clone();
        let start_time = object.metadata.creation_timestamp.take();
        object.status = Some(PodStatus { start_time, ..PodStatus::default() });
        Pod::new(object).unwrap()
    };
    let preemptor = api_pod("critical", Some(2_000_001_000));
    let pods = [started("a", 5), started("b", 4)];
    let explained = explain(&preemptor, &pods, &[(ResourceName::Memory, 100)], Strategy::Minimal);
    let reasons: Vec<VictimVerdict> = explained.considered.iter().map(|pod| pod.verdict).collect();
    assert_eq!(reasons, [VictimVerdict::Taken(1), VictimVerdict::Worse(Criterion::Age)]);
}

#[test]
fn over_shoots_of_different_resources_are_parts_of_what_is_required() {
    let needs = [("cpu", 100), ("memory", 1000)];
    let half_too_much_cpu = asks(150, 1000);
    let same = why_kept(&half_too_much_cpu, &asks(100, 1500), &needs);
    assert_eq!(same, VictimVerdict::Worse(Criterion::Identity));
    let more = why_kept(&half_too_much_cpu, &asks(100, 1501), &needs);
    assert_eq!(more, VictimVerdict::Worse(Criterion::Overshoot));
}

#[test]
fn a_requirement_of_nothing_is_none() {
    let preemptor = api_pod("critical", Some(2_000_001_000));
    let pods = [asks(1, 1).pod("a")];
    for strategy in [Strategy::Distance, Strategy::Minimal] {
        let explained = explain(&preemptor, &pods, &[(ResourceName::Memory, 0)], strategy);
        assert_eq!(explained.considered[0].verdict, VictimVerdict::NothingLacking, "{strategy}");
    }
}
