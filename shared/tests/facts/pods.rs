//! The kubelet's view of each pod when it ranks pods for preemption.

use k8s_openapi::api::core::v1 as api;
use serde::Deserialize;
use winddown_shared::Pod;

use crate::corpus;

#[derive(Deserialize)]
struct Scene {
    id: String,
    preemptor: api::Pod,
    pods: Vec<api::Pod>,
    facts: Vec<Facts>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Facts {
    name: String,
    qos: String,
    critical: bool,
    preemptable: bool,
    cpu_milli: i64,
    memory_bytes: i64,
}

impl Facts {
    fn of(pod: &Pod, preemptor: &Pod) -> Self {
        let requests = pod.accounted_requests();
        Self {
            name: pod.name().to_string(),
            qos: pod.qos().to_string(),
            critical: pod.is_critical(),
            preemptable: preemptor.may_preempt(pod),
            cpu_milli: requests.cpu_milli(),
            memory_bytes: requests.memory_bytes(),
        }
    }
}

fn check(scene: Scene) -> usize {
    let preemptor = Pod::new(scene.preemptor).unwrap();
    let pods: Vec<Pod> = scene.pods.into_iter().map(|pod| Pod::new(pod).unwrap()).collect();
    let ours: Vec<Facts> = pods.iter().map(|pod| Facts::of(pod, &preemptor)).collect();
    assert_eq!(ours, scene.facts, "{}", scene.id);
    ours.len()
}

#[test]
fn every_recorded_pod_has_the_recorded_facts() {
    let scenes: Vec<Scene> = corpus::lines("preemption-kubelet-1.36.jsonl.gz");
    assert_eq!(scenes.len(), 1500);
    let checked: usize = scenes.into_iter().map(check).sum();
    assert!(checked > 1500, "only {checked} pods");
}

#[test]
fn at_the_level_of_a_pod_only_resources_that_kubernetes_knows_there_count() {
    let requests = serde_json::json!({"cpu": "250m", "example.com/gpu": "3"});
    let object = serde_json::json!({
        "metadata": {"name": "a", "namespace": "default", "uid": "a"},
        "spec": {"resources": {"requests": requests}, "containers": [{"name": "main"}]},
    });
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    let named: Vec<_> = pod.accounted_requests().iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(named, ["cpu"]);
}
