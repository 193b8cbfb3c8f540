//! Finds the fields of a pod that a program of the host cannot honour.

use k8s_openapi::api::core::v1 as api;
use winddown_engine::support::{Findings, check, probes};
use winddown_shared::{Pod, UnsupportedField};

use super::launch;

/// The key of the annotation that names the AppArmor profile of a container, with the container's name after it.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Returns every field of `pod` that a program of the host cannot honour; empty if the pod runs as written. Fields that
/// mean nothing without an image (`imagePullPolicy`, for example) are not reported. Pure; use it in admission, or to
/// show in advance what would be refused.
pub fn check_supported(pod: &Pod) -> Vec<UnsupportedField> {
    let of_pod = |spec: &api::PodSpec, found: &mut Findings| {
        pod_network(spec, found);
        pod_isolation(spec, found);
        if let Some(security) = &spec.security_context {
            found.within("securityContext", |found| pod_security(security, found));
        }
    };
    check(pod, of_pod, |spec, one, found| {
        container(one, found);
        container_security(pod, spec, one, found);
    })
}

fn pod_network(spec: &api::PodSpec, found: &mut Findings) {
    let own_network = "processes of the host are on the host's network: write `hostNetwork: true`";
    found.refuse_if(spec.host_network != Some(true), "hostNetwork", own_network);
    let policy = spec.dns_policy.as_deref().unwrap_or_default();
    if matches!(policy, "None" | "ClusterFirstWithHostNet") {
        found.refuse("dnsPolicy", "the host's resolver is used: write `dnsPolicy: Default`");
    }
    let own_names = "the host's own files are used: leave it out";
    found.refuse_if(spec.dns_config.is_some(), "dnsConfig", own_names);
    let aliases = spec.host_aliases.as_ref().is_some_and(|a| !a.is_empty());
    found.refuse_if(aliases, "hostAliases", own_names);
    let own_name = "the pod has the host's name: leave it out";
    found.refuse_if(spec.hostname.is_some(), "hostname", own_name);
    found.refuse_if(spec.hostname_override.is_some(), "hostnameOverride", own_name);
    found.refuse_if(spec.subdomain.is_some(), "subdomain", own_name);
    found.refuse_if(spec.set_hostname_as_fqdn == Some(true), "setHostnameAsFQDN", own_name);
}

fn pod_isolation(spec: &api::PodSpec, found: &mut Findings) {
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        let why = if volume.name.starts_with("kube-api-access-") {
            "volumes are not mounted: write `automountServiceAccountToken: false`"
        } else {
            "volumes are not mounted: use paths of the host in the command"
        };
        found.refuse(&format!("volumes[{i}]"), why);
    }
    let no_users = "there is no user namespace: leave it out";
    found.refuse_if(spec.host_users == Some(false), "hostUsers", no_users);
    let class = spec.runtime_class_name.as_ref().is_some_and(|c| !c.is_empty());
    found.refuse_if(class, "runtimeClassName", "there is one runtime: leave it out");
}

fn pod_security(security: &api::PodSecurityContext, found: &mut Findings) {
    found.refuse_if(security.fs_group.is_some(), "fsGroup", "there are no volumes: leave it out");
    let merge = security.supplemental_groups_policy.as_deref() == Some("Merge");
    found.refuse_if(
        merge,
        "supplementalGroupsPolicy",
        "groups of /etc/group are not added: write `Strict`, and list them in supplementalGroups",
    );
    let sysctls = security.sysctls.as_ref().is_some_and(|s| !s.is_empty());
    found.refuse_if(sysctls, "sysctls", "they would change the host: set them there");
    profiles(
        security.seccomp_profile.as_ref(),
        security.app_armor_profile.as_ref(),
        security.se_linux_options.is_some(),
        security.windows_options.is_some(),
        found,
    );
}

