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

fn node() -> EnvironmentFacts {
    EnvironmentFacts {
        name: "n1".into(),
        addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
        allocatable: unchanging([
            (ResourceName::Cpu, 2500),
            (ResourceName::Memory, 7 << 30),
            (ResourceName::EphemeralStorage, 10 << 30),
        ]),
        memory_bytes: 8 << 30,
    }
}

fn env_of(value: &serde_json::Value) -> Result<Vec<(String, String)>, EnvironmentError> {
    environment(&pod(), &container(&json!({ "env": value })), &node())
}

#[test]
fn references_are_replaced_as_kubernetes_does() {
    let env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())];
    let values = by_name(&env);
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
        ("$(A)$$$(A", "1$$(A"),
    ] {
        let expanded = expand(text, usize::MAX, |name| values.get(name).copied());
        assert_eq!(expanded.as_deref(), Some(expected), "{text:?}");
    }
}

#[test]
fn a_path_needs_a_value_for_each_variable_and_takes_what_only_looks_like_one() {
    let env = [("A", "x"), ("EMPTY", ""), ("TEXT", "$(B)")].map(|(n, v)| (n.into(), v.into()));
    let path = |text: &str| expand_path(text, &env);
    assert_eq!(path("logs/$(A)/y"), Ok("logs/x/y".to_owned()));
    assert_eq!(path("$$(A)"), Ok("$(A)".to_owned()));
    assert_eq!(path("$(TEXT)"), Ok("$(B)".to_owned()), "a value is not looked through");
    assert_eq!(path("$(C)/$(B)/$(EMPTY)"), Err("missing value for B, C, EMPTY".to_owned()));
    let long = path(&"$(A)/".repeat(2049)).unwrap_err();
    assert!(long.contains("longer than 4096 bytes"), "{long}");
    assert_eq!(path(&"$(A)/".repeat(2048)).unwrap().len(), 4096);
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
    assert_eq!(command_line(&both, &env).unwrap(), [vec!["a", "x y"], vec!["x y"]]);
    let args = container(&json!({"args": ["b"]}));
    assert_eq!(command_line(&args, &env).unwrap(), [vec![], vec!["b"]]);
}

#[test]
fn variables_that_double_each_other_do_not_take_all_memory() {
    let mut env = vec![json!({"name": "A0", "value": "xx"})];
    env.extend((1..40).map(|i| {
        let before = format!("$(A{})", i - 1);
        json!({"name": format!("A{i}"), "value": before.repeat(2)})
    }));
    let error = env_of(&json!(env)).unwrap_err();
    assert_eq!((error.field.as_str(), error.retryable), ("env[21]", false));
    assert!(error.why.contains("longer than 8 MiB"), "{}", error.why);
}

#[test]
fn the_command_of_a_probe_has_the_room_of_a_command_line() {
    let one = container(&json!({"env": [{"name": "A", "value": "x".repeat(1 << 20)}]}));
    let command = |times| [String::from("x"), "$(A)".repeat(times)];
    assert_eq!(probe_command(&one, &command(6)).unwrap()[1].len(), 6 << 20);
    let error = probe_command(&one, &command(8)).unwrap_err();
    assert_eq!((error.field.as_str(), error.retryable), ("exec.command[1]", false));
}

/// What a kubelet knows of a variable is what the pod's spec says of it.
#[test]
fn a_value_that_was_read_is_the_containers_and_not_its_probes() {
    let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let env = json!([
        {"name": "SERVICE", "value": "10.0.0.9", "valueFrom": {}},
        {"name": "TOKEN", "value": "a$$b", "valueFrom": secret},
        {"name": "TWICE", "value": "of envFrom", "valueFrom": {}},
        {"name": "TWICE", "value": "2"},
        {"name": "NAME", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]);
    let one = container(&json!({ "env": env }));
    let expected = [("SERVICE", "10.0.0.9"), ("TOKEN", "a$b"), ("TWICE", "2"), ("NAME", "web")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(environment(&pod(), &one, &node()).unwrap(), expected);
    let command = ["$(SERVICE)-$(TOKEN)-$(TWICE)-$(NAME)".to_owned()];
    assert_eq!(probe_command(&one, &command).unwrap(), ["$(SERVICE)--2-"]);
}

#[test]
fn a_large_annotation_is_not_given_as_often_as_a_pod_names_it() {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
            "annotations": {"x": "y".repeat(1 << 20)}},
        "spec": {"containers": []},
    });
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    let source = json!({"fieldRef": {"fieldPath": "metadata.annotations['x']"}});
    let env = |number: usize| -> api::Container {
        let one = |i: usize| json!({"name": format!("V{i}"), "valueFrom": source});
        container(&json!({"env": (0..number).map(one).collect::<Vec<_>>()}))
    };
    assert_eq!(environment(&pod, &env(7), &node()).unwrap().len(), 7);
    assert_eq!(environment(&pod, &env(1000), &node()).unwrap_err().field, "env[7]");
}

