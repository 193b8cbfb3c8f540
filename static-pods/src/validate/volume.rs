//! Volumes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;

use super::{LABEL_RULE, NEEDS_API_SERVER, one_of, resources};
use winddown_yaml::{Check, Shortened, names};

/// Reports problems of the pod's volumes; returns their names.
pub(super) fn all<'a>(check: &mut Check<'_>, spec: &'a api::PodSpec) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    check.each("volumes", spec.volumes.iter().flatten(), |check, volume| {
        let name = volume.name.as_str();
        if name.is_empty() {
            check.fail_at("name", "is missing: every volume needs a name");
        } else if !names::is_dns_label(name) {
            let what = format!("`{}` is no volume name: {LABEL_RULE}", Shortened(name));
            check.fail_at("name", what);
        } else if !names.insert(name) {
            check.fail_at("name", format!("`{name}` is the name of another volume already"));
        }
        source(check, volume);
    });
    names
}

fn source(check: &mut Check<'_>, volume: &api::Volume) {
    // The kinds that are set, i.e. all fields but the name: serializing knows all of them.
    let kinds = match serde_json::to_value(volume) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    };
    let kinds: Vec<&str> = kinds.keys().map(String::as_str).filter(|key| *key != "name").collect();
    if kinds.len() > 1 {
        check.fail(format!("is of several kinds, {}: write only one", kinds.join(" and ")));
    }
    let api = ["configMap", "secret", "persistentVolumeClaim", "ephemeral", "csi"];
    for kind in kinds.iter().filter(|kind| api.contains(kind)) {
        check.fail_at(kind, NEEDS_API_SERVER);
    }
    if let Some(host_path) = &volume.host_path {
        check.key("hostPath", |check| self::host_path(check, host_path));
    }
    if let Some(empty_dir) = &volume.empty_dir {
        check.key("emptyDir", |check| {
            if let Some(limit) = &empty_dir.size_limit {
                resources::quantity(check, "sizeLimit", &limit.0);
            }
        });
    }
    let projected =
        volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    check.key("projected", |check| {
        check.each("sources", projected, |check, source| {
            let api = [
                ("configMap", source.config_map.is_some()),
                ("secret", source.secret.is_some()),
                ("serviceAccountToken", source.service_account_token.is_some()),
                ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
            ];
            for (key, _) in api.iter().filter(|(_, set)| *set) {
                check.fail_at(key, NEEDS_API_SERVER);
            }
        });
    });
}

fn host_path(check: &mut Check<'_>, source: &api::HostPathVolumeSource) {
    let path = source.path.as_str();
    if path.is_empty() {
        check.fail_at("path", "is missing: write a path on the node");
    } else if path.split('/').any(|part| part == "..") {
        let what = format!("`{}` has a `..` in it: write it out", Shortened(path));
        check.fail_at("path", what);
    }
    let kinds = [
        "DirectoryOrCreate",
        "Directory",
        "FileOrCreate",
        "File",
        "Socket",
        "CharDevice",
        "BlockDevice",
    ];
    one_of(check, "type", source.type_.as_ref(), &kinds);
}
