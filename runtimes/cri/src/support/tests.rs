use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> Pod {
    let meta = json!({"name": "web", "namespace": "n", "uid": "u"});
    let object = json!({"metadata": meta, "spec": spec});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn fields(spec: &Value) -> Vec<String> {
    check_supported(&pod(spec)).into_iter().map(|one| one.field).collect()
}

fn with(container: &Value) -> Value {
    let mut one = json!({"name": "main", "image": "app:1"});
    for (key, value) in container.as_object().unwrap() {
        one[key] = value.clone();
    }
    json!({"containers": [one]})
}

#[test]
fn an_ordinary_pod_is_supported() {
    let spec = json!({
        "hostNetwork": true, "dnsPolicy": "Default", "restartPolicy": "OnFailure",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "data", "hostPath": {"path": "/data", "type": "Directory"}}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 5, "supplementalGroups": [4]},
        "initContainers": [{"name": "proxy", "image": "p:1", "restartPolicy": "Always"}],
        "containers": [{
            "name": "main", "image": "app:1",
            "ports": [{"name": "web", "containerPort": 80}],
            "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "a/b"}],
            "readinessProbe": {"httpGet": {"port": "web"}},
            "livenessProbe": {"grpc": {"port": 90}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "stopSignal": "SIGUSR1"},
            "securityContext": {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
        }],
    });
    assert_eq!(fields(&spec), Vec::<String>::new());
}

#[test]
fn what_a_pod_asks_in_vain_is_named() {
    let main = json!([{"name": "main", "image": "app:1"}]);
    for (spec, field) in [
        (
            json!({"containers": main, "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}),
            "spec.volumes[0].nfs",
        ),
        (
            json!({"containers": main, "volumes": [{"name": "v", "emptyDir": {"medium": "HugePages"}}]}),
            "spec.volumes[0].emptyDir.medium",
        ),
        (
            json!({"containers": main, "volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]}),
            "spec.volumes[0].hostPath.path",
        ),
        (json!({"containers": main, "hostUsers": false}), "spec.hostUsers"),
        (
            json!({"containers": main, "resources": {"limits": {"memory": "1Gi"}}}),
            "spec.resources.limits.memory",
        ),
        (json!({"containers": main, "os": {"name": "windows"}}), "spec.os.name"),
        (
            json!({"containers": main, "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}}),
            "spec.securityContext.seccompProfile.localhostProfile",
        ),
        (
            json!({"containers": main, "securityContext": {"seccompProfile": {"type": "runtimeDefault"}}}),
            "spec.securityContext.seccompProfile.type",
        ),
        (
            json!({"containers": main, "securityContext": {"appArmorProfile": {"type": "Localhost"}}}),
            "spec.securityContext.appArmorProfile.localhostProfile",
        ),
        (
            json!({"containers": main, "securityContext": {"supplementalGroups": [1, -1]}}),
            "spec.securityContext.supplementalGroups[1]",
        ),
        (
            json!({"containers": main, "securityContext": {"fsGroup": 4_294_967_296_i64}}),
            "spec.securityContext.fsGroup",
        ),
        (json!({"containers": [{"name": "main"}]}), "spec.containers[0].image"),
        (
            json!({"containers": main, "initContainers": [{"name": "i", "image": "a", "restartPolicy": "Never"}]}),
            "spec.initContainers[0].restartPolicy",
        ),
        (
            with(
                &json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
            ),
            "spec.containers[0].env[0].valueFrom.secretKeyRef",
        ),
        (
            with(&json!({"envFrom": [{"configMapRef": {"name": "c"}}]})),
            "spec.containers[0].envFrom",
        ),
        (
            with(&json!({"volumeMounts": [{"name": "x", "mountPath": "/x"}]})),
            "spec.containers[0].volumeMounts[0].name",
        ),
        (
            with(&json!({"volumeDevices": [{"name": "x", "devicePath": "/x"}]})),
            "spec.containers[0].volumeDevices",
        ),
        (
            with(&json!({"terminationMessagePath": "x"})),
            "spec.containers[0].terminationMessagePath",
        ),
        (with(&json!({"livenessProbe": {}})), "spec.containers[0].livenessProbe"),
        (
            with(&json!({"livenessProbe": {"grpc": {"port": 65536}}})),
            "spec.containers[0].livenessProbe.grpc.port",
        ),
        (
            with(&json!({"livenessProbe": {"httpGet": {"port": 1, "scheme": "GOPHER"}}})),
            "spec.containers[0].livenessProbe.httpGet.scheme",
        ),
        (
            with(&json!({"lifecycle": {"preStop": {"exec": {}}}})),
            "spec.containers[0].lifecycle.preStop.exec.command",
        ),
        (
            with(&json!({"lifecycle": {"postStart": {"tcpSocket": {"port": "x"}}}})),
            "spec.containers[0].lifecycle.postStart.tcpSocket.port",
        ),
        (
            with(&json!({"lifecycle": {"stopSignal": "SIGWHAT"}})),
            "spec.containers[0].lifecycle.stopSignal",
        ),
        (
            with(&json!({"securityContext": {"runAsUser": -1}})),
            "spec.containers[0].securityContext.runAsUser",
        ),
        (
            with(&json!({"securityContext": {"procMount": "Odd"}})),
            "spec.containers[0].securityContext.procMount",
        ),
        (
            with(
                &json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}}),
            ),
            "spec.containers[0].securityContext.allowPrivilegeEscalation",
        ),
    ] {
        assert_eq!(fields(&spec), [field], "{spec}");
    }
}

#[test]
fn a_sub_path_of_ten_thousand_names_is_refused() {
    let fields_of = |names: usize| {
        let sub_path = vec!["a"; names].join("/");
        let mount = json!({"name": "data", "mountPath": "/d", "subPath": sub_path});
        let mut spec = with(&json!({"volumeMounts": [mount]}));
        spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        fields(&spec)
    };
    assert!(fields_of(256).is_empty());
    assert_eq!(fields_of(10_000), ["spec.containers[0].volumeMounts[0].subPath"]);
}

#[test]
fn fields_of_a_manifest_as_files_are_refused_with_what_to_write_instead() {
    let items = json!([{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let own = json!({"downwardAPI": {"items": items}});
    for (volume, field, is_known) in [
        (own.clone(), "downwardAPI", true),
        (json!({"projected": {"sources": [own, own]}}), "projected", true),
        (json!({"projected": {"sources": [own, {"secret": {"name": "s"}}]}}), "projected", false),
        (json!({"projected": {"sources": []}}), "projected", false),
        (json!({"configMap": {"name": "c"}}), "configMap", false),
    ] {
        let mut spec = with(&json!({}));
        spec["volumes"] = json!([volume]);
        spec["volumes"][0]["name"] = json!("v");
        let refused = check_supported(&pod(&spec));
        assert_eq!(refused[0].field, format!("spec.volumes[0].{field}"));
        assert_eq!(refused[0].why.contains("write `env` with `valueFrom`"), is_known, "{volume}");
    }
}

#[test]
fn a_name_that_would_leave_its_directory_is_refused() {
    let meta = json!({"name": "web", "namespace": "n", "uid": "../u"});
    let object = json!({"metadata": meta, "spec": {"containers": [{"name": "..", "image": "a"}]}});
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    let found: Vec<String> = check_supported(&pod).into_iter().map(|one| one.field).collect();
    assert_eq!(found, ["metadata.uid", "spec.containers[0].name"]);
}
