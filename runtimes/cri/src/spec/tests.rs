use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> Pod {
    let meta = json!({"name": "web", "namespace": "shop", "uid": "u-1",
        "labels": {"app": "web", "io.kubernetes.pod.name": "forged"}, "annotations": {"note": "x"}});
    let object = json!({"metadata": meta, "spec": spec});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn config() -> CriConfig {
    let mut config = CriConfig::below(std::path::Path::new("/"));
    config.node.addresses = vec![std::net::Ipv4Addr::new(192, 0, 2, 7).into()];
    config
}

fn image(uid: Option<i64>, username: &str) -> api::Image {
    api::Image {
        id: "sha256:0".to_owned(),
        uid: uid.map(|value| api::Int64Value { value }),
        username: username.to_owned(),
        ..api::Image::default()
    }
}

fn made(spec: &Value, image: &api::Image) -> api::ContainerConfig {
    let (config, pod) = (config(), pod(spec));
    let found = winddown_engine::container_plan::find(&pod, "main").unwrap();
    let target = found.target.map(|name| format!("id of {name}"));
    container(&ContainerStart {
        config: &config,
        pod: &pod,
        ips: &["10.0.0.9".to_owned()],
        container: &found.container,
        field: &found.field,
        kind: found.kind,
        place: found.place,
        target: target.as_deref(),
        attempt: 2,
        backoff: Duration::from_secs(20),
        image,
        image_signal: None,
        kernel: &KernelLimits::default(),
        masked: &["/proc/kcore".to_owned()],
    })
    .unwrap()
}

#[test]
fn a_containers_words_and_environment_are_its_specs() {
    let made = made(
        &json!({"containers": [{
            "name": "main", "image": "app:1", "command": ["run", "$(WHERE)"], "args": ["$(IP)", "$$x"],
            "workingDir": "/srv",
            "env": [{"name": "WHERE", "value": "here"},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        }]}),
        &image(Some(0), ""),
    );
    assert_eq!(
        (made.command, made.args),
        (vec!["run".to_owned(), "here".to_owned()], vec!["10.0.0.9".to_owned(), "$x".to_owned()])
    );
    let env: Vec<(String, String)> =
        made.envs.into_iter().map(|e| (e.key, String::from_utf8(e.value).unwrap())).collect();
    let expected = [("WHERE", "here"), ("IP", "10.0.0.9"), ("NODE", "192.0.2.7")];
    assert_eq!(env, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert_eq!((made.working_dir.as_str(), made.log_path.as_str()), ("/srv", "main/2.log"));
    assert_eq!(made.metadata.unwrap().attempt, 2);
    let spec = made.image.unwrap();
    assert_eq!((spec.image.as_str(), spec.user_specified_image.as_str()), ("sha256:0", "app:1"));
}

#[test]
fn a_pod_whose_address_is_not_known_does_not_take_the_nodes_for_its_own() {
    let one = json!({"name": "main", "env": [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}}},
    ]});
    let of = |on_host: bool, ips: &[String]| {
        let pod = pod(&json!({"hostNetwork": on_host, "containers": [one]}));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        variables(&config(), &pod, ips, container, "spec.containers[0]")
    };
    let error = of(false, &[]).unwrap_err();
    assert!(matches!(error, RuntimeError::NotYet { .. }), "{error}");
    let field =
        "spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: status.podIPs is not known";
    assert!(error.to_string().contains(field), "{error}");
    assert_eq!(of(true, &[]).unwrap()[1].1, "192.0.2.7");
    assert_eq!(of(false, &["10.0.0.9".into(), "fd00::9".into()]).unwrap()[1].1, "10.0.0.9,fd00::9");
}

