use serde_json::{Value, json};

use crate::{Pod, Requests, ResourceName};

fn pod(spec: &Value) -> Pod {
    with_status(spec, &json!({}))
}

fn with_status(spec: &Value, status: &Value) -> Pod {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
    let object = json!({"metadata": metadata, "spec": spec, "status": status});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn container(requests: &Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests}})
}

fn sidecar(requests: &Value) -> Value {
    let mut sidecar = container(requests);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

fn listed(requests: &Requests) -> Vec<(String, i64)> {
    requests.iter().map(|(name, amount)| (name.to_string(), amount)).collect()
}

fn list(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

#[test]
fn init_containers_and_sidecars_count_as_they_run() {
    let one = |cpu: i64| container(&json!({ "cpu": cpu.to_string() }));
    let beside = |cpu: i64| sidecar(&json!({ "cpu": cpu.to_string() }));
    for (what, init, cpu, expected) in [
        ("init above container", vec![one(4)], 1, 4),
        ("container above init", vec![one(1)], 4, 4),
        ("sidecar and container", vec![beside(1)], 1, 2),
        ("init before sidecars", vec![one(5), beside(1), beside(2), beside(3)], 1, 7),
        ("init beside two sidecars", vec![one(5), beside(1), beside(2), one(5), beside(3)], 1, 8),
        ("sidecar, init, container", vec![beside(10), one(200)], 100, 210),
        ("two inits, one after the other", vec![one(2), one(3)], 1, 3),
    ] {
        let pod = pod(&json!({"initContainers": init, "containers": [one(cpu)]}));
        assert_eq!(pod.accounted_requests().cpu_milli(), expected * 1000, "{what}");
        assert_eq!(pod.fit_requests().cpu_milli(), expected * 1000, "{what}");
    }
}

#[test]
fn each_resource_takes_its_own_largest() {
    let pod = pod(&json!({
        "initContainers": [container(&json!({"cpu": "2", "memory": "1Gi"}))],
        "containers": [container(&json!({"cpu": "1", "memory": "2Gi", "example.com/gpu": "3"}))],
    }));
    let expected = list(&[("cpu", 2000), ("memory", 2 << 30), ("example.com/gpu", 3)]);
    assert_eq!(listed(pod.accounted_requests()), expected);
}

#[test]
fn ephemeral_containers_never_count() {
    let pod = pod(&json!({
        "containers": [container(&json!({"cpu": "1"}))],
        "ephemeralContainers": [{"name": "debug", "resources": {"requests": {"cpu": "8"}}}],
    }));
    assert_eq!(pod.fit_requests().cpu_milli(), 1000);
}

#[test]
fn exact_amounts_are_summed_before_they_are_rounded_up() {
    let small = container(&json!({"cpu": "100u", "memory": "100m"}));
    let pod = pod(&json!({"containers": [small, small, small]}));
    assert_eq!(listed(pod.fit_requests()), list(&[("cpu", 1), ("memory", 1)]));
}

#[test]
fn ranking_counts_requests_in_milli_cpus_and_bytes() {
    let cpu = |amount: &str| json!({"containers": [container(&json!({ "cpu": amount }))]});
    assert_eq!(pod(&cpu("9")).accounted_requests().cpu_milli(), 9000);
    let memory = json!({"containers": [container(&json!({"memory": "90Mi"}))]});
    assert_eq!(pod(&memory).accounted_requests().memory_bytes(), 94_371_840);
}

#[test]
fn ranking_adds_overhead_only_to_what_is_requested_and_fit_adds_it_always() {
    let overhead = |requests| {
        pod(&json!({
            "containers": [container(&requests)],
            "overhead": {"cpu": "5", "memory": "5"},
        }))
    };
    let none = overhead(json!({}));
    assert_eq!(*none.accounted_requests(), Requests::default());
    assert_eq!(listed(none.fit_requests()), list(&[("cpu", 5000), ("memory", 5)]));
    let cpu = overhead(json!({"cpu": "2"}));
    assert_eq!(listed(cpu.accounted_requests()), list(&[("cpu", 7000)]));
    assert_eq!(listed(cpu.fit_requests()), list(&[("cpu", 7000), ("memory", 5)]));
    let memory = overhead(json!({"memory": "1024"}));
    assert_eq!(listed(memory.accounted_requests()), list(&[("memory", 1029)]));
}

#[test]
fn ranking_takes_requests_of_the_whole_pod_alone_and_fit_by_name() {
    let whole = |resources: Value, requests: Value| {
        pod(&json!({"resources": resources, "containers": [container(&requests)]}))
    };
    let own = json!({"cpu": "8", "memory": "80Mi", "ephemeral-storage": "1Gi"});

    let both = whole(json!({"requests": {"cpu": "10", "memory": "100Mi"}}), own.clone());
    let expected = list(&[("cpu", 10_000), ("memory", 100 << 20)]);
    assert_eq!(listed(both.accounted_requests()), expected);
    let expected = list(&[("cpu", 10_000), ("memory", 100 << 20), ("ephemeral-storage", 1 << 30)]);
    assert_eq!(listed(both.fit_requests()), expected);

    let cpu = whole(json!({"requests": {"cpu": "10"}}), own.clone());
    assert_eq!(listed(cpu.accounted_requests()), list(&[("cpu", 10_000)]));
    assert_eq!(cpu.fit_requests().memory_bytes(), 80 << 20);

    let limit = whole(json!({"limits": {"cpu": "10"}}), own.clone());
    assert_eq!(*limit.accounted_requests(), Requests::default());
    assert_eq!(limit.fit_requests().cpu_milli(), 8000);

    let unsupported = whole(json!({"requests": {"example.com/gpu": "2"}}), own);
    assert_eq!(unsupported.accounted_requests().cpu_milli(), 8000);
    assert_eq!(unsupported.fit_requests().get(&"example.com/gpu".into()), 0);

    let alone = whole(json!({"requests": {"cpu": "10", "hugepages-2Mi": "4Mi"}}), json!({}));
    let expected = list(&[("cpu", 10_000), ("hugepages-2Mi", 4 << 20)]);
    assert_eq!(listed(alone.accounted_requests()), expected);
    assert_eq!(listed(alone.fit_requests()), expected);
}

#[test]
fn huge_pages_of_each_size_are_replaced_on_their_own() {
    let pod = pod(&json!({
        "resources": {"requests": {"hugepages-2Mi": "10Mi"}},
        "containers": [container(&json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "2Gi"}))],
    }));
    let expected = list(&[("hugepages-1Gi", 2 << 30), ("hugepages-2Mi", 10 << 20)]);
    assert_eq!(listed(pod.fit_requests()), expected);
}

