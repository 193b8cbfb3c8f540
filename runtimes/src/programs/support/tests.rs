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
    let main = |field: &str| format!("spec.containers[0].{field}");
    let exec = json!({"exec": {"command": ["true"]}});
    let table = [
        (json!({"hostNetwork": false}), "spec.hostNetwork".to_owned()),
        (json!({"hostNetwork": null}), "spec.hostNetwork".to_owned()),
        (json!({"dnsPolicy": "None"}), "spec.dnsPolicy".to_owned()),
        (json!({"dnsPolicy": "ClusterFirstWithHostNet"}), "spec.dnsPolicy".to_owned()),
        (json!({"dnsConfig": {"nameservers": ["1.1.1.1"]}}), "spec.dnsConfig".to_owned()),
        (json!({"hostAliases": [{"ip": "1.1.1.1"}]}), "spec.hostAliases".to_owned()),
        (json!({"hostname": "h"}), "spec.hostname".to_owned()),
        (json!({"subdomain": "s"}), "spec.subdomain".to_owned()),
        (json!({"setHostnameAsFQDN": true}), "spec.setHostnameAsFQDN".to_owned()),
        (json!({"volumes": [{"name": "a", "emptyDir": {}}]}), "spec.volumes[0]".to_owned()),
        (json!({"resourceClaims": [{"name": "c"}]}), "spec.resourceClaims".to_owned()),
        (json!({"resources": {"limits": {"cpu": "1"}}}), "spec.resources.limits.cpu".to_owned()),
        (json!({"hostUsers": false}), "spec.hostUsers".to_owned()),
        (json!({"runtimeClassName": "kata"}), "spec.runtimeClassName".to_owned()),
        (json!({"os": {"name": "windows"}}), "spec.os.name".to_owned()),
        (json!({"securityContext": {"fsGroup": 1}}), "spec.securityContext.fsGroup".to_owned()),
        (
            json!({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}),
            "spec.securityContext.sysctls".to_owned(),
        ),
        (
            json!({"securityContext": {"runAsUser": -1}}),
            "spec.securityContext.runAsUser".to_owned(),
        ),
        (
            json!({"securityContext": {"supplementalGroups": [1, -1]}}),
            "spec.securityContext.supplementalGroups[1]".to_owned(),
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            "spec.securityContext.seccompProfile".to_owned(),
        ),
        (json!({"securityContext": {"runAsNonRoot": true}}), main("securityContext.runAsNonRoot")),
        (json!({"main": {"command": []}}), main("command")),
        (json!({"main": {"name": "../up"}}), main("name")),
        (json!({"main": {"stdin": true}}), main("stdin")),
        (json!({"main": {"tty": true}}), main("tty")),
        (
            json!({"main": {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}}),
            main("volumeMounts"),
        ),
        (
            json!({"main": {"volumeDevices": [{"name": "a", "devicePath": "/a"}]}}),
            main("volumeDevices"),
        ),
        (json!({"main": {"envFrom": [{"prefix": "a"}]}}), main("envFrom")),
        (
            json!({"main": {"env": [{"name": "A", "valueFrom":
            {"secretKeyRef": {"name": "s", "key": "k"}}}]}}),
            main("env[0].valueFrom.secretKeyRef"),
        ),
        (json!({"main": {"resources": {"claims": [{"name": "c"}]}}}), main("resources.claims")),
        (json!({"main": {"terminationMessagePath": "/tmp/m"}}), main("terminationMessagePath")),
        (json!({"main": {"restartPolicy": "Always"}}), main("restartPolicy")),
        (json!({"main": {"lifecycle": {"preStop": {}}}}), main("lifecycle.preStop")),
        (
            json!({"main": {"lifecycle": {"preStop": {"exec": {"command": []}}}}}),
            main("lifecycle.preStop.exec.command"),
        ),
        (
            json!({"main": {"lifecycle": {"postStart": {"httpGet": {"port": 1, "scheme": "GOPHER"}}}}}),
            main("lifecycle.postStart.httpGet.scheme"),
        ),
        (json!({"main": {"lifecycle": {"stopSignal": "SIGNOPE"}}}), main("lifecycle.stopSignal")),
        (json!({"main": {"livenessProbe": {"grpc": {"port": 1}}}}), main("livenessProbe.grpc")),
        (json!({"main": {"readinessProbe": {"periodSeconds": 1}}}), main("readinessProbe")),
        (
            json!({"main": {"startupProbe": {"httpGet": {"port": "nope"}}}}),
            main("startupProbe.httpGet.port"),
        ),
        (
            json!({"main": {"livenessProbe": {"tcpSocket": {"port": 0}}}}),
            main("livenessProbe.tcpSocket.port"),
        ),
        (
            json!({"main": {"readinessProbe": {"exec": {"command": ["true"]},
            "terminationGracePeriodSeconds": 3}}}),
            main("readinessProbe.terminationGracePeriodSeconds"),
        ),
        (
            json!({"main": {"securityContext": {"readOnlyRootFilesystem": true}}}),
            main("securityContext.readOnlyRootFilesystem"),
        ),
        (
            json!({"main": {"securityContext": {"capabilities": {"drop": ["ALL"]}}}}),
            main("securityContext.capabilities"),
        ),
        (
            json!({"main": {"securityContext": {"procMount": "Unmasked"}}}),
            main("securityContext.procMount"),
        ),
        (
            json!({"main": {"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}}),
            main("securityContext.runAsNonRoot"),
        ),
        (
            json!({"main": {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}}),
            main("securityContext.appArmorProfile"),
        ),
        (
            json!({"main": {"securityContext": {"seLinuxOptions": {"level": "s0"}}}}),
            main("securityContext.seLinuxOptions"),
        ),
        (
            json!({"main": {"securityContext": {"windowsOptions": {}}}}),
            main("securityContext.windowsOptions"),
        ),
        (json!({"initContainers": [{"name": "i"}]}), "spec.initContainers[0].command".to_owned()),
        (
            json!({"initContainers": [{"name": "i", "command": ["x"], "restartPolicy": "OnFailure"}]}),
            "spec.initContainers[0].restartPolicy".to_owned(),
        ),
    ];
    for (change, field) in &table {
        assert_eq!(fields(change), [field.as_str()], "{change}");
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

#[test]
fn a_uid_that_would_leave_the_state_directory_is_refused() {
    let mut object = pod(&json!({})).object().clone();
    object.metadata.uid = Some("../../etc".to_owned());
    let found = check_supported(&Pod::new(object).unwrap());
    assert_eq!(found[0].field, "metadata.uid");
}
