//! How lists are merged, and by which key. Taken from the `patchStrategy` and `patchMergeKey` tags of the Kubernetes
//! API types; lists that are not mentioned here are replaced as a whole.

use crate::kinds::Kind;

/// How a list in a patch is merged into an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// The patch's list replaces it.
    Replace,
    /// A list of primitive values: those of the patch are added.
    Union,
    /// A list of objects: those with the same value in this field are merged.
    By(&'static str),
}

/// How the list at a path (`spec/containers/env`) of a kind is merged.
pub(super) fn merging(kind: &Kind, path: &str) -> Merging {
    match path {
        "metadata/finalizers" => return Merging::Union,
        "metadata/ownerReferences" => return Merging::By("uid"),
        _ => {}
    }
    let template = path.strip_prefix("spec/template/spec/");
    match (kind.group, kind.plural, path) {
        ("", "pods", _) => path.strip_prefix("spec/").map_or_else(|| in_status(path), in_pod_spec),
        ("", "nodes", "spec/podCIDRs") => Merging::Union,
        ("", "nodes", "status/addresses") => Merging::By("type"),
        ("", "services", "spec/ports") => Merging::By("port"),
        ("", "serviceaccounts", "secrets") => Merging::By("name"),
        ("certificates.k8s.io", _, _) => Merging::Replace,
        (_, _, "status/conditions") => Merging::By("type"),
        ("apps" | "batch", _, _) => template.map_or(Merging::Replace, in_pod_spec),
        _ => Merging::Replace,
    }
}

/// Lists such as `containerStatuses` are not here: a patch replaces them as a whole.
fn in_status(path: &str) -> Merging {
    match path {
        "status/conditions" => Merging::By("type"),
        "status/hostIPs" | "status/podIPs" => Merging::By("ip"),
        "status/resourceClaimStatuses" => Merging::By("name"),
        _ => Merging::Replace,
    }
}

fn in_pod_spec(path: &str) -> Merging {
    match path {
        "volumes"
        | "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims" => Merging::By("name"),
        "hostAliases" => Merging::By("ip"),
        "topologySpreadConstraints" => Merging::By("topologyKey"),
        _ => match path.split_once('/') {
            Some(("containers" | "initContainers" | "ephemeralContainers", field)) => match field {
                "ports" => Merging::By("containerPort"),
                "env" => Merging::By("name"),
                "volumeMounts" => Merging::By("mountPath"),
                "volumeDevices" => Merging::By("devicePath"),
                _ => Merging::Replace,
            },
            _ => Merging::Replace,
        },
    }
}