fn container(one: &api::Container, found: &mut Findings) {
    let words = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|w| !w.is_empty());
    // Arguments without a program are the program where no image is named that would have an entry point.
    let is_image = one.image.as_deref().is_some_and(|image| !matches!(image, "" | "host"));
    found.refuse_if(
        !words(&one.command) && (is_image || !words(&one.args)),
        "command",
        "the image is not pulled, so its entry point is not known: write the program to run",
    );
    let terminal = "there is no terminal and no stdin: leave it out";
    found.refuse_if(one.stdin == Some(true), "stdin", terminal);
    found.refuse_if(one.tty == Some(true), "tty", terminal);
    let mounts = one.volume_mounts.as_ref().is_some_and(|m| !m.is_empty());
    found.refuse_if(mounts, "volumeMounts", "volumes are not mounted: use paths of the host");
    let devices = one.volume_devices.as_ref().is_some_and(|d| !d.is_empty());
    found.refuse_if(devices, "volumeDevices", "devices are not passed: use the host's");
    let limits = one.resources.as_ref().and_then(|r| r.limits.as_ref()).into_iter().flatten();
    for (name, _) in limits.filter(|(name, _)| name.starts_with("hugepages-")) {
        let why = "huge pages are not limited: leave it out";
        found.refuse(&format!("resources.limits.{name}"), why);
    }
    let path = one.termination_message_path.as_deref().unwrap_or_default();
    found.refuse_if(
        !matches!(path, "" | "/dev/termination-log"),
        "terminationMessagePath",
        &format!("write to the file that ${} names", launch::TERMINATION_LOG_VARIABLE),
    );
    if let Some(name) = one.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref()) {
        let known = launch::parse_signal(name).is_some();
        let why = match name.starts_with("SIGRT") {
            true => "no real-time signal is sent to a program of the host".to_owned(),
            false => format!("{name} is not a signal"),
        };
        found.refuse_if(!known, "lifecycle.stopSignal", &why);
    }
    for (name, probe) in probes(one) {
        let grpc = "gRPC is not supported: use `exec`, `httpGet` or `tcpSocket`";
        found.refuse_if(probe.grpc.is_some(), &format!("{name}.grpc"), grpc);
    }
}

fn container_security(pod: &Pod, spec: &api::PodSpec, one: &api::Container, found: &mut Findings) {
    let of_pod = spec.security_context.as_ref();
    let own = one.security_context.as_ref();
    let user = own.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user));
    let not_root = own.and_then(|s| s.run_as_non_root).or(of_pod.and_then(|s| s.run_as_non_root));
    found.refuse_if(
        not_root == Some(true) && matches!(user, None | Some(0)),
        "securityContext.runAsNonRoot",
        "without an image there is no user to take: write `runAsUser` with a number above 0",
    );
    let Some(security) = own else { return };
    let mut app_armor = security.app_armor_profile.as_ref();
    // The source of the pod has written it into the field.
    let key = format!("{APPARMOR}{}", one.name);
    let said = pod.metadata.annotations.as_ref().and_then(|all| all.get(&key));
    if said.is_some_and(|said| !said.is_empty()) {
        let profile = app_armor.take();
        if profile.is_some_and(|profile| is_confined(&profile.type_)) {
            found.refuse_annotation(&key, "no profile is applied: write `unconfined` or remove it");
        }
    }
    found.within("securityContext", |found| own_security(security, app_armor, found));
}

fn own_security(
    security: &api::SecurityContext,
    app_armor: Option<&api::AppArmorProfile>,
    found: &mut Findings,
) {
    found.refuse_if(
        security.read_only_root_filesystem == Some(true),
        "readOnlyRootFilesystem",
        "the host's file system is used as it is: leave it out",
    );
    let some = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|l| !l.is_empty());
    let capabilities = security.capabilities.as_ref();
    found.refuse_if(
        capabilities.is_some_and(|c| some(&c.add) || some(&c.drop)),
        "capabilities",
        "they are not changed: use `runAsUser`",
    );
    let proc_mount = security.proc_mount.as_deref().unwrap_or("Default");
    found.refuse_if(proc_mount != "Default", "procMount", "the host's /proc is used: leave it out");
    profiles(
        security.seccomp_profile.as_ref(),
        app_armor,
        security.se_linux_options.is_some(),
        security.windows_options.is_some(),
        found,
    );
}

fn profiles(
    seccomp: Option<&api::SeccompProfile>,
    app_armor: Option<&api::AppArmorProfile>,
    se_linux: bool,
    windows: bool,
    found: &mut Findings,
) {
    let why = "no profile is applied: write `type: Unconfined` or leave it out";
    found.refuse_if(seccomp.is_some_and(|s| is_confined(&s.type_)), "seccompProfile", why);
    found.refuse_if(app_armor.is_some_and(|a| is_confined(&a.type_)), "appArmorProfile", why);
    found.refuse_if(se_linux, "seLinuxOptions", "labels are not set: leave it out");
    found.refuse_if(windows, "windowsOptions", "this is not Windows: leave it out");
}

fn is_confined(kind: &str) -> bool {
    kind != "Unconfined"
}

#[cfg(test)]
mod tests;
