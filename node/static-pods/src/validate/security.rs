//! `securityContext`, of a pod and of a container.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::sysctl_namespace;
use winddown_yaml::{FieldCheck, Shortened};

use super::{names, rules};

const NOT_WINDOWS: &str = "this is not Windows: remove it";
const PROFILES: [&str; 3] = ["RuntimeDefault", "Localhost", "Unconfined"];
const MOST_PATH: usize = 4095;

pub(super) fn pod(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let Some(security) = &spec.security_context else { return };
    check.key("securityContext", |check| {
        let ids = [
            ("runAsUser", security.run_as_user),
            ("runAsGroup", security.run_as_group),
            ("fsGroup", security.fs_group),
        ];
        ids.into_iter().for_each(|(key, id)| self::id(check, key, id));
        check.key("supplementalGroups", |check| {
            for (index, group) in security.supplemental_groups.iter().flatten().enumerate() {
                check.index(index, |check| id_here(check, *group));
            }
        });
        let policies: [(&str, _, &[&str]); 3] = [
            (
                "fsGroupChangePolicy",
                &security.fs_group_change_policy,
                &["Always", "OnRootMismatch"],
            ),
            (
                "supplementalGroupsPolicy",
                &security.supplemental_groups_policy,
                &["Merge", "Strict"],
            ),
            ("seLinuxChangePolicy", &security.se_linux_change_policy, &["Recursive"]),
        ];
        for (key, policy, allowed) in policies {
            rules::word_if_any(check, key, policy.as_ref(), allowed);
        }
        seccomp(check, security.seccomp_profile.as_ref());
        apparmor(check, security.app_armor_profile.as_ref());
        if security.windows_options.is_some() {
            check.fail_at("windowsOptions", NOT_WINDOWS);
        }
        sysctls(check, spec, security);
    });
}

pub(super) fn container(
    check: &mut FieldCheck<'_>,
    security: Option<&api::SecurityContext>,
    spec: &api::PodSpec,
) {
    let Some(security) = security else { return };
    check.key("securityContext", |check| {
        id(check, "runAsUser", security.run_as_user);
        id(check, "runAsGroup", security.run_as_group);
        let mounts = ["Default", "Unmasked"];
        rules::word_if_any(check, "procMount", security.proc_mount.as_ref(), &mounts);
        let unmasked = security.proc_mount.as_deref() == Some("Unmasked");
        if unmasked && spec.host_users != Some(false) {
            check.fail_at("procMount", "`Unmasked` needs `hostUsers: false` in the pod's spec");
        }
        seccomp(check, security.seccomp_profile.as_ref());
        apparmor(check, security.app_armor_profile.as_ref());
        if security.windows_options.is_some() {
            check.fail_at("windowsOptions", NOT_WINDOWS);
        }
        let added = security.capabilities.as_ref().and_then(|caps| caps.add.as_ref());
        let gains = [
            ("`privileged: true`", security.privileged == Some(true)),
            (
                "the capability CAP_SYS_ADMIN",
                added.is_some_and(|caps| caps.iter().any(|cap| cap == "CAP_SYS_ADMIN")),
            ),
        ];
        for (what, _) in gains.iter().filter(|(_, gained)| *gained) {
            if security.allow_privilege_escalation == Some(false) {
                let what = format!("cannot be false together with {what}: remove one of the two");
                check.fail_at("allowPrivilegeEscalation", what);
            }
        }
    });
}

fn id(check: &mut FieldCheck<'_>, key: &str, id: Option<i64>) {
    if let Some(id) = id {
        check.key(key, |check| id_here(check, id));
    }
}

fn id_here(check: &mut FieldCheck<'_>, id: i64) {
    let most = i64::from(i32::MAX);
    if !(0..=most).contains(&id) {
        check.fail(format!("is {id}: write a user or group number from 0 to {most}"));
    }
}

fn seccomp(check: &mut FieldCheck<'_>, profile: Option<&api::SeccompProfile>) {
    let Some(profile) = profile else { return };
    check.key("seccompProfile", |check| {
        rules::word(check, "type", &profile.type_, &PROFILES);
        match (profile.type_ == "Localhost", &profile.localhost_profile) {
            (true, Some(path)) => {
                rules::path_below(check, "localhostProfile", path, "the directory of profiles");
            }
            (is_localhost, path) => no_profile(check, is_localhost, path.is_some()),
        }
    });
}

fn apparmor(check: &mut FieldCheck<'_>, profile: Option<&api::AppArmorProfile>) {
    let Some(profile) = profile else { return };
    check.key("appArmorProfile", |check| {
        rules::word(check, "type", &profile.type_, &PROFILES);
        match (profile.type_ == "Localhost", &profile.localhost_profile) {
            (true, Some(name)) if name.is_empty() || name.trim() != name => {
                check.fail_at("localhostProfile", "is no name: write it without blanks around it");
            }
            (true, Some(name)) if name.len() > MOST_PATH => {
                let what = format!("has more than {MOST_PATH} characters: shorten it");
                check.fail_at("localhostProfile", what);
            }
            (true, Some(_)) => {}
            (is_localhost, name) => no_profile(check, is_localhost, name.is_some()),
        }
    });
}

/// Reports a profile that is missing, or that its type does not have.
fn no_profile(check: &mut FieldCheck<'_>, is_localhost: bool, is_set: bool) {
    match (is_localhost, is_set) {
        (true, false) => check.fail_at("localhostProfile", "is missing: write the profile's name"),
        (false, true) => {
            check.fail_at("localhostProfile", "has no effect without `type: Localhost`: remove it");
        }
        (true, true) | (false, false) => {}
    }
}

fn sysctls(check: &mut FieldCheck<'_>, spec: &api::PodSpec, security: &api::PodSecurityContext) {
    let mut seen = BTreeSet::new();
    check.each("sysctls", security.sysctls.iter().flatten(), |check, sysctl| {
        let name = sysctl.name.as_str();
        if !names::is_sysctl(name) {
            let what = format!(
                "`{}` is no kernel parameter: write, for example, net.core.somaxconn",
                Shortened(name)
            );
            check.fail_at("name", what);
        } else if !seen.insert(name) {
            check.fail_at("name", format!("`{}` is in the list twice", Shortened(name)));
        }
        let host = match sysctl_namespace(name) {
            Some("Net") => ("hostNetwork", spec.host_network),
            Some(_) => ("hostIPC", spec.host_ipc),
            None => return,
        };
        if let (field, Some(true)) = host {
            let what = format!("would change the host with `{field}: true`: remove one of the two");
            check.fail_at("name", what);
        }
    });
}