#[test]
fn a_containers_rights_are_its_own_before_its_pods_before_its_images() {
    let of = |container: &Value, pod: &Value, image: &api::Image| {
        let mut one = json!({"name": "main", "image": "app:1"});
        one["securityContext"] = container.clone();
        let made = made(&json!({"containers": [one], "securityContext": pod}), image);
        made.linux.unwrap().security_context.unwrap()
    };
    let user = |s: &api::LinuxContainerSecurityContext| s.run_as_user.as_ref().map(|u| u.value);
    let root = image(Some(0), "");
    assert_eq!(user(&of(&json!({"runAsUser": 7}), &json!({"runAsUser": 8}), &root)), Some(7));
    assert_eq!(user(&of(&json!({}), &json!({"runAsUser": 8}), &root)), Some(8));
    assert_eq!(user(&of(&json!({}), &json!({}), &image(Some(5), ""))), Some(5));
    let named = of(&json!({}), &json!({}), &image(None, "app"));
    assert_eq!((user(&named), named.run_as_username.as_str()), (None, "app"));
    let in_a_group = of(&json!({"runAsGroup": 9}), &json!({}), &image(None, ""));
    assert_eq!(user(&in_a_group), Some(0), "a group without a user is refused by containerd");
    let plain = of(&json!({}), &json!({"fsGroup": 3, "supplementalGroups": [4]}), &root);
    assert_eq!(plain.supplemental_groups, [4, 3]);
    assert!(!plain.no_new_privs && plain.masked_paths == ["/proc/kcore"]);
    let unconfined = api::security_profile::ProfileType::Unconfined;
    assert_eq!(plain.seccomp.unwrap().profile_type(), unconfined, "whatever the runtime's is");
    let seccomp = json!({"type": "RuntimeDefault"});
    let tight = of(
        &json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}}),
        &json!({"seccompProfile": seccomp}),
        &root,
    );
    assert!(tight.no_new_privs && tight.readonly_rootfs);
    assert_eq!(tight.capabilities.unwrap().drop_capabilities, ["ALL"]);
    let kind = tight.seccomp.unwrap().profile_type();
    assert_eq!(kind, api::security_profile::ProfileType::RuntimeDefault);
    let privileged = of(&json!({"privileged": true}), &json!({"seccompProfile": seccomp}), &root);
    assert!(privileged.privileged && privileged.masked_paths.is_empty());
    assert_eq!(privileged.seccomp, None);
}

#[test]
fn run_as_non_root_is_checked_against_the_images_user() {
    let check = |security: &Value, image: &api::Image| {
        let one = json!({"name": "main", "image": "a:1", "securityContext": security});
        let pod = pod(&json!({"containers": [one]}));
        user_of_image(&pod, &pod.spec.as_ref().unwrap().containers[0], image)
    };
    let wanted = json!({"runAsNonRoot": true});
    assert!(check(&json!({}), &image(Some(0), "")).is_ok());
    assert!(check(&wanted, &image(Some(1000), "")).is_ok());
    assert!(check(&json!({"runAsNonRoot": true, "runAsUser": 9}), &image(Some(0), "")).is_ok());
    assert!(check(&wanted, &image(Some(0), "")).unwrap_err().contains("runs as root"));
    assert!(check(&wanted, &image(None, "app")).unwrap_err().contains("is a name, app"));
    let zero = json!({"runAsNonRoot": true, "runAsUser": 0});
    assert!(check(&zero, &image(Some(5), "")).unwrap_err().contains("runAsUser is 0"));
}

#[test]
fn a_sandbox_carries_the_pods_identity_whatever_its_labels_say() {
    let ports = json!([{"containerPort": 53, "hostPort": 5353, "protocol": "UDP"}]);
    let spec = json!({"containers": [{"name": "main", "image": "a:1", "ports": ports}],
        "hostPID": true, "securityContext": {"sysctls": [{"name": "a.b", "value": "1"}]}});
    let pod = pod(&spec);
    let made = sandbox(&config(), &pod, &HostFacts::default(), "/parent".to_owned(), 3);
    assert_eq!(made.labels["io.kubernetes.pod.name"], "web");
    assert_eq!(made.labels["app"], "web");
    assert_eq!(made.labels[labels::MANAGED], "true");
    assert_eq!(made.annotations["note"], "x");
    assert_eq!(made.hostname, "web");
    assert_eq!(made.log_directory, "/logs/shop_web_u-1");
    assert_eq!(made.port_mappings[0].protocol(), api::Protocol::Udp);
    let linux = made.linux.unwrap();
    assert_eq!((linux.cgroup_parent.as_str(), &*linux.sysctls["a.b"]), ("/parent", "1"));
    let namespaces = linux.security_context.unwrap().namespace_options.unwrap();
    assert_eq!(namespaces.network(), api::NamespaceMode::Pod);
    assert_eq!(namespaces.pid(), api::NamespaceMode::Node);
}

