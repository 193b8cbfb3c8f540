//! `volumeMounts[]` of a container.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened};

use super::rules;
use super::volume::Volumes;

pub(super) fn all(check: &mut FieldCheck<'_>, container: &api::Container, volumes: &Volumes<'_>) {
    let mut paths = BTreeSet::new();
    let security = container.security_context.as_ref();
    let privileged = security.is_some_and(|security| security.privileged == Some(true));
    check.each("volumeMounts", container.volume_mounts.iter().flatten(), |check, mount| {
        if mount.name.is_empty() {
            check.fail_at("name", "is missing: write the name of a volume in spec.volumes");
        } else if !volumes.contains_key(mount.name.as_str()) {
            let what = format!("`{}` is not a volume in spec.volumes", Shortened(&mount.name));
            check.fail_at("name", what);
        }
        if mount.mount_path.is_empty() {
            check.fail_at("mountPath", "is missing: write where in the container it goes");
        } else if !paths.insert(mount.mount_path.as_str()) {
            let what =
                format!("`{}` is mounted twice: write another", Shortened(&mount.mount_path));
            check.fail_at("mountPath", what);
        }
        sub_paths(check, mount);
        propagation(check, mount, privileged);
    });
    // Block devices belong to claims, which only an API server has.
    if container.volume_devices.as_ref().is_some_and(|list| !list.is_empty()) {
        check.fail_at("volumeDevices", rules::NEEDS_API_SERVER);
    }
}

fn sub_paths(check: &mut FieldCheck<'_>, mount: &api::VolumeMount) {
    let paths = [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)];
    let paths = paths.map(|(key, path)| (key, path.as_deref().unwrap_or_default()));
    for (key, path) in paths {
        rules::path_below(check, key, path, "the volume");
    }
    if paths.iter().all(|(_, path)| !path.is_empty()) {
        check.fail_at("subPathExpr", "cannot be together with subPath: remove one of the two");
    }
}

fn propagation(check: &mut FieldCheck<'_>, mount: &api::VolumeMount, privileged: bool) {
    let known = ["None", "HostToContainer", "Bidirectional"];
    let propagation = mount.mount_propagation.as_ref();
    rules::word_if_any(check, "mountPropagation", propagation, &known);
    if propagation.is_some_and(|word| word == "Bidirectional") && !privileged {
        let what = "`Bidirectional` needs `securityContext.privileged: true`";
        check.fail_at("mountPropagation", what);
    }
    let known = ["Disabled", "IfPossible", "Enabled"];
    let recursive = mount.recursive_read_only.as_ref();
    rules::word_if_any(check, "recursiveReadOnly", recursive, &known);
    if recursive.is_none_or(|word| word == "Disabled") {
        return;
    }
    if mount.read_only != Some(true) {
        check.fail_at("recursiveReadOnly", "needs `readOnly: true`");
    }
    if propagation.is_some_and(|word| word != "None") {
        let what = "cannot be together with mountPropagation: remove one of the two";
        check.fail_at("recursiveReadOnly", what);
    }
}
