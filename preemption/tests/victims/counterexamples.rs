//! Cases in which the kubelet's heuristic stops more pods than it has to, and what `minimal` chooses instead.

use winddown_preemption::{Requirement, Selection, Strategy, select};
use winddown_shared::{Pod, ResourceName};

use crate::cases::{PodSpec, api_pod};

fn chosen(
    pods: &[PodSpec],
    names: &[&str],
    requirements: &[(&str, i64)],
) -> (Vec<String>, Vec<String>) {
    let preemptor = api_pod("critical", Some(2_000_001_000));
    let pods: Vec<Pod> = pods.iter().zip(names).map(|(spec, name)| spec.pod(name)).collect();
    let requirements: Vec<Requirement> =
        requirements.iter().map(|(name, need)| (ResourceName::from(*name), *need)).collect();
    let by = |strategy| {
        let selection = select(&preemptor, &pods, &requirements, strategy).unwrap();
        let mut names: Vec<String> =
            places(&selection).map(|place| pods[place].name().to_string()).collect();
        names.sort_unstable();
        names
    };
    (by(Strategy::Distance), by(Strategy::Minimal))
}

fn asks(cpu: i64, memory: i64) -> PodSpec {
    PodSpec { cpu, memory, ..PodSpec::default() }
}

#[test]
fn of_two_sets_of_one_size_the_one_that_frees_less_too_much_is_taken() {
    let pods = [asks(0, 60), asks(0, 50), asks(0, 50)];
    let (distance, minimal) = chosen(&pods, &["a", "b", "c"], &[("memory", 100)]);
    assert_eq!(distance, ["a", "b"]);
    assert_eq!(minimal, ["b", "c"]);
}

#[test]
fn two_pods_that_fit_together_are_taken_instead_of_three() {
    let pods = [asks(60, 60), asks(100, 0), asks(0, 100)];
    let (distance, minimal) = chosen(&pods, &["x", "y", "z"], &[("cpu", 100), ("memory", 100)]);
    assert_eq!(distance, ["x", "y", "z"]);
    assert_eq!(minimal, ["y", "z"]);
}

#[test]
fn the_resource_that_is_lacking_decides_between_pods_of_which_each_is_enough() {
    let pods = [asks(4000, 1), asks(100, 2)];
    let (distance, minimal) = chosen(&pods, &["big", "small"], &[("cpu", 100)]);
    assert_eq!(distance, ["big"]);
    assert_eq!(minimal, ["small"]);
}

#[test]
fn one_guaranteed_pod_is_taken_instead_of_three_of_two_classes() {
    let guaranteed = |memory| PodSpec { is_limited: true, ..asks(1, memory) };
    let pods = [asks(0, 100), asks(0, 100), guaranteed(100), guaranteed(300)];
    let (distance, minimal) = chosen(&pods, &["b1", "b2", "g1", "g3"], &[("memory", 300)]);
    assert_eq!(distance, ["b1", "b2", "g1"]);
    assert_eq!(minimal, ["g3"]);
}

#[test]
fn a_low_priority_is_taken_before_a_critical_pod_of_a_lower_class() {
    let critical = PodSpec { priority: Some(2_000_000_000), ..asks(0, 0) };
    let (distance, minimal) = chosen(&[critical, asks(1, 1)], &["dns", "web"], &[("pods", 1)]);
    assert_eq!(distance, ["dns"]);
    assert_eq!(minimal, ["web"]);
}

fn places(selection: &Selection) -> impl Iterator<Item = usize> {
    selection.victims.iter().copied()
}
