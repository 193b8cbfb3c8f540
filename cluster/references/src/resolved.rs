//! Builds the resolved pod, which has no references left. Pure.

use std::collections::HashMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{IdentityError, Pod};

/// Returns a copy of `pod` with these variables, in the order of [`needs::environments`], and with
/// the volumes of `paths` as read-only directories of the host. `handler`, the runtime's own name,
/// replaces the name of the runtime class.
///
/// [`needs::environments`]: super::needs::environments
///
/// # Errors
/// None for a pod that has an identity.
pub(crate) fn pod(
    pod: &Pod,
    environments: Vec<Vec<api::EnvVar>>,
    paths: &HashMap<String, PathBuf>,
    handler: Option<String>,
) -> Result<Pod, IdentityError> {
    let mut object = pod.object().clone();
    let Some(spec) = object.spec.as_mut() else { return Pod::new(object) };
    spec.runtime_class_name = handler;
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some(path) = paths.get(&volume.name) {
            *volume = directory(&volume.name, path);
        }
    }
    let mut environments = environments.into_iter();
    let mut resolve = |env: &mut Option<Vec<api::EnvVar>>,
                       from: &mut Option<Vec<api::EnvFromSource>>,
                       mounts: &mut Option<Vec<api::VolumeMount>>| {
        *env = environments.next().filter(|env| !env.is_empty());
        *from = None;
        for mount in mounts.iter_mut().flatten().filter(|m| paths.contains_key(&m.name)) {
            mount.read_only = Some(true);
        }
    };
    for one in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        resolve(&mut one.env, &mut one.env_from, &mut one.volume_mounts);
    }
    for one in spec.ephemeral_containers.iter_mut().flatten() {
        resolve(&mut one.env, &mut one.env_from, &mut one.volume_mounts);
    }
    Pod::new(object)
}

fn directory(name: &str, path: &std::path::Path) -> api::Volume {
    api::Volume {
        name: name.to_owned(),
        host_path: Some(api::HostPathVolumeSource {
            path: path.display().to_string(),
            type_: Some("Directory".to_owned()),
        }),
        ..api::Volume::default()
    }
}
