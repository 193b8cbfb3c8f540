//! Every row of the recorded corpus: the same facts, victims and errors.

use serde_json::json;
use winddown_preemption::Strategy;

use crate::cases::{nodes, rows};

#[test]
fn every_row_has_the_victims_of_the_kubelet_in_its_order_or_its_error() {
    for case in rows().iter().chain(&nodes()) {
        let (victims, error) = match case.select(Strategy::Distance) {
            Ok(selection) => (selection.victims, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let names: Vec<&str> = victims.iter().map(|place| &**case.pods[*place].name()).collect();
        assert_eq!(names, case.victims, "{}", case.id);
        assert_eq!(error, case.error, "{}", case.id);
    }
}

#[test]
fn every_pod_has_the_facts_that_the_kubelet_sees() {
    for case in &rows() {
        let facts = case.pods.iter().map(|pod| {
            let requests = pod.accounted_requests();
            json!({
                "name": **pod.name(),
                "qos": pod.qos().as_str(),
                "critical": pod.is_critical(),
                "preemptable": case.preemptor.may_preempt(pod),
                "cpuMilli": requests.cpu_milli(),
                "memoryBytes": requests.memory_bytes(),
            })
        });
        assert_eq!(Some(facts.collect()), case.facts, "{}", case.id);
    }
}

#[test]
fn the_work_on_full_nodes_does_not_grow() {
    let most = [(2_119, 95_000), (38_640, 260_000), (584_805, 1_500_000)];
    for (case, (distance, minimal)) in nodes().iter().zip(most) {
        let work = |strategy| case.select(strategy).unwrap().work;
        assert_eq!(work(Strategy::Distance), distance, "{}", case.id);
        assert!(work(Strategy::Minimal) <= minimal, "{}: {}", case.id, work(Strategy::Minimal));
    }
}
