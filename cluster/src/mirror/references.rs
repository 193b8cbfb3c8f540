//! Finds references to API objects in a pod. A static pod must have none: the API server refuses its mirror.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::Pod;

/// Returns the path of the first field of the pod that names an object of the API (a Secret, a
/// ConfigMap, a service account, a claim); `None` if there is none.
pub fn api_reference(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let named = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
    if named(&spec.service_account_name) || named(&spec.service_account) {
        return Some("spec.serviceAccountName".to_owned());
    }
    if spec.image_pull_secrets.as_ref().is_some_and(|list| !list.is_empty()) {
        return Some("spec.imagePullSecrets".to_owned());
    }
    if spec.resource_claims.as_ref().is_some_and(|list| !list.is_empty()) {
        return Some("spec.resourceClaims".to_owned());
    }
    let containers = of_containers("initContainers", spec.init_containers.as_deref())
        .or_else(|| of_containers("containers", Some(&spec.containers)));
    containers.or_else(|| {
        let volumes = spec.volumes.iter().flatten().enumerate();
        volumes
            .filter_map(|(at, volume)| Some(format!("spec.volumes[{at}].{}", of_volume(volume)?)))
            .next()
    })
}

fn of_containers(list: &str, containers: Option<&[api::Container]>) -> Option<String> {
    let mut found = containers
        .unwrap_or_default()
        .iter()
        .enumerate()
        .filter_map(|(at, c)| Some(format!("spec.{list}[{at}].{}", of_container(c)?)));
    found.next()
}

fn of_container(container: &api::Container) -> Option<String> {
    let from = container.env_from.iter().flatten();
    if let Some(at) =
        from.clone().position(|f| f.secret_ref.is_some() || f.config_map_ref.is_some())
    {
        return Some(format!("envFrom[{at}]"));
    }
    let at = container.env.iter().flatten().position(|env| {
        let source = env.value_from.as_ref();
        source.is_some_and(|s| s.secret_key_ref.is_some() || s.config_map_key_ref.is_some())
    })?;
    Some(format!("env[{at}].valueFrom"))
}

fn of_volume(volume: &api::Volume) -> Option<&'static str> {
    let projected = || {
        let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten());
        sources.clone().any(|s| {
            s.secret.is_some()
                || s.config_map.is_some()
                || s.service_account_token.is_some()
                || s.cluster_trust_bundle.is_some()
        })
    };
    let secret_of = |name: Option<&api::LocalObjectReference>| name.is_some();
    let fields = [
        ("secret", volume.secret.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("projected", projected()),
        (
            "csi.nodePublishSecretRef",
            secret_of(volume.csi.as_ref().and_then(|v| v.node_publish_secret_ref.as_ref())),
        ),
        ("cephfs.secretRef", secret_of(volume.cephfs.as_ref().and_then(|v| v.secret_ref.as_ref()))),
        ("iscsi.secretRef", secret_of(volume.iscsi.as_ref().and_then(|v| v.secret_ref.as_ref()))),
        ("rbd.secretRef", secret_of(volume.rbd.as_ref().and_then(|v| v.secret_ref.as_ref()))),
        (
            "flexVolume.secretRef",
            secret_of(volume.flex_volume.as_ref().and_then(|v| v.secret_ref.as_ref())),
        ),
        ("azureFile.secretName", volume.azure_file.is_some()),
    ];
    fields.into_iter().find(|(_, there)| *there).map(|(field, _)| field)
}
