use std::path::Path;

use winddown_shared::Pod;

use super::manifest;
use crate::read_manifest;

const PATH: &str = "/etc/winddown/pods/web.yaml";

fn read(text: &str) -> Pod {
    read_manifest(Path::new(PATH), text.as_bytes(), "node1").unwrap()
}

fn with_spec(extra: &str) -> Pod {
    read(&manifest("web", "ls").replace("spec:\n", &format!("spec:\n  {extra}\n")))
}

#[test]
fn a_pod_gets_what_the_kubelet_and_the_api_server_would_give_it() {
    let pod = read(include_str!("../../tests/data/good.yaml"));
    let got = serde_json::to_value(pod.object()).unwrap();
    let wanted = include_str!("../../tests/data/good.json");
    let wanted: serde_json::Value = serde_json::from_str(wanted).unwrap();
    assert_eq!(got, wanted, "{got:#}");
}

#[test]
fn a_short_manifest_is_filled_in() {
    let pod = read(&manifest("web", "ls"));
    assert_eq!(pod.pod_ref().to_string(), "default/web-node1");
    assert_eq!(&**pod.full_name(), "web-node1_default");
    let annotations = pod.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.hash"], pod.uid().as_str());
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node1"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.priority, None);
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
}

#[test]
fn a_node_whose_name_ends_no_pods_name_is_blamed_and_not_the_pod() {
    for node in ["(none)", "my_host", "a..b"] {
        let manifest = manifest("web", "ls");
        let error = read_manifest(Path::new(PATH), manifest.as_bytes(), node).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(&format!("the node's name `{node}`")), "{said}");
        assert!(said.contains("nodeName") && !said.contains("`web`"), "{said}");
    }
}

#[test]
fn the_uid_follows_content_node_and_path_and_nothing_else() {
    let uid = |path: &str, text: &str, node: &str| {
        read_manifest(Path::new(path), text.as_bytes(), node).unwrap().uid().clone()
    };
    let text = manifest("web", "ls");
    let first = uid(PATH, &text, "node1");
    assert_eq!(first.as_str().len(), 32);
    assert_eq!(first, uid(PATH, &text, "node1"));
    assert_eq!(first, uid(PATH, &format!("# a comment\n{text}\n"), "node1"));
    assert_ne!(first, uid(PATH, &manifest("web", "ps"), "node1"));
    assert_ne!(first, uid(PATH, &text, "node2"));
    assert_ne!(first, uid("/etc/winddown/pods/other.yaml", &text, "node1"));
}

#[test]
fn the_uid_does_not_change_between_versions() {
    // A new UID ends a running pod: an update of the agent must not do that.
    assert_eq!(read(&manifest("web", "ls")).uid().as_str(), "8ab6c3d4bce4beb7c9cd330ed169dc8b");
}

#[test]
fn a_uid_in_the_manifest_is_taken() {
    assert_eq!(read(&with_uid("ls")).uid().as_str(), "abc-1");
}

fn with_uid(command: &str) -> String {
    manifest("web", command).replace("name: web", "name: web\n  uid: abc-1")
}

#[test]
fn a_manifest_with_a_uid_marks_its_spec_and_the_mark_does_not_change_between_versions() {
    let marked = read(&with_uid("ls"));
    assert_eq!(marked.spec_mark(), Some("23d71e3f546cb0afbddc7789af7a0348"));
    let commented = read(&format!("# a comment\n{}", with_uid("ls")));
    assert_eq!(commented.spec_mark(), marked.spec_mark());
    assert_ne!(read(&with_uid("ps")).spec_mark(), marked.spec_mark());
    // Without a UID, the UID changes.
    assert_eq!(read(&manifest("web", "ls")).spec_mark(), None);
}

#[test]
fn the_apparmor_profile_of_an_annotation_is_that_of_the_container() {
    let annotated = |text: String, said: &str| {
        let key = "container.apparmor.security.beta.kubernetes.io/main";
        read(
            &text.replace("metadata:\n", &format!("metadata:\n  annotations: {{{key}: {said}}}\n")),
        )
    };
    for (said, kind, name) in [
        ("localhost/web-tight", "Localhost", Some("web-tight")),
        ("runtime/default", "RuntimeDefault", None),
        ("unconfined", "Unconfined", None),
    ] {
        let pod = annotated(manifest("web", "ls"), said);
        let security = pod.spec.as_ref().unwrap().containers[0].security_context.as_ref();
        let profile = security.and_then(|s| s.app_armor_profile.as_ref()).unwrap();
        assert_eq!((&*profile.type_, profile.localhost_profile.as_deref()), (kind, name), "{said}");
    }
    let pod = annotated(manifest("web", "ls"), "''");
    assert_eq!(pod.spec.as_ref().unwrap().containers[0].security_context, None);
    // Its UID does not show another profile.
    let marked = |said| annotated(with_uid("ls"), said);
    assert_ne!(marked("localhost/a").spec_mark(), marked("localhost/b").spec_mark());
}

