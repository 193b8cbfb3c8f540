use serde_json::json;

use super::*;

fn pod() -> Pod {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
            "labels": {"app": "w"}, "annotations": {"note": "n"}},
        "spec": {"containers": [], "serviceAccountName": "sa"},
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn container(value: &serde_json::Value) -> api::Container {
    let mut object = json!({"name": "main"});
    object.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn node() -> NodeFacts {
    NodeFacts {
        name: "n1".into(),
        address: Some("10.0.0.7".parse().unwrap()),
        cpu_milli: 4000,
        memory_bytes: 8 << 30,
    }
}

fn env_of(value: &serde_json::Value) -> Result<Vec<(String, String)>, EnvironmentError> {
    environment(&pod(), &container(&json!({ "env": value })), &node())
}

#[test]
fn references_are_replaced_as_kubernetes_does() {
    let env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())];
    for (text, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(B)", "$(A)"),
        ("$(NOPE)", "$(NOPE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$", "$$"),
        ("$", "$"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$(", "$("),
        ("$()", "$()"),
        ("a$", "a$"),
        ("ü$(A)ü", "ü1ü"),
        ("$ (A)", "$ (A)"),
        ("$((A))", "$((A))"),
    ] {
        assert_eq!(expand(text, |name| value_of(&env, name)), expected, "{text:?}");
    }
}

#[test]
fn a_path_needs_a_value_for_each_variable_and_takes_what_only_looks_like_one() {
    let env = [("A", "x"), ("EMPTY", ""), ("TEXT", "$(B)")].map(|(n, v)| (n.into(), v.into()));
    let path = |text| expand_path(text, &env);
    assert_eq!(path("logs/$(A)/y"), Ok("logs/x/y".to_owned()));
    assert_eq!(path("$$(A)"), Ok("$(A)".to_owned()));
    assert_eq!(path("$(TEXT)"), Ok("$(B)".to_owned()), "a value is not looked through");
    assert_eq!(path("$(C)/$(B)/$(EMPTY)"), Err("missing value for B, C, EMPTY".to_owned()));
}

#[test]
fn a_variable_sees_those_before_it_and_not_those_after_it() {
    let env = env_of(&json!([
        {"name": "FIRST", "value": "$(SECOND)"},
        {"name": "SECOND", "value": "2"},
        {"name": "THIRD", "value": "$(SECOND)3"},
        {"name": "FIRST", "value": "again $(THIRD)"},
    ]));
    let expected = [("FIRST", "again 23"), ("SECOND", "2"), ("THIRD", "23")];
    let env = env.unwrap();
    let seen: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn command_and_args_are_one_command_line() {
    let both = container(&json!({"command": ["a", "$(X)"], "args": ["$(X)"]}));
    let env = [("X".to_owned(), "x y".to_owned())];
    assert_eq!(command_line(&both, &env), ["a", "x y", "x y"]);
    assert_eq!(command_line(&container(&json!({"args": ["b"]})), &env), ["b"]);
}

#[test]
fn fields_of_the_pod_and_the_node_have_values() {
    for (path, expected) in [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "w"),
        ("metadata.labels['nope']", ""),
        ("metadata.annotations['note']", "n"),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.0.0.7"),
        ("status.podIP", "10.0.0.7"),
    ] {
        let source = json!([{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        assert_eq!(env_of(&source).unwrap()[0].1, expected, "{path}");
    }
}

#[test]
fn resources_are_given_in_units_of_the_divisor_and_rounded_up() {
    for (resource, divisor, expected) in [
        ("limits.cpu", "", "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "101"),
        ("limits.memory", "", "105000000"),
        ("requests.cpu", "1m", "250"),
        ("requests.memory", "1Mi", "0"),
        ("limits.ephemeral-storage", "1", "0"),
    ] {
        let spec = container(&json!({
            "resources": {"limits": {"cpu": "1500m", "memory": "105M"}, "requests": {"cpu": "250m"}},
            "env": [{"name": "V", "valueFrom": {"resourceFieldRef":
                {"resource": resource, "divisor": divisor}}}],
        }));
        let env = environment(&pod(), &spec, &node()).unwrap();
        assert_eq!(env[0].1, expected, "{resource} / {divisor:?}");
    }
}

#[test]
fn a_limit_that_is_not_set_is_what_the_node_has() {
    let source =
        json!([{"name": "V", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]);
    assert_eq!(env_of(&source).unwrap()[0].1, "4");
}

#[test]
fn what_is_not_known_here_is_refused_by_its_field() {
    for (source, field) in [
        (json!({"secretKeyRef": {"name": "s", "key": "k"}}), "env[0].valueFrom.secretKeyRef"),
        (json!({"configMapKeyRef": {"name": "s", "key": "k"}}), "env[0].valueFrom.configMapKeyRef"),
        (json!({"fieldRef": {"fieldPath": "status.phase"}}), "env[0].valueFrom.fieldRef.fieldPath"),
        (
            json!({"resourceFieldRef": {"resource": "cpu"}}),
            "env[0].valueFrom.resourceFieldRef.resource",
        ),
        (
            json!({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "other"}}),
            "env[0].valueFrom.resourceFieldRef.containerName",
        ),
        (
            json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}}),
            "env[0].valueFrom.resourceFieldRef.divisor",
        ),
    ] {
        let error = env_of(&json!([{"name": "V", "valueFrom": source}])).unwrap_err();
        assert_eq!(error.field, field);
    }
}

#[test]
fn an_address_that_is_not_known_is_refused_and_not_left_empty() {
    let error = address_value("status.podIP", None).unwrap_err();
    assert!(error.starts_with("status.podIP is not known"), "{error}");
}

#[test]
fn an_address_that_is_not_known_yet_is_no_fault_of_the_pod() {
    let error = |retryable| {
        let (field, why) = ("env[0].valueFrom.fieldRef.fieldPath".to_owned(), "no".to_owned());
        EnvironmentError { field, why, retryable }.of("spec.containers[0]")
    };
    assert!(matches!(error(false), RuntimeError::Failed { .. }));
    let retryable = error(true);
    assert!(matches!(retryable, RuntimeError::NotYet { .. }), "{retryable:?}");
    let named = "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: no";
    assert_eq!(retryable.to_string(), named);
}

#[test]
fn the_address_that_is_configured_goes_before_the_one_that_is_found() {
    assert_eq!(node().host_address(), node().address);
    let found = NodeFacts { address: None, ..node() }.host_address();
    assert!(found.is_none_or(|ip| !ip.is_loopback() && !ip.is_unspecified()), "{found:?}");
    assert_eq!(NodeFacts { address: None, ..node() }.host_address(), found, "it stays");
}
