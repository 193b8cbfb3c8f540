//! Finds the fields of a pod that the CRI runtime does not support.

use std::path::Path;

use k8s_openapi::api::core::v1 as k8s;
use winddown_engine::files;
use winddown_engine::support::{Findings, check};
use winddown_shared::{Pod, UnsupportedField};

use super::api::security_profile::ProfileType;
use super::tree::MOST_NAMES;
use super::{labels, spec, volumes};

/// Every field of `pod` that this runtime does not support; empty if it runs the pod as written. Pure, so it can be
/// used in admission and to preview the outcome.
pub fn check_supported(pod: &Pod) -> Vec<UnsupportedField> {
    check(pod, of_pod, container)
}

fn of_pod(spec: &k8s::PodSpec, found: &mut Findings) {
    let no_users = "user namespaces are not made: leave it out";
    found.refuse_if(spec.host_users == Some(false), "hostUsers", no_users);
    let no_domain = "host names have no domain: leave it out";
    found.refuse_if(spec.set_hostname_as_fqdn == Some(true), "setHostnameAsFQDN", no_domain);
    let both = spec.host_pid == Some(true) && spec.share_process_namespace == Some(true);
    found.refuse_if(both, "shareProcessNamespace", "hostPID is set too: write only one");
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        found.within(&format!("volumes[{i}]"), |found| self::volume(volume, found));
    }
    let Some(security) = &spec.security_context else { return };
    found.within("securityContext", |found| {
        let policy = security.supplemental_groups_policy.as_deref().unwrap_or("Merge");
        let merge = "only `Merge` is done: leave it out";
        found.refuse_if(policy != "Merge", "supplementalGroupsPolicy", merge);
        found.refuse_if(security.windows_options.is_some(), "windowsOptions", NO_WINDOWS);
        found.id("fsGroup", security.fs_group);
        profiles(security.seccomp_profile.as_ref(), security.app_armor_profile.as_ref(), found);
    });
}

const NO_WINDOWS: &str = "this is not Windows: leave it out";

fn volume(volume: &k8s::Volume, found: &mut Findings) {
    found.refuse_if(!files::is_safe(&volume.name), "name", "cannot be the name of a directory");
    if let Some(empty) = &volume.empty_dir {
        let medium = empty.medium.as_deref().unwrap_or_default();
        let known = matches!(medium, "" | "Memory");
        found.refuse_if(!known, "emptyDir.medium", "only `Memory` is done, or none: a directory");
        found.refuse_if(empty.mode.is_some(), "emptyDir.mode", "its mode is 0777: leave it out");
        return;
    }
    if let Some(host) = &volume.host_path {
        let path = Path::new(&host.path);
        let climbs = !path.is_absolute() || host.path.split('/').any(|part| part == "..");
        found.refuse_if(climbs, "hostPath.path", "write an absolute path without `..`");
        return;
    }
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let mut kinds = fields.as_object().into_iter().flat_map(serde_json::Map::keys);
    let kind = kinds.find(|key| *key != "name").cloned().unwrap_or_default();
    let sources = volume.projected.iter().flat_map(|all| all.sources.iter().flatten());
    let mut own_fields = sources.map(|one| one.downward_api.is_some()).peekable();
    let of_own_fields = volume.downward_api.is_some()
        || own_fields.peek().is_some() && own_fields.all(|are_own| are_own);
    let why = if volume.name.starts_with("kube-api-access-") {
        "tokens are not mounted: write `automountServiceAccountToken: false`"
    } else if of_own_fields {
        // Those of a pod of the API server were resolved before it came here.
        "a manifest's own fields are not written to files: write `env` with `valueFrom`"
    } else {
        "volumes of this kind are not mounted: write hostPath or emptyDir"
    };
    found.refuse_if(true, &kind, why);
}

