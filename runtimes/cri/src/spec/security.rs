//! Users, privileges and security profiles.

use std::path::Path;

use k8s_openapi::api::core::v1 as k8s;
use winddown_shared::Pod;

use super::super::api::{self, security_profile::ProfileType};

/// Paths in /proc that are read-only in a container, unless it is privileged.
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The security context of the sandbox, which all its containers share.
pub(crate) fn sandbox_security(pod: &Pod) -> api::LinuxSandboxSecurityContext {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let all = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    let privileged = all
        .filter_map(|c| c.security_context.as_ref())
        .any(|security| security.privileged == Some(true));
    api::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, None)),
        selinux_options: of_pod.and_then(|s| s.se_linux_options.as_ref()).map(selinux),
        run_as_user: of_pod.and_then(|s| s.run_as_user).map(number),
        run_as_group: of_pod.and_then(|s| s.run_as_group).map(number),
        supplemental_groups: groups(of_pod),
        privileged,
        // The sandbox's own process only waits, so it gets the strictest profile there is.
        seccomp: Some(api::SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        readonly_rootfs: false,
        apparmor: None,
    }
}

/// The security context of a container: its own settings, else the pod's, else the image's.
pub(super) fn container_security(
    pod: &Pod,
    container: &k8s::Container,
    target: Option<&str>,
    image: &api::Image,
    seccomp_dir: &Path,
    masked: &[String],
) -> api::LinuxContainerSecurityContext {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let own = container.security_context.as_ref();
    let privileged = own.and_then(|s| s.privileged) == Some(true);
    let user = own.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user));
    let group = own.and_then(|s| s.run_as_group).or(of_pod.and_then(|s| s.run_as_group));
    let image_uid = image.uid.as_ref().map(|uid| uid.value);
    let username =
        if user.or(image_uid).is_none() { image.username.clone() } else { String::new() };
    // A group without a user is an error for containerd.
    let root = username.is_empty().then_some(0);
    let unmasked = privileged || own.and_then(|s| s.proc_mount.as_deref()) == Some("Unmasked");
    let (masked_paths, readonly_paths) = match unmasked {
        true => (Vec::new(), Vec::new()),
        false => (masked.to_vec(), READ_ONLY.map(str::to_owned).to_vec()),
    };
    let seccomp = own.and_then(|s| s.seccomp_profile.as_ref());
    let seccomp = seccomp.or(of_pod.and_then(|s| s.seccomp_profile.as_ref()));
    let apparmor = own.and_then(|s| s.app_armor_profile.as_ref());
    let apparmor = apparmor.or(of_pod.and_then(|s| s.app_armor_profile.as_ref()));
    let label = own.and_then(|s| s.se_linux_options.as_ref());
    let label = label.or(of_pod.and_then(|s| s.se_linux_options.as_ref()));
    api::LinuxContainerSecurityContext {
        capabilities: own.and_then(|s| s.capabilities.as_ref()).map(|c| api::Capability {
            add_capabilities: c.add.clone().unwrap_or_default(),
            drop_capabilities: c.drop.clone().unwrap_or_default(),
        }),
        privileged,
        namespace_options: Some(namespaces(pod, target)),
        selinux_options: label.map(selinux),
        run_as_user: user.or(image_uid).or(root).map(number),
        run_as_username: username,
        run_as_group: group.map(number),
        readonly_rootfs: own.and_then(|s| s.read_only_root_filesystem) == Some(true),
        supplemental_groups: groups(of_pod),
        no_new_privs: own.and_then(|s| s.allow_privilege_escalation) == Some(false),
        masked_paths,
        readonly_paths,
        // As a kubelet does without a profile: the container runtime would choose one.
        seccomp: (!privileged).then(|| {
            let none = || profile("Unconfined", None);
            seccomp.map_or_else(none, |given| seccomp_profile(given, seccomp_dir))
        }),
        apparmor: apparmor.map(|p| profile(&p.type_, p.localhost_profile.clone())),
    }
}

/// Checks `runAsNonRoot` against the user that the container would run as; only the image says which user that is by
/// default.
///
/// # Errors
/// Says, for users, what is wrong and what to write instead.
pub(crate) fn user_of_image(
    pod: &Pod,
    container: &k8s::Container,
    image: &api::Image,
) -> Result<(), String> {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let own = container.security_context.as_ref();
    let not_root = own.and_then(|s| s.run_as_non_root).or(of_pod.and_then(|s| s.run_as_non_root));
    let user = own.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user));
    if not_root != Some(true) {
        return Ok(());
    }
    match (user, image.uid.as_ref(), image.username.as_str()) {
        (Some(0), ..) => Err("runAsNonRoot is set and runAsUser is 0: write another".to_owned()),
        (Some(_), ..) => Ok(()),
        (None, Some(uid), _) if uid.value != 0 => Ok(()),
        (None, None, name) if !name.is_empty() => Err(format!(
            "runAsNonRoot is set and the image's user is a name, {name}: write runAsUser with its \
             number"
        )),
        _ => Err("runAsNonRoot is set and the image runs as root: write runAsUser".to_owned()),
    }
}

/// `target`: the container whose processes it can see, unless it sees those of the whole pod or host anyway.
fn namespaces(pod: &Pod, target: Option<&str>) -> api::NamespaceOption {
    use api::NamespaceMode::{Container, Node, Pod as Shared, Target};
    let spec = pod.spec.as_ref();
    let is = |field: Option<Option<bool>>| field.flatten() == Some(true);
    let network = if is(spec.map(|s| s.host_network)) { Node } else { Shared };
    let ipc = if is(spec.map(|s| s.host_ipc)) { Node } else { Shared };
    let pid = if is(spec.map(|s| s.host_pid)) {
        Node
    } else if is(spec.map(|s| s.share_process_namespace)) {
        Shared
    } else if target.is_some() {
        Target
    } else {
        Container
    };
    let target_id = target.filter(|_| pid == Target).unwrap_or_default().to_owned();
    api::NamespaceOption { network: network.into(), pid: pid.into(), ipc: ipc.into(), target_id }
}

fn groups(of_pod: Option<&k8s::PodSecurityContext>) -> Vec<i64> {
    let Some(security) = of_pod else { return Vec::new() };
    let mut groups = security.supplemental_groups.clone().unwrap_or_default();
    groups.extend(security.fs_group);
    groups
}

fn number(value: i64) -> api::Int64Value {
    api::Int64Value { value }
}

fn selinux(options: &k8s::SELinuxOptions) -> api::SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    api::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

fn seccomp_profile(given: &k8s::SeccompProfile, dir: &Path) -> api::SecurityProfile {
    let file = given.localhost_profile.as_ref();
    profile(&given.type_, file.map(|file| dir.join(file).display().to_string()))
}

fn profile(kind: &str, named: Option<String>) -> api::SecurityProfile {
    let kind = ProfileType::from_str_name(kind).unwrap_or(ProfileType::Unconfined);
    let localhost_ref =
        if kind == ProfileType::Localhost { named.unwrap_or_default() } else { String::new() };
    api::SecurityProfile { profile_type: kind.into(), localhost_ref }
}
