use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;

/// The files of the one volume of a pod with this spec.
struct World {
    objects: HashMap<ObjectKey, FoundObject>,
    tokens: HashMap<TokenKey, Hidden>,
    spec: Value,
}

impl World {
    fn new() -> Self {
        let objects = HashMap::from([
            (
                key(ObjectKind::ConfigMap, "m"),
                there(json!({"data": {"a": "1", "b": "2"}, "binaryData": {"bin": "AAEC"}})),
            ),
            (
                key(ObjectKind::Secret, "s"),
                FoundObject::There(Arc::new(Object::from(api::Secret {
                    data: Some([("p".to_owned(), ByteString(b"word".to_vec()))].into()),
                    ..api::Secret::default()
                }))),
            ),
        ]);
        let token = TokenKey { audience: String::new(), seconds: 3607 };
        let tokens = HashMap::from([(token, Hidden::from(b"t0ken".to_vec()))]);
        Self { objects, tokens, spec: json!({}) }
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.spec[field] = value;
        self
    }

    fn files(&self, volume: &Value) -> Result<Payload, ReferenceProblem> {
        let mut spec = json!({"containers": [{"name": "main"}], "volumes": [volume]});
        let given = self.spec.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(given);
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "w"}},
            "spec": spec,
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let node = Some(NodeAmounts { cpu_milli: 4000, ..NodeAmounts::default() });
        let known = PayloadInputs { pod: &pod, objects: &self.objects, tokens: &self.tokens, node };
        let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
        files(&known, 0, volume, &mut Allowance::of_volumes())
    }

    /// `path=content mode` of each file, or the problem as text.
    fn shown(&self, volume: Value) -> Vec<String> {
        let mut volume = volume;
        volume["name"] = json!("v");
        match self.files(&volume) {
            Ok(files) => files
                .iter()
                .map(|(path, f)| {
                    let owner = f.owner.map(|id| format!(" of {id}")).unwrap_or_default();
                    format!("{path}={} {:o}{owner}", f.bytes.text().escape_debug(), f.mode)
                })
                .collect(),
            Err(
                ReferenceProblem::Missing { message, .. }
                | ReferenceProblem::Unreadable { message, .. },
            ) => {
                vec![message]
            }
            Err(
                ReferenceProblem::Invalid { field, why } | ReferenceProblem::Unfit { field, why },
            ) => {
                vec![format!("{field}: {why}")]
            }
        }
    }
}

fn there(map: Value) -> FoundObject {
    let map: api::ConfigMap = serde_json::from_value(map).unwrap();
    FoundObject::There(Arc::new(Object::from(map)))
}

fn key(kind: ObjectKind, name: &str) -> ObjectKey {
    ObjectKey::new(kind, &Arc::from("shop"), name)
}

#[test]
fn all_keys_of_an_object_are_files() {
    let world = World::new();
    let map = json!({"configMap": {"name": "m"}});
    assert_eq!(world.shown(map), ["a=1 644", "b=2 644", "bin=\\0\\u{1}\\u{2} 644"]);
    let secret = json!({"secret": {"secretName": "s", "defaultMode": 0o400}});
    assert_eq!(world.shown(secret), ["p=word 400"]);
}

#[test]
fn items_choose_keys_paths_and_modes() {
    let volume = json!({"configMap": {"name": "m", "defaultMode": 0o640, "items": [
        {"key": "b", "path": "deep/er/b.txt"},
        {"key": "bin", "path": "x", "mode": 0o755},
    ]}});
    assert_eq!(World::new().shown(volume), ["deep/er/b.txt=2 640", "x=\\0\\u{1}\\u{2} 755"]);
}

