//! `spec.volumes[]`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened, names};

use super::{field_ref, resources, rules};

const NOT_MOUNTED: &str = "is not mounted: mount it on the host, and write a hostPath volume";
/// The kinds that only an API server can provide.
const OF_API_SERVER: [&str; 7] =
    ["azureFile", "configMap", "csi", "ephemeral", "glusterfs", "persistentVolumeClaim", "secret"];
/// The kinds that this agent knows in a pod from a file.
const KNOWN: [&str; 4] = ["downwardAPI", "emptyDir", "hostPath", "projected"];

/// The pod's volumes, by their names.
pub(super) type Volumes<'a> = BTreeMap<&'a str, VolumeKind>;

/// What others need to know of a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeKind {
    EmptyDir,
    Other,
}

/// Reports problems of the pod's volumes; returns those with a name.
pub(super) fn all<'a>(check: &mut FieldCheck<'_>, spec: &'a api::PodSpec) -> Volumes<'a> {
    let mut volumes = Volumes::new();
    check.each("volumes", spec.volumes.iter().flatten(), |check, volume| {
        let name = volume.name.as_str();
        let kind =
            if volume.empty_dir.is_some() { VolumeKind::EmptyDir } else { VolumeKind::Other };
        if name.is_empty() {
            check.fail_at("name", "is missing: every volume needs a name");
        } else if !names::is_dns_label(name) {
            let what = format!("`{}` is no volume name: {}", Shortened(name), rules::LABEL);
            check.fail_at("name", what);
        } else if volumes.insert(name, kind).is_some() {
            check.fail_at("name", format!("`{name}` is the name of another volume already"));
        }
        source(check, volume);
    });
    volumes
}

fn source(check: &mut FieldCheck<'_>, volume: &api::Volume) {
    // The kinds that are set, i.e. all fields but the name: serializing knows all of them.
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let fields = fields.as_object().into_iter().flat_map(serde_json::Map::keys);
    let kinds: Vec<&str> = fields.map(String::as_str).filter(|key| *key != "name").collect();
    if kinds.len() > 1 {
        check.fail(format!("is of several kinds, {}: write only one", kinds.join(" and ")));
    }
    for kind in kinds.iter().filter(|kind| !KNOWN.contains(kind)) {
        let of_api_server = OF_API_SERVER.contains(kind);
        check.fail_at(kind, if of_api_server { rules::NEEDS_API_SERVER } else { NOT_MOUNTED });
    }
    if let Some(host_path) = &volume.host_path {
        check.key("hostPath", |check| self::host_path(check, host_path));
    }
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
        check.key("emptyDir", |check| {
            resources::quantity(check, "sizeLimit", &limit.0);
        });
    }
    if let Some(files) = &volume.downward_api {
        check.key("downwardAPI", |check| {
            rules::mode(check, "defaultMode", files.default_mode);
            let items = files.items.iter().flatten();
            check.each("items", items, file);
        });
    }
    if let Some(projected) = &volume.projected {
        check.key("projected", |check| self::projected(check, projected));
    }
}

fn host_path(check: &mut FieldCheck<'_>, source: &api::HostPathVolumeSource) {
    let path = source.path.as_str();
    if path.is_empty() {
        check.fail_at("path", "is missing: write a path on the node");
    } else if rules::leads_up(path) {
        let what = format!("`{}` has a `..` in it: write it out", Shortened(path));
        check.fail_at("path", what);
    }
    let kinds = [
        "",
        "DirectoryOrCreate",
        "Directory",
        "FileOrCreate",
        "File",
        "Socket",
        "CharDevice",
        "BlockDevice",
    ];
    rules::word_if_any(check, "type", source.type_.as_ref(), &kinds);
}

fn projected(check: &mut FieldCheck<'_>, volume: &api::ProjectedVolumeSource) {
    rules::mode(check, "defaultMode", volume.default_mode);
    let mut paths = BTreeSet::new();
    check.each("sources", volume.sources.iter().flatten(), |check, source| {
        let of_api_server = [
            ("configMap", source.config_map.is_some()),
            ("secret", source.secret.is_some()),
            ("serviceAccountToken", source.service_account_token.is_some()),
            ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
            ("podCertificate", source.pod_certificate.is_some()),
        ];
        for (key, _) in of_api_server.iter().filter(|(_, set)| *set) {
            check.fail_at(key, rules::NEEDS_API_SERVER);
        }
        let Some(files) = &source.downward_api else {
            if of_api_server.iter().all(|(_, set)| !set) {
                check.fail("is empty: write downwardAPI, or remove it");
            }
            return;
        };
        check.key("downwardAPI", |check| {
            check.each("items", files.items.iter().flatten(), |check, one| {
                file(check, one);
                if !one.path.is_empty() && !paths.insert(one.path.as_str()) {
                    check.fail_at("path", "is the path of another file in this volume already");
                }
            });
        });
    });
}

fn file(check: &mut FieldCheck<'_>, file: &api::DownwardAPIVolumeFile) {
    if file.path.is_empty() {
        check.fail_at("path", "is missing: write that of the file in the volume");
    } else if file.path.starts_with("..") {
        check.fail_at("path", "begins with `..`: write another");
    } else {
        rules::path_below(check, "path", &file.path, "the volume");
    }
    rules::mode(check, "mode", file.mode);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), None) => {
            check.key("fieldRef", |check| field_ref::of_pod(check, field, &field_ref::FILES));
        }
        (None, Some(field)) => check.key("resourceFieldRef", |check| {
            if field.container_name.as_ref().is_none_or(String::is_empty) {
                check.fail_at("containerName", "is missing: write that of a container");
            }
            field_ref::of_resources(check, field);
        }),
        (Some(_), Some(_)) | (None, None) => {
            check.fail("needs exactly one of fieldRef and resourceFieldRef");
        }
    }
}
