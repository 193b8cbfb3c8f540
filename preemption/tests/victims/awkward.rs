//! Nodes on which no search can find the best set: what `minimal` claims there, and how much work it takes.

use winddown_preemption::{Criterion, Proof, Requirement, Strategy, select};
use winddown_shared::{Pod, ResourceName};

use crate::cases::{PodSpec, api_pod};

const RESOURCES: [&str; 3] = ["memory", "cpu", "example.com/gpu"];

/// Pseudo-random numbers, the same in every run.
struct Mixed(u64);

impl Mixed {
    fn up_to(&mut self, most: u64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((self.0 >> 33) % most).unwrap()
    }
}

/// Pods whose requests all differ, to the byte.
fn odd(_: usize, mixed: &mut Mixed) -> PodSpec {
    let (cpu, memory) = (mixed.up_to(1500) + 1, mixed.up_to(2_000_000_000) + 1);
    PodSpec { cpu, memory, gpus: mixed.up_to(900_000) + 1, ..PodSpec::default() }
}

/// Pods that each request much of one resource and little of the others.
fn opposed(number: usize, mixed: &mut Mixed) -> PodSpec {
    let much = mixed.up_to(1_000_000) + 1_000_000;
    let little = mixed.up_to(9999) + 1;
    let (cpu, memory, gpus) = match number % 2 {
        0 => (mixed.up_to(20) + 1, much * 1000, little),
        _ => (mixed.up_to(1500) + 500, little, much),
    };
    PodSpec { cpu, memory, gpus, ..PodSpec::default() }
}

/// Pods of round sizes that differ in the later criteria.
fn round(number: usize, mixed: &mut Mixed) -> PodSpec {
    let (cpu, memory) = (50 * mixed.up_to(6), 64 * mixed.up_to(6));
    let (is_daemon, is_ending) = (number.is_multiple_of(3), number.is_multiple_of(5));
    PodSpec {
        cpu,
        memory,
        is_daemon,
        is_ending,
        is_limited: number.is_multiple_of(7),
        ..PodSpec::default()
    }
}

/// The same with more sizes.
fn rounder(_: usize, mixed: &mut Mixed) -> PodSpec {
    let (cpu, memory) = (50 * mixed.up_to(30), 64 * mixed.up_to(32));
    PodSpec { cpu, memory, gpus: mixed.up_to(16), ..PodSpec::default() }
}

/// Chooses when this percentage of the node has to become free. Returns the number of victims, the proof and
/// the work.
fn chosen(
    pods: usize,
    (resources, share): (usize, i64),
    shape: fn(usize, &mut Mixed) -> PodSpec,
) -> (usize, Proof, u64) {
    let mut mixed = Mixed(17);
    let pods: Vec<Pod> =
        (0..pods).map(|number| shape(number, &mut mixed).pod(&format!("p{number}"))).collect();
    let needs: Vec<Requirement> = RESOURCES[..resources]
        .iter()
        .map(|name| {
            let name = ResourceName::from(*name);
            let all: i64 = pods.iter().map(|pod| pod.accounted_requests().get(&name)).sum();
            (name, all * share / 100 + 7)
        })
        .collect();
    let preemptor = api_pod("critical", Some(2_000_001_000));
    let selection = select(&preemptor, &pods, &needs, Strategy::Minimal).unwrap();
    (selection.victims.len(), selection.proof, selection.work)
}

#[test]
fn where_it_cannot_be_shown_it_is_not_claimed_and_the_work_has_a_bound() {
    let up_to = Proof::UpTo;
    assert_eq!(chosen(110, (2, 25), odd), (17, up_to(Criterion::Identity), 12_242));
    assert_eq!(chosen(40, (2, 25), round), (6, up_to(Criterion::Identity), 2_249));
    assert_eq!(chosen(250, (3, 25), rounder), (44, up_to(Criterion::Overshoot), 149_948));
    assert_eq!(chosen(500, (3, 25), odd), (83, up_to(Criterion::Number), 317_342));
    assert_eq!(chosen(500, (2, 25), opposed), (92, up_to(Criterion::Number), 455_331));
    assert_eq!(chosen(500, (3, 25), opposed), (102, up_to(Criterion::Priority), 1_143_202));
}

/// The search is as deep as the set is large.
#[test]
fn a_set_that_is_too_large_to_be_searched_is_not_searched() {
    let up_to = Proof::UpTo;
    assert_eq!(chosen(2000, (1, 85), odd), (1_143, up_to(Criterion::Number), 2_350_327));
    assert_eq!(chosen(1600, (3, 85), opposed), (1_281, up_to(Criterion::Priority), 7_078_583));
}
