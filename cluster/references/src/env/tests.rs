//! One test per rule, each for init, regular and ephemeral containers, including events.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::needs;

mod lacking;

/// The three lists of containers that have variables.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What is in the API.
#[derive(Default)]
struct Api {
    objects: HashMap<ObjectKey, FoundObject>,
    services: Vec<(String, String)>,
    node: Option<NodeAmounts>,
}

/// Builds a reference to a key: the variable, the object, the key, whether it is optional.
type KeyRef = fn(&str, &str, &str, bool) -> Value;

/// A reason and a message for each event.
type Told = Vec<(String, String)>;

impl Api {
    fn map(mut self, name: &str, data: &[(&str, &str)]) -> Self {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let map = api::ConfigMap { data: Some(data), ..api::ConfigMap::default() };
        let found = FoundObject::There(Arc::new(Object::from(map)));
        self.objects.insert(key(ObjectKind::ConfigMap, name), found);
        self
    }

    fn secret(mut self, name: &str, data: &[(&str, &str)]) -> Self {
        let bytes = |v: &str| ByteString(v.as_bytes().to_vec());
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), bytes(v))).collect();
        let secret = api::Secret { data: Some(data), ..api::Secret::default() };
        let found = FoundObject::There(Arc::new(Object::from(secret)));
        self.objects.insert(key(ObjectKind::Secret, name), found);
        self
    }

    fn down(mut self, kind: ObjectKind, name: &str) -> Self {
        let found = FoundObject::Unreadable { error: "connection refused".into(), after: None };
        self.objects.insert(key(kind, name), found);
        self
    }

    fn service(mut self, name: &str, value: &str) -> Self {
        self.services.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The variables as a runtime sets them, the events, and the problem. They must be the same for
    /// one container of each list.
    fn resolve(
        &self,
        env: &Value,
        from: &Value,
    ) -> (Result<Vec<(String, String)>, ReferenceProblem>, Told) {
        let mut all = LISTS.map(|list| self.resolve_in(list, env, from)).into_iter();
        let first = all.next().unwrap();
        for (other, told) in all {
            assert_eq!(format!("{other:?}"), format!("{:?}", first.0));
            assert_eq!(told, first.1);
        }
        first
    }

    fn resolve_in(
        &self,
        list: &str,
        env: &Value,
        from: &Value,
    ) -> (Result<Vec<(String, String)>, ReferenceProblem>, Told) {
        let pod = pod_with(list, env, from);
        let known = EnvironmentInputs {
            pod: &pod,
            objects: &self.objects,
            services: &self.services,
            node: self.node,
        };
        let mut told = Vec::new();
        let spec = pod.spec.as_ref().unwrap();
        let of_list = |v: &Variables<'_>| v.field == format!("spec.{list}[0]");
        let one = needs::environments(spec).into_iter().find(of_list).unwrap();
        let outcome = resolve(&known, &one, &mut Allowance::of_variables(), &mut told);
        let told = told.iter().map(|d| (d.reason.to_string(), d.message.to_string())).collect();
        (outcome.map(|env| as_set(&env)).map_err(|p| anywhere(p, list)), told)
    }

    fn env(&self, env: &Value, from: &Value) -> Vec<(String, String)> {
        let (outcome, told) = self.resolve(env, from);
        assert_eq!(told, [], "nothing is told");
        outcome.unwrap()
    }
}

/// The same problem in whichever list.
fn anywhere(problem: ReferenceProblem, list: &str) -> ReferenceProblem {
    match problem {
        ReferenceProblem::Invalid { field, why } => {
            ReferenceProblem::Invalid { field: field.replace(list, "*"), why }
        }
        ReferenceProblem::Unfit { field, why } => {
            ReferenceProblem::Unfit { field: field.replace(list, "*"), why }
        }
        ReferenceProblem::Unreadable { message, after } => {
            ReferenceProblem::Unreadable { message: message.replace(list, "*"), after }
        }
        other => other,
    }
}

fn pod_with(list: &str, env: &Value, from: &Value) -> Pod {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
            "labels": {"app": "w", "tier": "a\"b"}, "annotations": {"note": "n"}},
        "spec": {
            "containers": [],
            "restartPolicy": "OnFailure",
            list: [{"name": "main", "env": env, "envFrom": from}],
        },
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn key(kind: ObjectKind, name: &str) -> ObjectKey {
    ObjectKey::new(kind, &Arc::from("shop"), name)
}