#[test]
fn json_and_yaml_give_the_same_pod() {
    let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "command": ["ls"]}]}}"#;
    assert_eq!(read(json).object(), read(&manifest("web", "ls")).object());
}

#[test]
fn the_two_classes_every_cluster_has_give_their_priority() {
    let priority = |extra: &str| with_spec(extra).spec.as_ref().unwrap().priority;
    assert_eq!(priority("priorityClassName: system-node-critical"), Some(2_000_001_000));
    assert_eq!(priority("priorityClassName: system-cluster-critical"), Some(2_000_000_000));
    assert_eq!(priority("priorityClassName: gold\n  priority: 7"), Some(7));
}

#[test]
fn a_manifest_from_kubectl_dry_run_is_accepted() {
    let text = manifest("web", "ls")
        .replace("metadata:\n", "metadata:\n  creationTimestamp: null\n")
        .replace("      command", "      resources: {}\n      command");
    read(&format!("{text}status: {{}}\n"));
}

#[test]
fn a_toleration_that_is_there_is_not_added_again() {
    let pod = with_spec("tolerations: [{operator: Exists, effect: NoExecute}]");
    assert_eq!(pod.spec.as_ref().unwrap().tolerations.as_ref().unwrap().len(), 1);
}

#[test]
fn what_a_wrong_manifest_holds_of_secrets_is_not_quoted() {
    let with_env = |env: &str| {
        manifest("web", "ls")
            .replace("      command", &format!("      env: [{env}]\n      command"))
    };
    let texts = [
        with_env("{name: PASSWORD, value: 271828182845}"),
        with_env("{name: PASSWORD, value: [271828182845]}"),
        with_env("{name: PASSWORD, value: {a: 271828182845}}"),
        with_env("{name: PASSWORD, value: !271828182845 x}"),
        with_env("{name: PASSWORD, value: !!271828182845 x}"),
        with_env("{name: PASSWORD, value: !<271828182845> x}"),
        with_env("{name: PASSWORD, 271828182845: x, 271828182845: y}"),
        with_env("{name: PASSWORD=271828182845}"),
        with_env("PASSWORD=271828182845"),
        manifest("web", "ls").replace("      command", "      env: {\"A=271828182845\": {}}\n      command"),
        manifest("web", "271828182845"),
        manifest("web", "[271828182845]"),
        manifest("web", "{a: 271828182845}"),
        manifest("web", "!271828182845"),
        manifest("web", "ls").replace("      command", "      args: mysql -p271828182845\n      command"),
        manifest("web", "ls").replace("      command", "      args: [-p, 271828182845]\n      command"),
        manifest("web", "ls").replace("      command", "      args: [&271828182845]\n      command: *b"),
        manifest("web", "ls").replace("spec:", "  annotations: {a: 271828182845}\nspec:"),
        manifest("web", "ls").replace("spec:", "  annotations: {a: [271828182845]}\nspec:"),
        manifest("web", "ls").replace("spec:", "  annotations: {271828182845: a, 271828182845: b}\nspec:"),
        manifest("web", "ls").replace(
            "      command",
            "      livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: \"A: 271828182845\", value: b}]}}\n\
             \x20     command",
        ),
        manifest("web", "ls").replace(
            "      command",
            "      livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: \"271828182845\\n\"}]}}\n\
             \x20     command",
        ),
        manifest("web", "ls").replace(
            "      command",
            "      livenessProbe: {httpGet: {port: 80, path: \"/?token=271828182845\\r\\n\"}}\n\
             \x20     command",
        ),
        manifest("web", "ls").replace(
            "      command",
            "      livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: A, value: 271828182845}]}}\n\
             \x20     command",
        ),
        // As if the file were a link to a file with secrets.
        "root:$y$j9T$271828182845:19000:0:99999:7:::\n".to_owned(),
        "271828182845\n".to_owned(),
    ];
    for text in texts {
        let error =
            read_manifest(Path::new(PATH), text.as_bytes(), "node1").unwrap_err().to_string();
        assert!(!error.contains("271828182845"), "{error}");
    }
    let text = with_env("{name: PASSWORD, value: 271828182845}");
    let error = read_manifest(Path::new(PATH), text.as_bytes(), "node1").unwrap_err().to_string();
    assert!(error.contains("env[0].value: needs a string, this is a number: write it in quotes"));
}