fn container(spec: &k8s::PodSpec, one: &k8s::Container, found: &mut Findings) {
    let image = one.image.as_deref().unwrap_or_default();
    found.refuse_if(image.is_empty(), "image", "a container needs one");
    let devices = one.volume_devices.as_ref().is_some_and(|d| !d.is_empty());
    let no_devices = "block devices are not passed: use a hostPath volume";
    found.refuse_if(devices, "volumeDevices", no_devices);
    let path = Path::new(labels::message_path(one));
    found.refuse_if(!path.is_absolute(), "terminationMessagePath", "write an absolute path");
    mounts(spec, one, found);
    let signal = one.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    let unknown = signal.is_some_and(|name| spec::signal(name).is_none());
    found.refuse_if(unknown, "lifecycle.stopSignal", "is not a signal that is passed on");
    let Some(security) = &one.security_context else { return };
    found.within("securityContext", |found| {
        found.refuse_if(security.windows_options.is_some(), "windowsOptions", NO_WINDOWS);
        let proc_mount = security.proc_mount.as_deref().unwrap_or("Default");
        let known = matches!(proc_mount, "Default" | "Unmasked");
        found.refuse_if(!known, "procMount", "write `Default` or `Unmasked`");
        profiles(security.seccomp_profile.as_ref(), security.app_armor_profile.as_ref(), found);
        let privileged = security.privileged == Some(true);
        let contradiction = privileged && security.allow_privilege_escalation == Some(false);
        let why = "a privileged container may gain rights: write only one of the two";
        found.refuse_if(contradiction, "allowPrivilegeEscalation", why);
    });
}

fn mounts(spec: &k8s::PodSpec, one: &k8s::Container, found: &mut Findings) {
    for (i, mount) in one.volume_mounts.iter().flatten().enumerate() {
        found.within(&format!("volumeMounts[{i}]"), |found| {
            let known = spec.volumes.iter().flatten().any(|v| v.name == mount.name);
            found.refuse_if(!known, "name", "the pod has no volume of this name");
            let target = Path::new(&mount.mount_path);
            found.refuse_if(!target.is_absolute(), "mountPath", "write an absolute path");
            let recursive = mount.recursive_read_only.as_deref() == Some("Enabled");
            let why = "mounts below the volume are not made read-only: write `IfPossible`";
            found.refuse_if(recursive, "recursiveReadOnly", why);
            let options = mount.bind_mount_options.as_ref().is_some_and(|all| !all.is_empty());
            found.refuse_if(options, "bindMountOptions", "they are not set: leave it out");
            let sub = mount.sub_path.as_deref().unwrap_or_default();
            let inside = volumes::is_inside(Path::new(sub));
            found.refuse_if(!inside, "subPath", "write a path below the volume, without `..`");
            let is_deep = Path::new(sub).components().count() > MOST_NAMES;
            found.refuse_if(is_deep, "subPath", &format!("write at most {MOST_NAMES} names"));
        });
    }
}

fn profiles(
    seccomp: Option<&k8s::SeccompProfile>,
    app_armor: Option<&k8s::AppArmorProfile>,
    found: &mut Findings,
) {
    if let Some(k8s::SeccompProfile { type_, localhost_profile }) = seccomp {
        let is_file = |file: &str| !file.is_empty() && volumes::is_inside(Path::new(file));
        let lacks_file = type_ == "Localhost" && !localhost_profile.as_deref().is_some_and(is_file);
        let why = "write a path below the directory of profiles, without `..`";
        found.within("seccompProfile", |found| {
            kind_of_profile(type_, found);
            found.refuse_if(lacks_file, "localhostProfile", why);
        });
    }
    if let Some(k8s::AppArmorProfile { type_, localhost_profile }) = app_armor {
        let lacks_name =
            type_ == "Localhost" && localhost_profile.as_deref().is_none_or(str::is_empty);
        found.within("appArmorProfile", |found| {
            kind_of_profile(type_, found);
            found.refuse_if(lacks_name, "localhostProfile", "write the name of a loaded profile");
        });
    }
}

/// Refuses an unknown profile type: a misspelt one would confine nothing.
fn kind_of_profile(kind: &str, found: &mut Findings) {
    let known = ProfileType::from_str_name(kind);
    found.refuse_if(known.is_none(), "type", "write `RuntimeDefault`, `Localhost` or `Unconfined`");
}

#[cfg(test)]
mod tests;