#[test]
fn what_is_missing_is_empty_where_it_is_optional_and_a_problem_where_it_is_not() {
    let items = json!([{"key": "a", "path": "a"}, {"key": "nope", "path": "n"}]);
    for (volume, expected) in [
        (json!({"configMap": {"name": "nope", "optional": true}}), vec![]),
        (json!({"configMap": {"name": "nope"}}), vec!["configmap \"nope\" not found"]),
        (json!({"secret": {"secretName": "nope", "optional": true}}), vec![]),
        (json!({"secret": {"secretName": "nope"}}), vec!["secret \"nope\" not found"]),
        (json!({"configMap": {"name": "m", "optional": true, "items": items}}), vec!["a=1 644"]),
        (
            json!({"configMap": {"name": "m", "items": items}}),
            vec!["configmap references non-existent config key: nope"],
        ),
        (
            json!({"secret": {"secretName": "s", "items": items}}),
            vec!["references non-existent secret key: a"],
        ),
    ] {
        assert_eq!(World::new().shown(volume.clone()), expected, "{volume}");
    }
}

#[test]
fn an_object_that_cannot_be_read_is_no_missing_one_even_if_it_is_optional() {
    let mut world = World::new();
    let down = FoundObject::Unreadable { error: "down".into(), after: None };
    world.objects.insert(key(ObjectKind::ConfigMap, "m"), down);
    let volume = json!({"configMap": {"name": "m", "optional": true}});
    assert_eq!(world.shown(volume), ["failed to read configmap \"m\": down"]);
}

#[test]
fn a_pods_own_facts_are_files() {
    let volume = json!({"downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "mode": 0o600,
            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
    ]}});
    assert_eq!(World::new().shown(volume), ["cpu=4 600", "labels=app=\\\"w\\\" 644"]);
    let unknown = json!({"downwardAPI": {"items": [
        {"path": "x", "fieldRef": {"fieldPath": "status.phase"}}]}});
    let expected = "spec.volumes[0]: downwardAPI item \"x\": \
                    status.phase is not a field that a volume can show";
    assert_eq!(World::new().shown(unknown), [expected]);
}

