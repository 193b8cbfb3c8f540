use serde_json::{Value, json};

use super::*;

fn pod() -> Pod {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
            "labels": {"b": "2", "a": "1"},
            "annotations": {"note": "line\nbreak \"quoted\" \\ ü \u{1}\u{7}\u{301}\u{200b}"}},
        "spec": {
            "containers": [{"name": "main", "resources": {
                "limits": {"cpu": "1500m", "memory": "105M"}, "requests": {"cpu": "250m"}}}],
            "initContainers": [{"name": "first"}],
        },
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

const NODE: NodeAmounts =
    NodeAmounts { cpu_milli: 4000, memory_bytes: 8 << 30, ephemeral_storage_bytes: 100 << 30 };

fn selector(container: &str, resource: &str, divisor: &str) -> api::ResourceFieldSelector {
    let value: Value =
        json!({"containerName": container, "resource": resource, "divisor": divisor});
    serde_json::from_value(value).unwrap()
}

#[test]
fn fields_are_shown_as_the_kubelet_shows_them() {
    for (path, expected) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u1"),
        ("metadata.labels", "a=\"1\"\nb=\"2\""),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['nope']", ""),
        (
            "metadata.annotations",
            "note=\"line\\nbreak \\\"quoted\\\" \\\\ ü \\x01\\a\u{301}\\u200b\"",
        ),
    ] {
        assert_eq!(field(&pod(), path).unwrap(), expected, "{path}");
    }
    for path in ["status.podIP", "spec.nodeName", "metadata.name['x']", "nonsense"] {
        assert!(field(&pod(), path).is_err(), "{path}");
    }
}

#[test]
fn amounts_are_in_units_of_the_divisor_and_rounded_up() {
    for (container, name, divisor, expected) in [
        ("main", "limits.cpu", "", "2"),
        ("main", "limits.cpu", "1m", "1500"),
        ("main", "limits.memory", "1Mi", "101"),
        ("main", "requests.cpu", "1m", "250"),
        ("main", "requests.memory", "1", "0"),
        ("first", "limits.cpu", "0", "4"),
        ("first", "limits.memory", "1Gi", "8"),
        ("first", "limits.ephemeral-storage", "1Gi", "100"),
        ("first", "limits.hugepages-2Mi", "", "0"),
    ] {
        let shown = resource(&pod(), &selector(container, name, divisor), None, Some(NODE));
        assert_eq!(shown.unwrap(), expected, "{container} {name} {divisor}");
    }
}

#[test]
fn a_container_without_a_limit_has_its_pods_and_a_limit_of_zero_is_none() {
    let mut object = pod().object().clone();
    let spec = object.spec.as_mut().unwrap();
    let limits = |limits: Value| serde_json::from_value(json!({ "limits": limits })).unwrap();
    spec.resources = Some(limits(json!({"cpu": "2", "memory": "0"})));
    spec.init_containers.as_mut().unwrap()[0].resources = Some(limits(json!({"cpu": "0"})));
    let pod = Pod::new(object).unwrap();
    for (container, name, expected) in [
        ("main", "limits.cpu", "1500"),
        ("first", "limits.cpu", "2000"),
        ("first", "limits.memory", "8589934592"),
    ] {
        let shown = resource(&pod, &selector(container, name, "1m"), None, Some(NODE));
        assert_eq!(shown.unwrap(), expected, "{container} {name}");
    }
}

#[test]
fn what_is_not_known_is_an_error() {
    for (container, name, divisor) in
        [("nope", "limits.cpu", ""), ("main", "cpu", ""), ("main", "limits.cpu", "x")]
    {
        let shown = resource(&pod(), &selector(container, name, divisor), None, Some(NODE));
        assert!(matches!(shown, Err(ResolveError::Wrong(_))), "{name}: {shown:?}");
    }
}

#[test]
fn a_container_that_asks_is_meant_where_none_is_named_and_may_be_an_ephemeral_one() {
    let asks = |own: &str, name: &str| {
        resource(&pod(), &selector("", name, "1m"), Some(own), Some(NODE)).unwrap()
    };
    assert_eq!(asks("main", "limits.cpu"), "1500");
    assert_eq!(asks("debugger", "limits.cpu"), "4000");
    assert_eq!(asks("debugger", "requests.cpu"), "0");
}

#[test]
fn while_the_nodes_amounts_are_not_known_only_who_needs_them_waits() {
    let shown = |name: &str| resource(&pod(), &selector("main", name, "1"), None, None);
    assert_eq!(shown("limits.cpu").unwrap(), "2");
    assert_eq!(shown("requests.memory").unwrap(), "0");
    assert_eq!(shown("limits.ephemeral-storage"), Err(ResolveError::NodeUnknown));
}
