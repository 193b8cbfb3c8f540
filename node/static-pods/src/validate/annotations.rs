//! `metadata.annotations`: their keys, and the few that have a meaning of their own.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, names};

use super::{rules, scheduling};
use crate::defaults::{APPARMOR, LOCALHOST};
use crate::identity;

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// How many bytes all keys and values may have together.
const MOST_BYTES: usize = 256 * 1024;

pub(super) fn all(check: &mut FieldCheck<'_>, pod: &api::Pod) {
    let Some(annotations) = &pod.metadata.annotations else { return };
    check.key("annotations", |check| {
        for (key, value) in annotations {
            // Case does not matter in keys of annotations.
            if names::is_qualified_name(&key.to_lowercase()) {
                one(check, pod, key, value);
            } else {
                check.fail_at(key, rules::KEY);
            }
        }
        let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size + identity::HASH_SIZE > MOST_BYTES {
            check.fail(format!("has more than {MOST_BYTES} bytes: remove some"));
        }
    });
}

fn one(check: &mut FieldCheck<'_>, pod: &api::Pod, key: &str, value: &str) {
    if key == TOLERATIONS && !value.is_empty() {
        match serde_json::from_str::<Option<Vec<api::Toleration>>>(value) {
            Ok(list) => check.key(key, |check| {
                for (index, toleration) in list.iter().flatten().enumerate() {
                    check.index(index, |check| scheduling::toleration(check, toleration));
                }
            }),
            Err(_) => check.fail_at(key, "is no list of tolerations: write spec.tolerations"),
        }
    }
    if key == DELETION_COST && !is_cost(value) {
        check.fail_at(key, "is no 32-bit number: write one without `+` and leading zeros");
    }
    if key == SECCOMP_OF_POD || key.starts_with(SECCOMP) {
        let path = value.strip_prefix(LOCALHOST);
        let known = matches!(value, "runtime/default" | "docker/default" | "unconfined");
        if !known && path.is_none_or(|path| path.starts_with('/') || rules::leads_up(path)) {
            check.fail_at(key, "is no seccomp profile: write securityContext.seccompProfile");
        }
    }
    if let Some(container) = key.strip_prefix(APPARMOR) {
        let known = matches!(value, "" | "runtime/default" | "unconfined");
        if !known && !value.starts_with(LOCALHOST) {
            check.fail_at(key, "is no AppArmor profile: write securityContext.appArmorProfile");
        }
        if !containers(pod).any(|(_, _, one)| one.name == container) {
            check.fail_at(key, "names a container that the pod does not have: remove it");
        }
    }
}

/// Whether `text` is a number that the API reads as a deletion cost.
fn is_cost(text: &str) -> bool {
    let first = text.bytes().next().unwrap_or_default();
    let begins = first == b'-' || (b'1'..=b'9').contains(&first) || text == "0";
    begins && text.parse::<i32>().is_ok()
}

/// The pod's containers, each with the name of its list and its place there.
fn containers(pod: &api::Pod) -> impl Iterator<Item = (&'static str, usize, &api::Container)> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map_or(&[][..], |spec| &spec.containers);
    [("initContainers", init), ("containers", main)].into_iter().flat_map(|(list, containers)| {
        containers.iter().enumerate().map(move |(index, one)| (list, index, one))
    })
}

/// Reports profiles that say something else than their annotation, the old way to set them.
pub(super) fn contradictions(check: &mut FieldCheck<'_>, pod: &api::Pod) {
    let Some(spec) = &pod.spec else { return };
    let said = |key: &str| pod.metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let of_pod = spec.security_context.as_ref();
    let field = of_pod.and_then(|security| security.seccomp_profile.as_ref());
    if let (Some(profile), Some(said)) = (field, said(SECCOMP_OF_POD)) {
        let profile = (profile.type_.as_str(), profile.localhost_profile.as_deref());
        if contradicts(said, profile, &["runtime/default", "docker/default"]) {
            let at = ["spec", "securityContext", "seccompProfile"];
            within(check, &at, |check| check.fail(unlike(SECCOMP_OF_POD)));
        }
    }
    for (list, index, one) in containers(pod) {
        let security = one.security_context.as_ref();
        let seccomp = security.and_then(|security| security.seccomp_profile.as_ref());
        let seccomp = seccomp.map(|p| (p.type_.as_str(), p.localhost_profile.as_deref()));
        let apparmor = security.and_then(|security| security.app_armor_profile.as_ref());
        let apparmor = apparmor.or(of_pod.and_then(|pod| pod.app_armor_profile.as_ref()));
        let apparmor = apparmor.map(|p| (p.type_.as_str(), p.localhost_profile.as_deref()));
        let defaults: [&[&str]; 2] = [&["runtime/default", "docker/default"], &["runtime/default"]];
        let both = [("seccompProfile", SECCOMP, seccomp), ("appArmorProfile", APPARMOR, apparmor)];
        for ((field, prefix, profile), default) in both.into_iter().zip(defaults) {
            let key = format!("{prefix}{}", one.name);
            let (Some(profile), Some(said)) = (profile, said(&key)) else { continue };
            if contradicts(said, profile, default) {
                within(check, &["spec", list], |check| {
                    check.index(index, |check| {
                        let at = ["securityContext", field];
                        within(check, &at, |check| check.fail(unlike(&key)));
                    });
                });
            }
        }
    }
}

fn unlike(key: &str) -> String {
    format!("says something else than the annotation {key}: remove the annotation")
}

/// Checks the field at the end of a path of keys.
fn within(check: &mut FieldCheck<'_>, path: &[&str], look: impl FnOnce(&mut FieldCheck<'_>)) {
    match path.split_first() {
        Some((key, rest)) => check.key(key, |check| within(check, rest, look)),
        None => look(check),
    }
}

/// Whether an annotation says something else than a profile's type and name.
fn contradicts(said: &str, (kind, name): (&str, Option<&str>), default: &[&str]) -> bool {
    match kind {
        "Unconfined" => said != "unconfined",
        "RuntimeDefault" => !default.contains(&said),
        "Localhost" => said.strip_prefix(LOCALHOST) != Some(name.unwrap_or_default()),
        // The type itself is wrong.
        _ => false,
    }
}
