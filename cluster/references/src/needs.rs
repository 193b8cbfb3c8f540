//! Finds what a pod refers to. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::Pod;

use super::object::{ObjectKey, ObjectKind};

/// The parts of a container that define its environment, which all three kinds of containers have.
pub(crate) struct Variables<'a> {
    /// Path of the container, for example `spec.initContainers[0]`.
    pub(crate) field: String,
    pub(crate) name: &'a str,
    pub(crate) env: &'a [api::EnvVar],
    pub(crate) env_from: &'a [api::EnvFromSource],
}

/// Returns the environments of all containers, in the order in which they are resolved.
pub(crate) fn environments(spec: &api::PodSpec) -> Vec<Variables<'_>> {
    let mut all = Vec::new();
    let lists = [
        ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        ("containers", spec.containers.as_slice()),
    ];
    for (list, containers) in lists {
        for (i, one) in containers.iter().enumerate() {
            all.push(Variables {
                field: format!("spec.{list}[{i}]"),
                name: &one.name,
                env: one.env.as_deref().unwrap_or_default(),
                env_from: one.env_from.as_deref().unwrap_or_default(),
            });
        }
    }
    for (i, one) in spec.ephemeral_containers.iter().flatten().enumerate() {
        all.push(Variables {
            field: format!("spec.ephemeralContainers[{i}]"),
            name: &one.name,
            env: one.env.as_deref().unwrap_or_default(),
            env_from: one.env_from.as_deref().unwrap_or_default(),
        });
    }
    all
}

/// The objects that these environments take values from.
pub(crate) fn of_environments<'a>(
    namespace: &Arc<str>,
    environments: impl IntoIterator<Item = &'a Variables<'a>>,
) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    for one in environments {
        for from in one.env_from {
            let map = from.config_map_ref.as_ref().map(|r| (ObjectKind::ConfigMap, &r.name));
            let secret = from.secret_ref.as_ref().map(|r| (ObjectKind::Secret, &r.name));
            keys.extend(
                map.into_iter().chain(secret).map(|(k, n)| ObjectKey::new(k, namespace, n)),
            );
        }
        for from in one.env.iter().filter_map(|var| var.value_from.as_ref()) {
            let map = from.config_map_key_ref.as_ref().map(|r| (ObjectKind::ConfigMap, &r.name));
            let secret = from.secret_key_ref.as_ref().map(|r| (ObjectKind::Secret, &r.name));
            keys.extend(
                map.into_iter().chain(secret).map(|(k, n)| ObjectKey::new(k, namespace, n)),
            );
        }
    }
    keys
}

/// The objects that the pod's volumes show.
pub(crate) fn of_volumes(pod: &Pod) -> BTreeSet<ObjectKey> {
    made_here(pod).flat_map(|(_, volume)| of_volume(pod.namespace(), volume)).collect()
}

/// The objects that the volume shows.
pub(crate) fn of_volume(namespace: &Arc<str>, volume: &api::Volume) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    let mut add = |kind, name: &str| keys.insert(ObjectKey::new(kind, namespace, name));
    if let Some(map) = &volume.config_map {
        add(ObjectKind::ConfigMap, &map.name);
    }
    if let Some(secret) = &volume.secret {
        add(ObjectKind::Secret, secret.secret_name.as_deref().unwrap_or_default());
    }
    let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    for source in sources {
        if let Some(map) = &source.config_map {
            add(ObjectKind::ConfigMap, &map.name);
        }
        if let Some(secret) = &source.secret {
            add(ObjectKind::Secret, &secret.name);
        }
    }
    keys
}

/// The volumes that this crate makes, whose content comes entirely from the API, with their index.
pub(crate) fn made_here(pod: &Pod) -> impl Iterator<Item = (usize, &api::Volume)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).enumerate();
    volumes.filter(|(_, volume)| is_made_here(volume))
}

pub(crate) fn is_made_here(volume: &api::Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Whether the volume may hold secrets, which must not be readable by others or kept on a disk.
pub(crate) fn is_secret(volume: &api::Volume) -> bool {
    let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
    let is_secret =
        |s: &api::VolumeProjection| s.secret.is_some() || s.service_account_token.is_some();
    volume.secret.is_some() || sources.into_iter().any(is_secret)
}