/// What a runtime does with it: `$(NAME)` of earlier variables is expanded, `$$` is a dollar, and
/// the later of two with one name wins. Sources left to the runtime are shown by their path.
fn as_set(env: &[api::EnvVar]) -> Vec<(String, String)> {
    let mut done: Vec<(String, String)> = Vec::new();
    for var in env {
        let value = match (var.value.as_deref().unwrap_or_default(), &var.value_from) {
            ("", Some(from)) => {
                let field = from.field_ref.as_ref().map(|f| f.field_path.clone());
                format!("<{}>", field.unwrap_or_default())
            }
            (text, _) => expand(text, &done),
        };
        match done.iter_mut().find(|(name, _)| *name == var.name) {
            Some(entry) => entry.1 = value,
            None => done.push((var.name.clone(), value)),
        }
    }
    done
}

fn expand(text: &str, env: &[(String, String)]) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|a| a.split_once(')')) {
            match env.iter().find(|(known, _)| known == name) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

fn pairs(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn told(reason: &str, message: &str) -> (String, String) {
    (reason.to_owned(), message.to_owned())
}

fn map_key(var: &str, map: &str, key: &str, optional: bool) -> Value {
    json!({"name": var,
        "valueFrom": {"configMapKeyRef": {"name": map, "key": key, "optional": optional}}})
}

fn secret_key(var: &str, secret: &str, key: &str, optional: bool) -> Value {
    json!({"name": var,
        "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": optional}}})
}

/// As in the kubelet: the API server takes any printable name without `=`.
#[test]
fn every_key_of_a_whole_object_is_a_variable_whatever_its_prefix() {
    let api = Api::default()
        .map("m", &[("FOO", "1"), ("2ND", "2"), (".x", "3")])
        .secret("s", &[("a-b", "4"), ("..c", "5")]);
    let from = json!([
        {"configMapRef": {"name": "m"}}, {"prefix": "app/", "configMapRef": {"name": "m"}},
        {"prefix": "1 ", "secretRef": {"name": "s"}},
    ]);
    let mut env = api.env(&json!([]), &from);
    env.sort();
    let expected = [
        (".x", "3"),
        ("1 ..c", "5"),
        ("1 a-b", "4"),
        ("2ND", "2"),
        ("FOO", "1"),
        ("app/.x", "3"),
        ("app/2ND", "2"),
        ("app/FOO", "1"),
    ];
    assert_eq!(env, pairs(&expected));
}

#[test]
fn variables_come_from_values_and_keys_in_the_order_of_the_spec() {
    let api = Api::default().map("m", &[("k", "from map")]).secret("s", &[("k", "from secret")]);
    let env = json!([
        {"name": "Z", "value": "plain"},
        map_key("M", "m", "k", false),
        secret_key("A", "s", "k", false),
        {"name": "EMPTY"},
    ]);
    let expected = pairs(&[("Z", "plain"), ("M", "from map"), ("A", "from secret"), ("EMPTY", "")]);
    assert_eq!(api.env(&env, &json!([])), expected);
}

#[test]
fn whole_objects_come_first_with_their_prefixes_and_the_later_wins() {
    let api = Api::default()
        .map("m1", &[("FOO", "m1")])
        .map("m2", &[("BAR", "m2"), ("FOO", "m2")])
        .secret("s", &[("BAZ", "s")]);
    let from = json!([
        {"prefix": "P_", "configMapRef": {"name": "m1"}},
        {"configMapRef": {"name": "m1"}},
        {"configMapRef": {"name": "m2"}},
        {"prefix": "S_", "secretRef": {"name": "s"}},
    ]);
    let expected = pairs(&[("P_FOO", "m1"), ("FOO", "m2"), ("BAR", "m2"), ("S_BAZ", "s")]);
    assert_eq!(api.env(&json!([]), &from), expected);
}

#[test]
fn env_wins_over_env_from_and_that_over_services() {
    let api = Api::default()
        .map("m", &[("A", "map"), ("B", "map")])
        .service("A", "service")
        .service("B", "service")
        .service("C", "service")
        .service("D", "service");
    let env = json!([{"name": "A", "value": "env"}, {"name": "D", "value": ""}]);
    let from = json!([{"configMapRef": {"name": "m"}}]);
    let expected = pairs(&[("A", "env"), ("B", "map"), ("C", "service"), ("D", "")]);
    assert_eq!(api.env(&env, &from), expected);
}

