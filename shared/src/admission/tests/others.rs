//! The sum over the pods on the node.

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::admission::OccupiedPlaces;

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.uid().to_string()).collect()
}

fn ranked(uid: &str, priority: i32, cpu: &str) -> Pod {
    let mut spec = asks(&json!({"cpu": cpu}));
    spec["priority"] = json!(priority);
    pod(uid, &spec)
}

#[test]
fn to_judge_ten_thousand_pods_each_is_looked_at_once() {
    const PODS: usize = 10_000;
    let mut large = machine1();
    let asked = [("cpu", "100000"), ("memory", "100000Gi"), ("pods", "20000")];
    large.allocatable = asked.into_iter().collect();
    let admission = Admission::default().then(NodeFit::new(Arc::new(large)));
    let there: Vec<Pod> = (0..PODS / 10)
        .map(|i| pod(&format!("there{i}"), &asks(&json!({"cpu": "1m", "memory": "1Mi"}))))
        .collect();
    let mut others = OtherPods::new(move || there.clone());
    for i in 0..PODS {
        let new = pod(&format!("new{i}"), &asks(&json!({"cpu": "1m", "memory": "1Mi"})));
        assert_eq!(admission.admit(&new, &others), Ok(()));
        others.add(&new);
    }
    assert_eq!(others.visits(), PODS + PODS / 10);
}

#[test]
fn no_pods_are_listed_for_a_check_that_does_not_look() {
    let others = OtherPods::new(|| panic!("listed"));
    let admission = Admission::default();
    assert_eq!(admission.admit(&pod("u", &asks(&json!({}))), &others), Ok(()));
}

#[test]
fn a_pod_that_is_added_before_the_list_is_read_counts_once() {
    let one = ranked("one", 0, "2m");
    let mut others = OtherPods::new({
        let one = one.clone();
        move || vec![one.clone()]
    });
    others.add(&one);
    others.add(&one);
    assert_eq!(others.used_without(&ranked("new", 0, "1m"), &machine1()).requests.cpu_milli(), 2);
    others.add(&one);
    assert_eq!(others.used_without(&ranked("new", 0, "1m"), &machine1()).pods, 1);
}

#[test]
fn ending_pods_count_and_cannot_be_chosen() {
    let (stays, ends) = (ranked("stays", 0, "2m"), ranked("ends", 0, "3m"));
    let places = move || OccupiedPlaces {
        non_terminating: vec![stays.clone()],
        stuck: vec![ends.clone()],
        ..OccupiedPlaces::default()
    };
    let others = OtherPods::of(places);
    assert_eq!(names(others.non_terminating()), ["stays"]);
    assert_eq!(others.used_without(&ranked("new", 0, "1m"), &machine1()).requests.cpu_milli(), 5);
}

#[test]
fn room_that_is_promised_is_taken_for_all_but_those_who_may_preempt() {
    let mut others = OtherPods::new(Vec::new);
    let waits = ranked("waits", 2_000_000_000, "4m");
    others.reserve(&waits);
    let used = |pod: &Pod| others.used_without(pod, &machine1()).requests.cpu_milli();
    assert_eq!(used(&ranked("ordinary", 10, "1m")), 4);
    assert_eq!(used(&ranked("equal", 2_000_000_000, "1m")), 4);
    assert_eq!(used(&ranked("higher", 2_000_001_000, "1m")), 0);
    assert_eq!(used(&waits), 0, "it does not compete with itself");
    assert!(others.non_terminating().is_empty(), "and does not run, so that it could be chosen");
}

/// How much cpu counts for an ordinary pod beside one pod that is `leaving`, one that is `stuck`, and one that waits.
fn counted(leaving: &str, stuck: &str, waits: &str) -> i64 {
    let [leaving, stuck] = [("leaving", leaving), ("stuck", stuck)].map(|(u, c)| ranked(u, 0, c));
    let mut others = OtherPods::of(move || OccupiedPlaces {
        stuck: vec![stuck.clone()],
        leaving: vec![(leaving.clone(), Instant::now())],
        ..OccupiedPlaces::default()
    });
    others.reserve(&ranked("waits", 2_000_000_000, waits));
    others.used_without(&ranked("new", 0, "1m"), &machine1()).requests.cpu_milli()
}

#[test]
fn a_pod_that_is_terminating_and_the_one_that_waits_for_its_room_count_one_after_the_other() {
    assert_eq!(counted("6m", "0", "8m"), 8, "the later one needs more");
    assert_eq!(counted("8m", "0", "6m"), 8, "the earlier one does");
    assert_eq!(counted("6m", "3m", "7m"), 10, "it waits for the first only");
    assert_eq!(counted("1m", "5m", "7m"), 7, "it waits for both");
}

#[test]
fn the_place_and_the_ports_of_a_pod_that_waits_count_too() {
    let ports = |uid: &str, port: u16| {
        let ports = json!([{"containerPort": 1, "hostPort": port}]);
        pod(uid, &json!({"priority": 9, "containers": [{"name": "c", "ports": ports}]}))
    };
    let mut others = OtherPods::new(|| vec![ranked("there", 0, "1m")]);
    others.reserve(&ports("waits", 80));
    let (same, other) = (ports("same", 80), ports("other", 81));
    assert!(others.used_without(&same, &machine1()).ports.conflict(&same).is_some());
    let used = others.used_without(&other, &machine1());
    assert!(used.ports.conflict(&other).is_none());
    assert_eq!(used.pods, 2);
}

proptest! {
    /// The running sum equals the sum computed from scratch.
    #[test]
    fn the_running_sum_is_the_sum(
        cpus in proptest::collection::vec((0_u8..9, 0_u16..6, any::<bool>()), 1..16),
        split in 0_usize..16,
    ) {
        let pods: Vec<Pod> = cpus.iter().enumerate().map(|(i, (cpu, port, any))| {
            let ports = match port {
                0 => json!([]),
                _ if *any => json!([{"containerPort": 1, "hostPort": port}]),
                _ => json!([{"containerPort": 1, "hostPort": port, "hostIP": "10.0.0.1"}]),
            };
            let requests = json!({"requests": {"cpu": cpu.to_string(), "example.com/a": "1"}});
            pod(&format!("p{i}"), &json!({
                "containers": [{"name": "c", "ports": ports, "resources": requests}],
            }))
        }).collect();
        let split = split.min(pods.len());
        let first = pods[..split].to_vec();
        let mut others = OtherPods::new(move || first.clone());
        others.non_terminating();
        for (i, pod) in pods.iter().enumerate() {
            // Pods that are already there are checked again, the others are new.
            let here = &pods[..i.max(split)];
            let (sum, all) = (others.used_without(pod, &machine1()), NodeUse::without(pod, here));
            prop_assert_eq!(sum.pods, all.pods);
            prop_assert_eq!(&sum.requests, &all.requests);
            prop_assert_eq!(sum.ports.conflict(pod), all.ports.conflict(pod));
            others.add(pod);
        }
    }
}
