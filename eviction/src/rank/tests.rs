use winddown_shared::{FsLayout, PodStats};

use super::*;
use crate::tests::{changed, disk, inodes, memory, pod, tasks};
use crate::usage::usage;

fn order(signal: Signal, pods: &[(Pod, Option<PodStats>)]) -> Vec<&str> {
    let mut ranked: Vec<Ranked<'_>> = pods
        .iter()
        .map(|(pod, stats)| {
            Ranked::new(pod, stats.as_ref().map(|stats| usage(signal, pod, stats, FsLayout::One)))
        })
        .collect();
    rank(signal, &mut ranked);
    ranked.iter().map(|ranked| &**ranked.pod.name()).collect()
}

#[test]
fn ordered_by_exceeds_request_memory() {
    let pods = [
        (pod("below", -1, &[("memory", "200Mi")]), Some(memory("150Mi"))),
        (pod("exceeds", 1, &[("memory", "100Mi")]), Some(memory("150Mi"))),
    ];
    assert_eq!(order(Signal::MemoryAvailable, &pods), ["exceeds", "below"]);
}

#[test]
fn ordered_by_exceeds_request_disk() {
    let pods = [
        (pod("below", -1, &[("ephemeral-storage", "200Mi")]), Some(disk("100Mi", "50Mi"))),
        (pod("exceeds", 1, &[("ephemeral-storage", "100Mi")]), Some(disk("100Mi", "50Mi"))),
    ];
    assert_eq!(order(Signal::NodeFsAvailable, &pods), ["exceeds", "below"]);
}

#[test]
fn a_pod_that_uses_all_it_asked_for_does_not_exceed_it_and_a_byte_more_does() {
    let of = |name, priority, used: &str| {
        (pod(name, priority, &[("memory", "1000")]), Some(memory(used)))
    };
    let pods = [of("all", 0, "1000"), of("a byte more", 1, "1001")];
    assert_eq!(order(Signal::MemoryAvailable, &pods), ["a byte more", "all"]);
    let idle = [(pod("idle", 0, &[]), Some(memory("0"))), of("a byte more", 1, "1001")];
    assert_eq!(order(Signal::MemoryAvailable, &idle), ["a byte more", "idle"]);
}

#[test]
fn ordered_by_priority() {
    let pods = [12534, -134, 1].map(|p| (pod(&p.to_string(), p, &[]), Some(tasks(1))));
    assert_eq!(order(Signal::PidAvailable, &pods), ["-134", "1", "12534"]);
}

#[test]
fn ordered_by_disk_goes_by_use_beyond_the_request() {
    let of = |name: &str, request: &str, used: &str| {
        (pod(name, 0, &[("ephemeral-storage", request)]), Some(disk(used, "0")))
    };
    let pods = [
        of("+10", "100Mi", "110Mi"),
        of("-280", "400Mi", "120Mi"),
        of("+300", "0", "300Mi"),
        of("-25", "200Mi", "175Mi"),
        of("+100", "100Mi", "200Mi"),
        of("+250", "50Mi", "300Mi"),
    ];
    let sorted = ["+300", "+250", "+100", "+10", "-25", "-280"];
    assert_eq!(order(Signal::ImageFsAvailable, &pods), sorted);
}

#[test]
fn ordered_by_inodes_whatever_storage_was_asked_for() {
    // The kubelet subtracts the requested bytes from the used inodes.
    let pods = [
        (pod("200k", 0, &[]), Some(inodes(200_000))),
        (pod("400k", 0, &[("ephemeral-storage", "1Gi")]), Some(inodes(400_000))),
        (pod("300k", 0, &[]), Some(inodes(300_000))),
    ];
    assert_eq!(order(Signal::NodeFsInodesFree, &pods), ["400k", "300k", "200k"]);
}

#[test]
fn ordered_by_memory_goes_by_use_beyond_the_request() {
    let of = |name: &str, request: &str, used: &str| {
        (pod(name, 0, &[("memory", request)]), Some(memory(used)))
    };
    let pods = [
        of("-800", "1000Mi", "200Mi"),
        of("300", "100Mi", "400Mi"),
        of("700", "0", "700Mi"),
        of("-200", "500Mi", "300Mi"),
        of("500", "0", "500Mi"),
        of("200", "200Mi", "400Mi"),
    ];
    let sorted = ["700", "500", "300", "200", "-200", "-800"];
    assert_eq!(order(Signal::MemoryAvailable, &pods), sorted);
}

#[test]
fn ordered_by_priority_memory_exceeding_then_low_then_the_larger_excess() {
    let of = |name: &str, priority: i32, request: &str, used: &str| {
        (pod(name, priority, &[("memory", request)]), Some(memory(used)))
    };
    let pods = [
        of("high-exceeds-less", 1, "100Mi", "200Mi"),
        of("low-below-far", -1, "800Mi", "100Mi"),
        of("high-below", 1, "300Mi", "200Mi"),
        of("low-exceeds-less", -1, "100Mi", "200Mi"),
        of("low-exceeds-more", -1, "100Mi", "600Mi"),
        of("high-exceeds-more", 1, "100Mi", "600Mi"),
        of("low-below", -1, "300Mi", "200Mi"),
        of("high-below-far", 1, "800Mi", "100Mi"),
    ];
    let sorted = [
        "low-exceeds-more",
        "low-exceeds-less",
        "high-exceeds-more",
        "high-exceeds-less",
        "low-below",
        "low-below-far",
        "high-below",
        "high-below-far",
    ];
    assert_eq!(order(Signal::AllocatableMemoryAvailable, &pods), sorted);
}

#[test]
fn ordered_by_priority_process_then_the_number_of_tasks() {
    let pods = [
        (pod("high", 1, &[]), Some(tasks(900))),
        (pod("few", -1, &[]), Some(tasks(10))),
        (pod("many", -1, &[]), Some(tasks(500))),
    ];
    assert_eq!(order(Signal::PidAvailable, &pods), ["many", "few", "high"]);
}

#[test]
fn stats_not_found_for_pod_puts_it_first_and_two_such_are_alike() {
    let pods = [
        (pod("b", 5, &[]), None),
        (pod("hog", -9, &[]), Some(memory("9Gi"))),
        (pod("a", 5, &[]), None),
    ];
    for signal in [Signal::MemoryAvailable, Signal::NodeFsAvailable] {
        assert_eq!(order(signal, &pods), ["a", "b", "hog"]);
    }
    assert_eq!(order(Signal::PidAvailable, &pods), ["hog", "a", "b"]);
}

#[test]
fn of_two_alike_the_younger_comes_first_then_the_smaller_uid() {
    let born = |name: &str, at: &str| {
        changed(name, 0, &[], |object| {
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at.parse().unwrap());
            object.metadata.creation_timestamp = Some(time);
        })
    };
    let pods = [
        (born("old", "2026-01-01T00:00:00Z"), Some(memory("1Mi"))),
        (pod("b", 0, &[]), Some(memory("1Mi"))),
        (born("young", "2026-02-01T00:00:00Z"), Some(memory("1Mi"))),
        (pod("a", 0, &[]), Some(memory("1Mi"))),
    ];
    assert_eq!(order(Signal::MemoryAvailable, &pods), ["young", "old", "a", "b"]);
}