#[test]
fn an_overriding_host_name_is_taken_whole_and_has_no_domain() {
    let name = format!("{}.example", "n".repeat(56));
    let pod = pod(
        &json!({"containers": [], "hostname": "web", "subdomain": "db", "hostnameOverride": name}),
    );
    let made = sandbox(&config(), &pod, &HostFacts::default(), String::new(), 0);
    assert_eq!(made.hostname, name);
    let hosts = crate::volumes::hosts(&pod, &["10.0.0.1".to_owned()], "cluster.local", None);
    let hosts = String::from_utf8(hosts).unwrap();
    assert!(hosts.ends_with(&format!("10.0.0.1\t{name}\n")), "{hosts}");
}

#[test]
fn a_pod_on_the_nodes_network_has_the_nodes_name_and_ports() {
    let ports = json!([{"containerPort": 80, "hostPort": 80}]);
    let one = json!({"name": "main", "image": "a:1", "ports": ports});
    let pod = pod(&json!({"containers": [one], "hostNetwork": true}));
    let made = sandbox(&config(), &pod, &HostFacts::default(), String::new(), 0);
    assert_eq!((made.hostname.as_str(), made.port_mappings.len()), ("", 0));
    let namespaces = made.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
    assert_eq!(namespaces.network(), api::NamespaceMode::Node);
    assert_eq!(namespaces.pid(), api::NamespaceMode::Container);
}

#[test]
fn signals_are_known_by_their_names() {
    assert_eq!(signal("SIGUSR1"), Some(api::Signal::Sigusr1));
    assert_eq!(signal("SIGTERM"), Some(api::Signal::Sigterm));
    assert_eq!(signal("TERM"), None);
    assert_eq!(signal("SIGNOPE"), None);
    // The numbers are those of the interface. systemd in a container ends with the third.
    for (name, number) in [
        ("SIGRTMIN", 35),
        ("SIGRTMIN+1", 36),
        ("SIGRTMIN+3", 38),
        ("SIGRTMIN+15", 50),
        ("SIGRTMAX-14", 51),
        ("SIGRTMAX-1", 64),
        ("SIGRTMAX", 65),
        ("SIGCLD", 5),
        ("SIGIOT", 12),
        ("SIGPOLL", 15),
    ] {
        assert_eq!(signal(name).map(i32::from), Some(number), "{name}");
    }
    assert_eq!(signal("SIGRTMIN+16"), None);
}

#[test]
fn a_container_has_the_terminal_and_the_signal_that_it_asks_for() {
    let of = |one: Value| made(&json!({"containers": [one]}), &image(Some(0), ""));
    let plain = of(json!({"name": "main", "image": "app:1"}));
    assert!(!plain.stdin && !plain.stdin_once && !plain.tty);
    assert_eq!(plain.stop_signal(), api::Signal::RuntimeDefault);
    let asked = of(json!({"name": "main", "image": "app:1", "stdin": true, "stdinOnce": true,
        "tty": true, "lifecycle": {"stopSignal": "SIGUSR1"}}));
    assert!(asked.stdin && asked.stdin_once && asked.tty);
    assert_eq!(asked.stop_signal(), api::Signal::Sigusr1);
}