#[test]
fn references_see_what_stands_before_them_and_services() {
    let api = Api::default().map("m", &[("MAP", "map")]).service("SVC", "service");
    let env = json!([
        {"name": "FOO", "value": "foo"},
        {"name": "ALL", "value": "$(FOO)$(MAP)$(SVC)$(LATER)"},
        {"name": "LATER", "value": "later"},
        {"name": "SVC", "value": "mine, was $(SVC)"},
        {"name": "ESCAPED", "value": "$$(FOO) $(FOO $"},
    ]);
    let env = api.env(&env, &json!([{"configMapRef": {"name": "m"}}]));
    let value = |name: &str| env.iter().find(|(n, _)| n == name).unwrap().1.clone();
    assert_eq!(value("ALL"), "foomapservice$(LATER)");
    assert_eq!(value("SVC"), "mine, was service");
    assert_eq!(value("ESCAPED"), "$(FOO) $(FOO $");
}

#[test]
fn what_was_read_is_never_taken_for_a_reference() {
    let text = "$(FOO) $$ $ $$$(FOO)";
    let api = Api::default().map("m", &[("k", text), ("ALL", text)]).secret("s", &[("k", text)]);
    let env = json!([
        {"name": "FOO", "value": "foo"},
        map_key("M", "m", "k", false),
        secret_key("S", "s", "k", false),
        {"name": "LABELS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}},
    ]);
    let env = api.env(&env, &json!([{"configMapRef": {"name": "m"}}]));
    for name in ["M", "S", "ALL"] {
        assert_eq!(env.iter().find(|(n, _)| n == name).unwrap().1, text, "{name}");
    }
}

#[test]
fn what_was_read_keeps_its_source_and_what_the_spec_says_has_none() {
    let api = Api::default().map("m", &[("K", "of map"), ("E", "")]).service("SVC", "10.0.0.9");
    let field = json!({"fieldRef": {"fieldPath": "spec.restartPolicy"}});
    let env = json!([
        map_key("M", "m", "K", false),
        map_key("EMPTY", "m", "E", false),
        {"name": "FIELD", "valueFrom": field},
        {"name": "OWN", "value": "own"},
    ]);
    let pod = pod_with("containers", &env, &json!([{"configMapRef": {"name": "m"}}]));
    let (objects, services) = (&api.objects, &*api.services);
    let known = EnvironmentInputs { pod: &pod, objects, services, node: None };
    let one = needs::environments(pod.spec.as_ref().unwrap()).remove(0);
    let given = resolve(&known, &one, &mut Allowance::of_variables(), &mut Vec::new()).unwrap();
    let source = |name: &str| given.iter().find(|var| var.name == name).unwrap().value_from.clone();
    let of_whole_objects = Some(api::EnvVarSource::default());
    assert_eq!([source("SVC"), source("K")], [of_whole_objects.clone(), of_whole_objects]);
    assert!(source("M").is_some_and(|from| from.config_map_key_ref.is_some()));
    assert!(source("FIELD").is_some_and(|from| from.field_ref.is_some()));
    assert_eq!([source("OWN"), source("EMPTY"), source("E")], [None, None, None]);
}

#[test]
fn binary_data_makes_no_variables() {
    let map = json!({"data": {"A": "1"}, "binaryData": {"B": "AAEC"}});
    let map: api::ConfigMap = serde_json::from_value(map).unwrap();
    let mut api = Api::default();
    let found = FoundObject::There(Arc::new(Object::from(map)));
    api.objects.insert(key(ObjectKind::ConfigMap, "m"), found);
    let from = json!([{"configMapRef": {"name": "m"}}]);
    assert_eq!(api.env(&json!([]), &from), pairs(&[("A", "1")]));
}

#[test]
fn what_the_runtime_knows_is_left_to_it() {
    let field = |path: &str| json!({"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}});
    for path in [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels['app']",
        "metadata.annotations['note']",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.podIP",
        "status.podIPs",
    ] {
        let env = Api::default().env(&json!([field(path)]), &json!([]));
        assert_eq!(env, pairs(&[("V", &format!("<{path}>"))]));
    }
}

#[test]
fn an_amount_without_a_limit_is_the_nodes_once_that_is_known() {
    let of = |name: &str| json!([{"name": "V", "valueFrom": {"resourceFieldRef": {"resource": name, "divisor": "1m"}}}]);
    let node = Some(NodeAmounts { cpu_milli: 1800, ..NodeAmounts::default() });
    let known = Api { node, ..Api::default() };
    assert_eq!(known.env(&of("limits.cpu"), &json!([])), pairs(&[("V", "1800")]));
    let Err(ReferenceProblem::Unreadable { message, after: Some(_) }) =
        Api::default().resolve(&of("limits.cpu"), &json!([])).0
    else {
        panic!("it has to wait")
    };
    assert!(message.ends_with("what this node has is not known yet"), "{message}");
    let Err(ReferenceProblem::Invalid { field, .. }) = known.resolve(&of("cpu"), &json!([])).0
    else {
        panic!("it is not known")
    };
    assert_eq!(field, "spec.*[0].env[0].valueFrom.resourceFieldRef");
}

#[test]
fn what_only_the_object_says_is_read_here() {
    let field = |path: &str| json!({"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}});
    for (path, expected) in [
        ("metadata.labels", "app=\"w\"\ntier=\"a\\\"b\""),
        ("metadata.annotations", "note=\"n\""),
        ("spec.restartPolicy", "OnFailure"),
        ("spec.schedulerName", "default-scheduler"),
    ] {
        let env = Api::default().env(&json!([field(path)]), &json!([]));
        assert_eq!(env, pairs(&[("V", expected)]), "{path}");
    }
}

#[test]
fn an_unknown_source_is_an_error_that_names_it() {
    for (source, expected) in [
        (json!({}), "spec.*[0].env[1].valueFrom"),
        (
            json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}),
            "spec.*[0].env[1].valueFrom.fieldRef.apiVersion",
        ),
    ] {
        let env = json!([{"name": "A"}, {"name": "V", "valueFrom": source}]);
        let (outcome, _) = Api::default().resolve(&env, &json!([]));
        let Err(ReferenceProblem::Invalid { field, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(field, expected);
    }
}

#[test]
fn a_large_value_is_not_given_as_often_as_a_pod_names_it() {
    let large = "x".repeat(1 << 20);
    let api = Api::default().map("m", &[("K", large.as_str())]);
    let keys = |number: usize| -> Value {
        (0..number).map(|i| map_key(&format!("V{i}"), "m", "K", false)).collect()
    };
    let objects = |number: usize| -> Value {
        let from = |i: usize| json!({"prefix": format!("P{i}_"), "configMapRef": {"name": "m"}});
        (0..number).map(from).collect()
    };
    for (env, from) in [(keys(33), objects(0)), (keys(0), objects(33)), (keys(17), objects(16))] {
        let (outcome, _) = api.resolve_in("containers", &env, &from);
        let Err(ReferenceProblem::Unfit { field, why }) = outcome else {
            panic!("it takes 33 MiB")
        };
        assert_eq!(field, "spec.*[0]");
        assert!(why.contains("more than 32 MiB"), "{why}");
    }
    assert!(api.resolve_in("containers", &keys(15), &objects(15)).0.is_ok());
}

/// The node keeps a pod as JSON, in memory, and a control character takes six bytes of that.
#[test]
fn a_value_counts_as_much_as_it_takes_where_the_pod_is_kept() {
    for character in ["\u{1}", "$"] {
        let large = character.repeat(1 << 20);
        let api = Api::default().map("m", &[("K", large.as_str())]);
        let keys: Value = (0..20).map(|i| map_key(&format!("V{i}"), "m", "K", false)).collect();
        let (outcome, _) = api.resolve_in("containers", &keys, &json!([]));
        assert!(matches!(outcome, Err(ReferenceProblem::Unfit { .. })), "{character:?}");
        let from =
            (0..20).map(|i| json!({"prefix": format!("P{i}_"), "configMapRef": {"name": "m"}}));
        let (outcome, _) = api.resolve_in("containers", &json!([]), &from.collect());
        assert!(matches!(outcome, Err(ReferenceProblem::Unfit { .. })), "{character:?}");
    }
}

#[test]
fn a_variable_counts_with_what_its_record_takes_beside_its_value() {
    let keys: Vec<String> = (0..1000).map(|i| format!("K{i}")).collect();
    let data = keys.iter().zip(["", "x", "$", "\u{1}"].into_iter().cycle());
    let data: Vec<(&str, &str)> = data.map(|(key, value)| (key.as_str(), value)).collect();
    let api = Api::default().map("m", &data);
    let from = json!([{"prefix": "P_", "configMapRef": {"name": "m"}}]);
    let pod = pod_with("containers", &json!([]), &from);
    let known = EnvironmentInputs { pod: &pod, objects: &api.objects, services: &[], node: None };
    let one = needs::environments(pod.spec.as_ref().unwrap()).remove(0);
    let env = resolve(&known, &one, &mut Allowance::of_variables(), &mut Vec::new()).unwrap();
    let written = serde_json::to_vec(&env).unwrap().len();
    assert!(written <= given_bytes(&env) + 2, "{written} bytes are counted as fewer");
}