#[test]
fn the_containers_of_a_pod_share_a_room_and_what_exceeds_it_is_named_once() {
    let refused = |variables: usize, args: &[String]| {
        let source = json!({"fieldRef": {"fieldPath": "metadata.annotations['x']"}});
        let one = |i: usize| json!({"name": format!("V{i}"), "valueFrom": source});
        let env: Vec<_> = (0..variables).map(one).collect();
        let containers = vec![json!({"name": "main", "env": env, "args": args}); 30];
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
                "annotations": {"x": "y".repeat(1 << 20)}},
            "spec": {"containers": containers},
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        crate::support::check(&pod, |_, _| {}, |_, _, _| {})
    };
    assert!(refused(2, &[]).is_empty());
    for (args, field) in [
        (vec![], "spec.containers[12].env[3]"),
        (vec!["$(V0)".to_owned()], "spec.containers[10].env[3]"),
        (vec!["$(V0)".repeat(1000)], "spec.containers[7].args[0]"),
    ] {
        let found = refused(5, &args);
        let of_pod: Vec<_> = found.iter().filter(|one| one.why.contains("than 64 MiB")).collect();
        assert_eq!(of_pod, [found.last().unwrap()]);
        assert_eq!(of_pod[0].field, field);
    }
}

#[test]
fn a_large_variable_is_not_repeated_in_a_command_line_without_end() {
    let env = [("X".to_owned(), "x".repeat(1 << 20))];
    for (spec, field) in [
        (json!({"args": ["b", "$(X)".repeat(1000)]}), "args[1]"),
        (json!({"command": vec!["$(X)"; 1000]}), "command[6]"),
        (json!({"command": vec!["$(X)"; 5], "args": vec!["$(X)"; 5]}), "args[1]"),
    ] {
        assert_eq!(command_line(&container(&spec), &env).unwrap_err().field, field);
    }
    let most = container(&json!({"command": vec!["$(X)"; 3], "args": vec!["$(X)"; 3]}));
    assert!(command_line(&most, &env).is_ok());
}

/// Would take minutes if each variable were looked for among all others, or the end of each reference in all that
/// follows.
#[test]
fn many_variables_take_no_more_time_than_their_number() {
    let number = 100_000;
    let var = |(i, value): (usize, String)| {
        let value = Some(value);
        api::EnvVar { name: format!("V{i}"), value, ..api::EnvVar::default() }
    };
    let first = (0..number).map(|i| (i, "1".to_owned()));
    let again = (0..number).map(|i| (i, format!("$(V{i})2")));
    let container = api::Container {
        env: Some(first.chain(again).map(var).collect()),
        args: Some((0..number).map(|i| format!("$(V{i})")).collect()),
        ..api::Container::default()
    };
    let env = environment(&pod(), &container, &node()).unwrap();
    assert_eq!(env.len(), number);
    let is_right =
        |(i, (name, value)): (usize, &(String, String))| *name == format!("V{i}") && value == "12";
    assert!(env.iter().enumerate().all(is_right));
    let [command, args] = command_line(&container, &env).unwrap();
    assert!(command.is_empty() && args.len() == number && args.iter().all(|arg| arg == "12"));
    let open = "$(".repeat(1 << 20);
    assert!(expand(&open, usize::MAX, |_| None).is_some_and(|same| same == open));
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
        ("spec.host", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.0.0.7"),
        ("status.podIP", "10.0.0.7"),
        ("status.hostIPs", "10.0.0.7,fd00::7"),
        ("status.podIPs", "10.0.0.7,fd00::7"),
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
        ("limits.ephemeral-storage", "1", "10737418240"),
        ("limits.hugepages-2Mi", "1", "0"),
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
fn a_limit_that_is_not_set_is_the_pods_or_what_the_node_has_for_pods() {
    let value = |limits: serde_json::Value, resource: &str| {
        let mut object = pod().object().clone();
        let whole = serde_json::from_value(json!({ "limits": limits })).unwrap();
        object.spec.as_mut().unwrap().resources = Some(whole);
        let source = json!([{"name": "V", "valueFrom": {"resourceFieldRef":
            {"resource": resource, "divisor": "1m"}}}]);
        let one = container(&json!({"env": source, "resources": {"limits": {"cpu": "0"}}}));
        environment(&Pod::new(object).unwrap(), &one, &node()).unwrap()[0].1.clone()
    };
    assert_eq!(value(json!({}), "limits.cpu"), "2500", "not the machine's");
    assert_eq!(value(json!({"cpu": "1"}), "limits.cpu"), "1000");
    assert_eq!(value(json!({}), "limits.memory"), (7_i64 << 30).to_string());
    assert_eq!(value(json!({"memory": "1Gi"}), "limits.memory"), (1_i64 << 30).to_string());
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
    let error = address_value("status.podIP", &[]).unwrap_err();
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
fn the_addresses_that_are_configured_go_before_those_that_are_found() {
    assert_eq!(node().host_addresses(), node().addresses);
    let unconfigured = EnvironmentFacts { addresses: Vec::new(), ..node() };
    let found = unconfigured.host_addresses();
    assert!(found.iter().all(|ip| !ip.is_loopback() && !ip.is_unspecified()), "{found:?}");
    assert_eq!(unconfigured.host_addresses(), found, "they stay");
}