#[test]
fn fit_takes_the_largest_of_wanted_given_and_actual_during_a_resize() {
    let spec = json!({"containers": [container(&json!({"cpu": "2"}))]});
    let status = |actual: &str, given: &str, conditions: Value| {
        json!({
            "conditions": conditions,
            "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": actual}},
                "allocatedResources": {"cpu": given},
            }],
        })
    };
    let infeasible =
        json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    let deferred = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]);
    for (what, status, expected) in [
        ("wanted is the largest", status("1", "1500m", json!([])), 2000),
        ("given is the largest", status("1", "3", json!([])), 3000),
        ("actual is the largest", status("4", "3", json!([])), 4000),
        ("wanted cannot be had", status("1", "1500m", infeasible), 1500),
        ("wanted may be had later", status("1", "1500m", deferred), 2000),
        ("no status", json!({}), 2000),
    ] {
        let pod = with_status(&spec, &status);
        assert_eq!(pod.fit_requests().cpu_milli(), expected, "{what}");
        assert_eq!(pod.accounted_requests().cpu_milli(), 2000, "{what}");
    }
}

#[test]
fn a_resize_of_a_sidecar_counts_and_one_of_an_init_container_does_not() {
    let status = json!({"initContainerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "resources": {"requests": {"cpu": "4"}},
    }]});
    let main = json!({"name": "main", "resources": {"requests": {"cpu": "1"}}});
    let spec = |init| json!({"containers": [main], "initContainers": [init]});
    let resized = with_status(&spec(sidecar(&json!({"cpu": "2"}))), &status);
    assert_eq!(resized.fit_requests().cpu_milli(), 5000);
    let finished = with_status(&spec(container(&json!({"cpu": "2"}))), &status);
    assert_eq!(finished.fit_requests().cpu_milli(), 2000);
}

#[test]
fn limits_are_summed_like_requests() {
    let limited = |limits: Value| json!({"name": "c", "resources": {"limits": limits}});
    let pod = pod(&json!({
        "resources": {"limits": {"memory": "3Gi", "ephemeral-storage": "9Gi"}},
        "initContainers": [limited(json!({"cpu": "4"}))],
        "containers": [
            limited(json!({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"})),
            limited(json!({})),
        ],
        "overhead": {"cpu": "1", "example.com/gpu": "1"},
    }));
    let expected = list(&[("cpu", 5000), ("memory", 3 << 30), ("ephemeral-storage", 1 << 30)]);
    assert_eq!(listed(&pod.accounted_limits()), expected);
}

#[test]
fn broken_quantities_count_as_nothing_and_huge_ones_saturate() {
    let requests = json!({"cpu": "lots", "memory": "-1Gi", "ephemeral-storage": "9e99"});
    let pod = pod(&json!({"containers": [container(&requests), container(&requests)]}));
    assert_eq!(listed(pod.accounted_requests()), list(&[("ephemeral-storage", i64::MAX)]));
}

#[test]
fn every_pod_takes_one_of_pods_whatever_it_says() {
    let pod = pod(&json!({"containers": [container(&json!({"pods": "5"}))]}));
    assert_eq!(pod.fit_requests().get(&ResourceName::Pods), 1);
    assert_eq!(*pod.fit_requests(), Requests::default());
}

#[test]
fn the_sum_over_a_node_merges_names_and_saturates() {
    let of = |requests| pod(&json!({"containers": [container(&requests)]}));
    let mut total = Requests::default();
    total.accumulate(of(json!({"cpu": "1", "b/x": "1", "d/x": "1"})).fit_requests());
    total.accumulate(of(json!({"memory": "8Ei", "a/x": "1", "b/x": "2"})).fit_requests());
    total.accumulate(of(json!({"memory": "8Ei", "c/x": "1"})).fit_requests());
    let expected = list(&[
        ("cpu", 1000),
        ("memory", i64::MAX),
        ("a/x", 1),
        ("b/x", 3),
        ("c/x", 1),
        ("d/x", 1),
    ]);
    assert_eq!(listed(&total), expected);
}

#[test]
fn names_convert_both_ways() {
    for name in ["pods", "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "a.b/c"] {
        assert_eq!(ResourceName::from(name).to_string(), name);
    }
    assert!(ResourceName::from("hugepages-2Mi").is_pod_level());
    assert!(!ResourceName::from("ephemeral-storage").is_pod_level());
}