/// The volume that the API server adds to every pod.
fn access() -> Value {
    json!({"projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}})
}

#[test]
fn the_access_of_every_pod_is_projected() {
    let expected = ["ca.crt=1 644", "namespace=shop 644", "token=t0ken 644"];
    assert_eq!(World::new().shown(access()), expected);
}

#[test]
fn a_token_is_for_the_pods_user_or_group_alone() {
    let token = |world: World| world.shown(access())[2].clone();
    let user = |id: i64| json!({"runAsUser": id});
    let containers = |a: Value, b: Value| json!([{"name": "a", "securityContext": a}, {"name": "b", "securityContext": b}]);
    let world = World::new().with("securityContext", user(7));
    assert_eq!(token(world), "token=t0ken 600 of 7");
    let world = World::new().with("containers", containers(user(7), user(7)));
    assert_eq!(token(world), "token=t0ken 600 of 7");
    let world = World::new().with("containers", containers(user(7), user(8)));
    assert_eq!(token(world), "token=t0ken 644");
    let world = World::new().with("containers", containers(user(7), json!({})));
    assert_eq!(token(world), "token=t0ken 644");
    let world = World::new().with("securityContext", json!({"fsGroup": 9}));
    assert_eq!(token(world), "token=t0ken 640");
}

#[test]
fn a_group_may_read_every_file() {
    let world = World::new().with("securityContext", json!({"fsGroup": 9}));
    let secret = json!({"secret": {"secretName": "s", "defaultMode": 0o400}});
    assert_eq!(world.shown(secret), ["p=word 440"]);
}

#[test]
fn a_token_that_is_not_there_is_a_problem() {
    let volume = json!({"projected": {"sources": [
        {"serviceAccountToken": {"audience": "vault", "path": "token"}}]}});
    assert_eq!(World::new().shown(volume), ["the service account's token is not there yet"]);
}

#[test]
fn unknown_sources_are_named() {
    let volume = json!({"projected": {"sources": [
        {"configMap": {"name": "m"}}, {"clusterTrustBundle": {"path": "x"}}]}});
    let expected = "spec.volumes[0].projected.sources[1]: only configMap, secret, downwardAPI and \
                    serviceAccountToken are shown";
    assert_eq!(World::new().shown(volume), [expected]);
}

#[test]
fn no_path_leads_out_of_the_volume_or_into_the_writers_own_names() {
    for path in [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "..data",
        "..2026",
        "",
        ".",
        "./..data",
        "./../x",
        "a\0",
    ] {
        let volume = json!({"configMap": {"name": "m", "items": [{"key": "a", "path": path}]}});
        let shown = World::new().shown(volume);
        assert!(shown[0].contains("is not a path below the volume"), "{path:?}: {shown:?}");
    }
    for key_name in ["../x", "..data", "a/b/../../../..", "/x"] {
        let mut world = World::new();
        world
            .objects
            .insert(key(ObjectKind::ConfigMap, "m"), there(json!({"data": {key_name: "1"}})));
        let shown = world.shown(json!({"configMap": {"name": "m"}}));
        assert!(shown[0].contains("is not a path below the volume"), "{key_name:?}: {shown:?}");
    }
}

#[test]
fn a_path_is_cleaned_as_a_kubelet_cleans_it() {
    for (path, cleaned) in [
        ("./app.yaml", "app.yaml"),
        ("a//b", "a/b"),
        ("a/./b/", "a/b"),
        ("a/..b", "a/..b"),
        (&format!("./{}", "x".repeat(255)), &"x".repeat(255)),
    ] {
        let volume = json!({"configMap": {"name": "m", "items": [{"key": "a", "path": path}]}});
        assert_eq!(World::new().shown(volume), [format!("{cleaned}=1 644")]);
    }
}

#[test]
fn a_path_is_not_a_file_and_a_directory() {
    let volume = json!({"configMap": {"name": "m", "items": [
        {"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}});
    let expected = "spec.volumes[0]: \"x/y\" is below a path that is a file";
    assert_eq!(World::new().shown(volume), [expected]);
}

#[test]
fn later_sources_of_a_projection_win() {
    let volume = json!({"projected": {"sources": [
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "x"}]}},
        {"secret": {"name": "s", "items": [{"key": "p", "path": "x"}]}},
    ]}});
    assert_eq!(World::new().shown(volume), ["x=word 644"]);
}

#[test]
fn a_value_is_not_shown_as_often_as_a_pod_names_it() {
    let mut world = World::new();
    let large = there(json!({"data": {"k": "x".repeat(1 << 20)}}));
    world.objects.insert(key(ObjectKind::ConfigMap, "m"), large);
    let items = |key: &str, number: usize| -> Value {
        (0..number).map(|i| json!({"key": key, "path": format!("f{i}")})).collect()
    };
    let large = |number: usize| {
        let items = items("k", number);
        json!({"name": "v", "configMap": {"name": "m", "items": items}})
    };
    assert_eq!(world.files(&large(64)).unwrap().len(), 64);
    // In memory, each of these four bytes takes a page.
    let small = json!({"name": "v", "secret": {"secretName": "s", "items": items("p", 20_000)}});
    // So does each directory that is in memory with them.
    let deep = |i: usize| json!({"key": "p", "path": format!("{i}/{}f", "a/".repeat(1900))});
    let deep: Vec<Value> = (0..10).map(deep).collect();
    let deep = json!({"name": "v", "secret": {"secretName": "s", "items": deep}});
    for volume in [large(65), small, deep] {
        let Err(ReferenceProblem::Unfit { field, why }) = world.files(&volume) else {
            panic!("too much")
        };
        assert_eq!(field, "spec.volumes[0]");
        assert!(why.contains("more than 64 MiB"), "{why}");
    }
}

#[test]
fn nothing_secret_is_in_what_is_logged() {
    let world = World::new();
    let secret = json!({"name": "v", "secret": {"secretName": "s"}});
    let text = format!("{:?} {:?} {:?}", world.objects, world.tokens, world.files(&secret));
    assert!(!text.contains("word") && !text.contains("t0ken"), "{text}");
    assert!(text.contains("(4 bytes)"), "{text}");
}
