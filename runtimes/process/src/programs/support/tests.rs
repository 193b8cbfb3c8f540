use serde_json::{Value, json};

use super::*;

/// A pod that is supported, with `change` merged into its spec or, under `main`, its container.
fn pod(change: &Value) -> Pod {
    let mut spec =
        json!({"hostNetwork": true, "containers": [{"name": "main", "command": ["true"]}]});
    for (key, value) in change.as_object().unwrap() {
        let target = if key == "main" { &mut spec["containers"][0] } else { &mut spec };
        let value = if key == "main" { value.clone() } else { json!({ key: value }) };
        target.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    }
    let meta = json!({"name": "p", "namespace": "n", "uid": "u"});
    Pod::new(serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()).unwrap()
}

fn fields(change: &Value) -> Vec<String> {
    check_supported(&pod(change)).into_iter().map(|u| u.field).collect()
}

#[test]
fn each_field_that_cannot_be_honoured_is_named() {
    let exec = json!({"exec": {"command": ["true"]}});
    let table = [
        (json!({"hostNetwork": false}), "hostNetwork"),
        (json!({"hostNetwork": null}), "hostNetwork"),
        (json!({"dnsPolicy": "None"}), "dnsPolicy"),
        (json!({"dnsPolicy": "ClusterFirstWithHostNet"}), "dnsPolicy"),
        (json!({"dnsConfig": {"nameservers": ["1.1.1.1"]}}), "dnsConfig"),
        (json!({"hostAliases": [{"ip": "1.1.1.1"}]}), "hostAliases"),
        (json!({"hostname": "h"}), "hostname"),
        (json!({"subdomain": "s"}), "subdomain"),
        (json!({"setHostnameAsFQDN": true}), "setHostnameAsFQDN"),
        (json!({"volumes": [{"name": "a", "emptyDir": {}}]}), "volumes[0]"),
        (json!({"resourceClaims": [{"name": "c"}]}), "resourceClaims"),
        (json!({"resources": {"limits": {"cpu": "1"}}}), "resources.limits.cpu"),
        (json!({"hostUsers": false}), "hostUsers"),
        (json!({"runtimeClassName": "kata"}), "runtimeClassName"),
        (json!({"os": {"name": "windows"}}), "os.name"),
        (json!({"securityContext": {"fsGroup": 1}}), "securityContext.fsGroup"),
        (
            json!({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}),
            "securityContext.sysctls",
        ),
        (json!({"securityContext": {"runAsUser": -1}}), "securityContext.runAsUser"),
        (
            json!({"securityContext": {"supplementalGroups": [1, -1]}}),
            "securityContext.supplementalGroups[1]",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            "securityContext.seccompProfile",
        ),
        (
            json!({"securityContext": {"runAsNonRoot": true}}),
            "containers[0].securityContext.runAsNonRoot",
        ),
        (json!({"main": {"command": []}}), "command"),
        // Of an image's entry point, not a program of the host.
        (json!({"main": {"command": [], "image": "tool:1", "args": ["reboot"]}}), "command"),
        (json!({"main": {"name": "../up"}}), "name"),
        (json!({"main": {"stdin": true}}), "stdin"),
        (json!({"main": {"tty": true}}), "tty"),
        (json!({"main": {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}}), "volumeMounts"),
        (json!({"main": {"volumeDevices": [{"name": "a", "devicePath": "/a"}]}}), "volumeDevices"),
        (json!({"main": {"envFrom": [{"prefix": "a"}]}}), "envFrom"),
        (
            json!({"main": {"env": [{"name": "A", "valueFrom":
            {"secretKeyRef": {"name": "s", "key": "k"}}}]}}),
            "env[0].valueFrom.secretKeyRef",
        ),
        (
            json!({"main": {"args": vec!["$(A)"; 7], "env": [{"name": "A", "value": "a".repeat(1 << 20)}]}}),
            "args[6]",
        ),
        (json!({"main": {"resources": {"claims": [{"name": "c"}]}}}), "resources.claims"),
        (json!({"main": {"terminationMessagePath": "/tmp/m"}}), "terminationMessagePath"),
        (json!({"main": {"restartPolicy": "Always"}}), "restartPolicy"),
        (json!({"main": {"lifecycle": {"preStop": {}}}}), "lifecycle.preStop"),
        (
            json!({"main": {"lifecycle": {"preStop": {"exec": {"command": []}}}}}),
            "lifecycle.preStop.exec.command",
        ),
        (
            json!({"main": {"lifecycle": {"postStart": {"httpGet": {"port": 1, "scheme": "GOPHER"}}}}}),
            "lifecycle.postStart.httpGet.scheme",
        ),
        (json!({"main": {"lifecycle": {"stopSignal": "SIGNOPE"}}}), "lifecycle.stopSignal"),
        (json!({"main": {"livenessProbe": {"grpc": {"port": 1}}}}), "livenessProbe.grpc"),
        (json!({"main": {"readinessProbe": {"periodSeconds": 1}}}), "readinessProbe"),
        (
            json!({"main": {"startupProbe": {"httpGet": {"port": "nope"}}}}),
            "startupProbe.httpGet.port",
        ),
        (
            json!({"main": {"livenessProbe": {"tcpSocket": {"port": 0}}}}),
            "livenessProbe.tcpSocket.port",
        ),
        (
            json!({"main": {"readinessProbe": {"exec": {"command": ["true"]},
            "terminationGracePeriodSeconds": 3}}}),
            "readinessProbe.terminationGracePeriodSeconds",
        ),
        (
            json!({"main": {"securityContext": {"readOnlyRootFilesystem": true}}}),
            "securityContext.readOnlyRootFilesystem",
        ),
        (
            json!({"main": {"securityContext": {"capabilities": {"drop": ["ALL"]}}}}),
            "securityContext.capabilities",
        ),
        (
            json!({"main": {"securityContext": {"procMount": "Unmasked"}}}),
            "securityContext.procMount",
        ),
        (
            json!({"main": {"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}}),
            "securityContext.runAsNonRoot",
        ),
        (
            json!({"main": {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}}),
            "securityContext.appArmorProfile",
        ),
        (
            json!({"main": {"securityContext": {"seLinuxOptions": {"level": "s0"}}}}),
            "securityContext.seLinuxOptions",
        ),
        (
            json!({"main": {"securityContext": {"windowsOptions": {}}}}),
            "securityContext.windowsOptions",
        ),
        (json!({"initContainers": [{"name": "i"}]}), "initContainers[0].command"),
        (
            json!({"initContainers": [{"name": "i", "command": ["x"], "restartPolicy": "OnFailure"}]}),
            "initContainers[0].restartPolicy",
        ),
    ];
    for (change, field) in &table {
        let of = if change.get("main").is_some() { "spec.containers[0]" } else { "spec" };
        assert_eq!(fields(change), [format!("{of}.{field}")], "{change}");
    }
    assert_eq!(fields(&json!({"main": {"readinessProbe": exec}})), Vec::<String>::new());
}

#[test]
fn what_can_be_honoured_is_not_refused() {
    let change = json!({
        "dnsPolicy": "ClusterFirst", "restartPolicy": "OnFailure", "priority": 5,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "tolerations": [{"operator": "Exists"}], "nodeName": "n", "shareProcessNamespace": true,
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": true, "supplementalGroups": [5]},
        "initContainers": [{"name": "side", "args": ["sleep"], "restartPolicy": "Always"}],
        "main": {
            "image": "any", "imagePullPolicy": "Always", "workingDir": "/",
            "terminationMessagePath": "/dev/termination-log",
            "ports": [{"name": "web", "containerPort": 80}],
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "resources": {"limits": {"cpu": "1"}},
            "securityContext": {"privileged": true, "seccompProfile": {"type": "Unconfined"}},
            "lifecycle": {"stopSignal": "SIGINT", "preStop": {"sleep": {"seconds": 1}},
                "postStart": {"httpGet": {"port": "web"}}},
            "livenessProbe": {"tcpSocket": {"port": 80}},
            "startupProbe": {"exec": {"command": ["true"]}},
        },
    });
    assert_eq!(check_supported(&pod(&change)), vec![]);
}

#[test]
fn everything_is_found_at_once_and_each_says_what_to_do() {
    let found = check_supported(&pod(&json!({"hostNetwork": false, "hostname": "h",
        "volumes": [{"name": "kube-api-access-x1"}], "main": {"command": null}})));
    let text: Vec<String> = found.iter().map(|u| format!("{}: {}", u.field, u.why)).collect();
    assert_eq!(
        text,
        [
            "spec.hostNetwork: processes of the host are on the host's network: write `hostNetwork: true`",
            "spec.hostname: the pod has the host's name: leave it out",
            "spec.volumes[0]: volumes are not mounted: write `automountServiceAccountToken: false`",
            "spec.containers[0].command: the image is not pulled, so its entry point is not known: write the program to run",
        ]
    );
}

/// Who wrote the annotation alone does not know the field.
#[test]
fn a_profile_that_an_annotation_names_is_refused_by_the_annotation() {
    let annotated = |container: &str, kind: &str| {
        let profile = json!({"securityContext": {"appArmorProfile": {"type": kind}}});
        let mut object = pod(&json!({ "main": profile })).object().clone();
        let key = format!("container.apparmor.security.beta.kubernetes.io/{container}");
        object.metadata.annotations = Some([(key, "as the field".to_owned())].into());
        let found = check_supported(&Pod::new(object).unwrap());
        found.into_iter().map(|one| format!("{}: {}", one.field, one.why)).collect::<Vec<_>>()
    };
    let own = "metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]: \
               no profile is applied: write `unconfined` or remove it";
    assert_eq!(annotated("main", "RuntimeDefault"), [own]);
    assert_eq!(annotated("main", "Unconfined"), [""; 0]);
    let field = "spec.containers[0].securityContext.appArmorProfile: \
                 no profile is applied: write `type: Unconfined` or leave it out";
    assert_eq!(annotated("other", "RuntimeDefault"), [field]);
}

#[test]
fn a_uid_that_would_leave_the_state_directory_is_refused() {
    let mut object = pod(&json!({})).object().clone();
    object.metadata.uid = Some("../../etc".to_owned());
    let found = check_supported(&Pod::new(object).unwrap());
    assert_eq!(found[0].field, "metadata.uid");
}
