use serde_json::{Value, json};

use crate::{Pod, QosClass};

/// `requests` and `limits` as `cpu/memory`, either left out when empty.
fn resources(requests: &str, limits: &str) -> Value {
    let list = |text: &str| {
        let mut names = ["cpu", "memory"].into_iter().zip(text.split('/'));
        let mut list = json!({});
        names.by_ref().filter(|(_, amount)| !amount.is_empty()).for_each(|(name, amount)| {
            list[name] = json!(amount);
        });
        list
    };
    json!({"requests": list(requests), "limits": list(limits)})
}

fn class(spec: &Value, status: &Value) -> QosClass {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
    let object = json!({"metadata": metadata, "spec": spec, "status": status});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap().qos()
}

fn containers(all: &[(&str, &str)]) -> Value {
    let of = |(requests, limits): &(&str, &str)| {
        let resources = resources(requests, limits);
        json!({"name": "c", "resources": resources})
    };
    Value::Array(all.iter().map(of).collect())
}

use QosClass::{BestEffort, Burstable, Guaranteed};

#[test]
fn the_class_follows_from_cpu_and_memory_of_all_containers() {
    let guaranteed = ("100m/100Mi", "100m/100Mi");
    let burstable = ("1m/1Mi", "2m/2Mi");
    for (what, all, expected) in [
        ("guaranteed", vec![guaranteed], Guaranteed),
        ("guaranteed and guaranteed", vec![guaranteed, guaranteed], Guaranteed),
        ("equal in another spelling", vec![("0.1/1024Ki", "100m/1Mi")], Guaranteed),
        ("best effort and best effort", vec![("", ""), ("", "")], BestEffort),
        ("best effort", vec![("", "")], BestEffort),
        ("only zeros", vec![("0/0", "0/0")], BestEffort),
        ("best effort and burstable", vec![("", ""), ("1/", "2/")], Burstable),
        ("best effort and guaranteed", vec![("", ""), guaranteed], Burstable),
        ("cpu burstable, memory guaranteed", vec![("1/100Mi", "2/100Mi")], Burstable),
        ("requests without limits", vec![("100m/100Mi", "")], Burstable),
        ("limits without requests", vec![("", "100m/100Mi")], Burstable),
        ("burstable and guaranteed", vec![burstable, guaranteed], Burstable),
        (
            "sums equal, one unbounded",
            vec![("100m/100Mi", "100m/"), ("100m/100Mi", "100m/200Mi")],
            Burstable,
        ),
        ("sums equal, each unlike", vec![("1/1Gi", "2/1Gi"), ("2/1Gi", "1/1Gi")], Guaranteed),
        ("burstable with limits", vec![("1/100Mi", "2/200Mi")], Burstable),
        ("only memory, guaranteed", vec![("/100Mi", "/100Mi")], Burstable),
    ] {
        assert_eq!(class(&json!({"containers": containers(&all)}), &json!({})), expected, "{what}");
    }
}

#[test]
fn other_resources_do_not_count() {
    let huge = json!({"requests": {"hugepages-2Mi": "1Gi"}, "limits": {"hugepages-2Mi": "1Gi"}});
    let spec = json!({"containers": [{"name": "c", "resources": huge}]});
    assert_eq!(class(&spec, &json!({})), BestEffort);
}

#[test]
fn init_containers_and_sidecars_count() {
    let mut spec = json!({
        "containers": [{"name": "c", "resources": {}}],
        "initContainers": containers(&[("1/1Gi", "2/2Gi")]),
    });
    assert_eq!(class(&spec, &json!({})), Burstable);
    spec["containers"] = containers(&[("1/1Gi", "1/1Gi")]);
    assert_eq!(class(&spec, &json!({})), Burstable);
    spec["initContainers"] = containers(&[("1/1Gi", "1/1Gi")]);
    spec["initContainers"][0]["restartPolicy"] = json!("Always");
    assert_eq!(class(&spec, &json!({})), Guaranteed);
}

#[test]
fn resources_of_the_whole_pod_count_alone() {
    let guaranteed = &[("1/1Gi", "1/1Gi")];
    for (what, whole, all, expected) in [
        ("guaranteed, containers without", resources("1/1Gi", "1/1Gi"), &[("", "")], Guaranteed),
        (
            "guaranteed, burstable containers",
            resources("1/1Gi", "1/1Gi"),
            &[("1/1Gi", "2/")],
            Guaranteed,
        ),
        ("burstable, guaranteed containers", resources("1/1Gi", "2/2Gi"), guaranteed, Burstable),
        ("requests only", resources("1/1Gi", ""), guaranteed, Burstable),
        ("limits only", resources("", "1/1Gi"), guaranteed, Burstable),
        ("cpu only", resources("1/", "1/"), guaranteed, Burstable),
        ("memory only", resources("/1Gi", "/1Gi"), guaranteed, Burstable),
        ("empty", json!({}), guaranteed, BestEffort),
    ] {
        let spec = json!({"containers": containers(all), "resources": whole});
        assert_eq!(class(&spec, &json!({})), expected, "{what}");
    }
}

#[test]
fn the_recorded_class_holds_when_it_is_one() {
    let spec = json!({"containers": containers(&[("1/1Gi", "1/1Gi")])});
    for (recorded, expected) in [
        ("BestEffort", BestEffort),
        ("Burstable", Burstable),
        ("", Guaranteed),
        ("Gold", Guaranteed),
    ] {
        assert_eq!(class(&spec, &json!({"qosClass": recorded})), expected, "{recorded:?}");
    }
}

#[test]
fn a_quantity_that_cannot_be_read_counts_as_nothing() {
    assert_eq!(
        class(&json!({"containers": containers(&[("lots/-1", "1GiB/")])}), &json!({})),
        BestEffort
    );
}

#[test]
fn classes_are_named_as_kubernetes_names_them() {
    for (class, name) in
        [(BestEffort, "BestEffort"), (Burstable, "Burstable"), (Guaranteed, "Guaranteed")]
    {
        assert_eq!((class.as_str(), class.to_string().as_str()), (name, name));
        assert_eq!(serde_json::to_value(class).unwrap(), json!(name));
    }
    assert!(BestEffort < Burstable && Burstable < Guaranteed);
}