#[test]
fn profiles_and_labels_are_passed_on() {
    let of = |own: Value, pod: Value| {
        let one = json!({"name": "main", "image": "app:1", "securityContext": own});
        let spec = json!({"containers": [one], "securityContext": pod});
        made(&spec, &image(Some(0), "")).linux.unwrap().security_context.unwrap()
    };
    let named = |file: &str| json!({"type": "Localhost", "localhostProfile": file});
    let label = json!({"user": "u", "role": "r", "type": "t", "level": "s0:c1"});
    let security = json!({"appArmorProfile": named("tight"), "seccompProfile": named("a/b.json"),
        "seLinuxOptions": label});
    let mut own = security.clone();
    own["procMount"] = json!("Unmasked");
    own["capabilities"] = json!({"add": ["NET_ADMIN"]});
    for made in [of(own, json!({})), of(json!({}), security)] {
        let (seccomp, app_armor) = (made.seccomp.unwrap(), made.apparmor.unwrap());
        assert!(seccomp.localhost_ref.ends_with("seccomp/a/b.json"), "{}", seccomp.localhost_ref);
        assert_eq!(app_armor.profile_type(), api::security_profile::ProfileType::Localhost);
        assert_eq!(app_armor.localhost_ref, "tight");
        let label = made.selinux_options.unwrap();
        assert_eq!([label.user, label.role, label.r#type, label.level], ["u", "r", "t", "s0:c1"]);
        let added = made.capabilities.map(|all| all.add_capabilities).unwrap_or_default();
        assert_eq!(made.masked_paths.is_empty(), !added.is_empty(), "both are the container's own");
        assert!(added.is_empty() || added == ["NET_ADMIN"]);
    }
}

#[test]
fn namespaces_are_shared_as_the_pod_says() {
    use api::NamespaceMode::{Container, Node, Pod as Shared};
    for (field, pid, ipc) in [
        ("hostNetwork", Container, Shared),
        ("hostIPC", Container, Node),
        ("hostPID", Node, Shared),
        ("shareProcessNamespace", Shared, Shared),
    ] {
        let pod = pod(&json!({"containers": [{"name": "main", "image": "a:1"}], field: true}));
        let namespaces = sandbox_security(&pod).namespace_options.unwrap();
        assert_eq!((namespaces.pid(), namespaces.ipc()), (pid, ipc), "{field}");
    }
}

#[test]
fn an_ephemeral_container_sees_its_targets_processes_unless_it_sees_more_anyway() {
    use api::NamespaceMode::{Pod as Shared, Target};
    for (shares, pid, target) in [(false, Target, "id of web"), (true, Shared, "")] {
        let spec = json!({"containers": [{"name": "web", "image": "a:1"}], "shareProcessNamespace": shares,
            "ephemeralContainers": [{"name": "main", "image": "a:1", "targetContainerName": "web"}]});
        let made = made(&spec, &image(Some(0), "")).linux.unwrap().security_context.unwrap();
        let namespaces = made.namespace_options.unwrap();
        assert_eq!((namespaces.pid(), &*namespaces.target_id), (pid, target));
    }
}

/// Two init containers may have the port of a container: it would lead to what has exited.
#[test]
fn ports_of_init_containers_are_mapped_only_if_they_run_on() {
    let one = |name: &str, port: i32| json!({"name": name, "image": "a:1", "ports": [{"containerPort": port, "hostPort": 80}]});
    let mut sidecar = one("proxy", 8082);
    sidecar["restartPolicy"] = json!("Always");
    let spec =
        json!({"initContainers": [one("acme", 8081), sidecar], "containers": [one("web", 8080)]});
    let made = sandbox(&config(), &pod(&spec), &HostFacts::default(), String::new(), 0);
    let mut ports: Vec<i32> = made.port_mappings.iter().map(|port| port.container_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [8080, 8082]);
}

#[test]
fn ports_are_mapped_as_they_are_written() {
    let ports = json!([{"containerPort": 53, "hostPort": 5353, "hostIP": "192.0.2.1", "protocol": "UDP"},
        {"containerPort": 80}]);
    let pod = pod(&json!({"containers": [{"name": "main", "image": "a:1", "ports": ports}]}));
    let made = sandbox(&config(), &pod, &HostFacts::default(), String::new(), 0).port_mappings;
    let seen: Vec<_> = made
        .iter()
        .map(|p| (p.protocol(), p.container_port, p.host_port, p.host_ip.as_str()))
        .collect();
    let expected = [(api::Protocol::Udp, 53, 5353, "192.0.2.1"), (api::Protocol::Tcp, 80, 0, "")];
    assert_eq!(seen, expected);
}
