//! What of a pod the CRI runtime cannot honour.

use std::path::Path;

use k8s_openapi::api::core::v1 as k8s;
use winddown_engine::environment::{NodeFacts, environment};
use winddown_engine::{files, pod_resources, probe_client};
use winddown_shared::{Pod, UnsupportedField};

use super::{spec, volumes};

/// Everything of `pod` that this runtime cannot honour; empty if it runs the pod as written.
///
/// Nothing is ignored in silence: a field is honoured, or belongs to another component (scheduling,
/// readiness gates), or is listed here. Containers that can only be added to a running pod
/// (`kubectl debug`) are not: they refuse no pod. Pure; use it in admission and to show what would
/// happen.
pub fn check_supported(pod: &Pod) -> Vec<UnsupportedField> {
    let mut found = Findings::default();
    for (field, text) in [
        ("metadata.uid", pod.uid().as_str()),
        ("metadata.name", pod.name()),
        ("metadata.namespace", pod.namespace()),
    ] {
        found.refuse_if(!files::is_safe(text), field, "cannot be the name of a directory");
    }
    let Some(spec) = pod.spec.as_ref() else {
        found.refuse_if(true, "spec", "a pod needs one");
        return found.all;
    };
    found.within("spec", |found| of_pod(spec, found));
    for (field, why) in pod_resources::unsupported(spec.resources.as_ref()) {
        found.refuse_if(true, &field, why);
    }
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        found.within(&format!("spec.volumes[{i}]"), |found| self::volume(volume, found));
    }
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [("initContainers", init), ("containers", &spec.containers)] {
        for (i, one) in containers.iter().enumerate() {
            found.within(&format!("spec.{list}[{i}]"), |found| {
                container(spec, one, list == "initContainers", found);
                variables(pod, one, found);
            });
        }
    }
    found.all
}

fn of_pod(spec: &k8s::PodSpec, found: &mut Findings) {
    let list = |is_empty: Option<bool>| is_empty == Some(false);
    let claims = list(spec.resource_claims.as_ref().map(Vec::is_empty));
    found.refuse_if(claims, "resourceClaims", "devices are not allocated");
    let no_users = "user namespaces are not made: leave it out";
    found.refuse_if(spec.host_users == Some(false), "hostUsers", no_users);
    let secrets = list(spec.image_pull_secrets.as_ref().map(Vec::is_empty));
    let no_secrets = "credentials are not read from Secrets: give the container runtime those of \
                      the registry, and leave it out of the pod and of its ServiceAccount";
    found.refuse_if(secrets, "imagePullSecrets", no_secrets);
    let no_domain = "host names have no domain: leave it out";
    found.refuse_if(spec.set_hostname_as_fqdn == Some(true), "setHostnameAsFQDN", no_domain);
    let os = spec.os.as_ref().map_or("linux", |os| os.name.as_str());
    found.refuse_if(os != "linux", "os.name", "programs of other systems do not run here");
    let both = spec.host_pid == Some(true) && spec.share_process_namespace == Some(true);
    found.refuse_if(both, "shareProcessNamespace", "hostPID is set too: write only one");
    let Some(security) = &spec.security_context else { return };
    found.within("securityContext", |found| {
        let policy = security.supplemental_groups_policy.as_deref().unwrap_or("Merge");
        let merge = "only `Merge` is done: leave it out";
        found.refuse_if(policy != "Merge", "supplementalGroupsPolicy", merge);
        found.refuse_if(security.windows_options.is_some(), "windowsOptions", NO_WINDOWS);
        id(security.run_as_user, "runAsUser", found);
        id(security.run_as_group, "runAsGroup", found);
        id(security.fs_group, "fsGroup", found);
        for (i, group) in security.supplemental_groups.iter().flatten().enumerate() {
            id(Some(*group), &format!("supplementalGroups[{i}]"), found);
        }
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
        return;
    }
    if let Some(host) = &volume.host_path {
        let path = Path::new(&host.path);
        let climbs = !path.is_absolute() || host.path.split('/').any(|part| part == "..");
        found.refuse_if(climbs, "hostPath.path", "write an absolute path without `..`");
        return;
    }
    let kinds = match serde_json::to_value(volume) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    };
    let kind = kinds.keys().find(|key| *key != "name").cloned().unwrap_or_default();
    let why = if volume.name.starts_with("kube-api-access-") {
        "tokens are not mounted: write `automountServiceAccountToken: false`"
    } else {
        "only hostPath and emptyDir volumes are mounted"
    };
    found.refuse_if(true, &kind, why);
}

fn container(spec: &k8s::PodSpec, one: &k8s::Container, is_init: bool, found: &mut Findings) {
    found.refuse_if(!files::is_safe(&one.name), "name", "cannot be the name of a directory");
    let image = one.image.as_deref().unwrap_or_default();
    found.refuse_if(image.is_empty(), "image", "a container needs one");
    let devices = one.volume_devices.as_ref().is_some_and(|d| !d.is_empty());
    found.refuse_if(
        devices,
        "volumeDevices",
        "block devices are not passed: use a hostPath volume",
    );
    let from = one.env_from.as_ref().is_some_and(|e| !e.is_empty());
    found.refuse_if(from, "envFrom", "there is no API server to read it from: write `env`");
    let claims = one.resources.as_ref().and_then(|r| r.claims.as_ref());
    found.refuse_if(
        claims.is_some_and(|c| !c.is_empty()),
        "resources.claims",
        "devices are not allocated",
    );
    let restart = one.restart_policy.as_deref();
    found.refuse_if(
        restart.is_some() && !(is_init && restart == Some("Always")),
        "restartPolicy",
        "only an init container has one, and only `Always`",
    );
    let path = spec::message_path(one);
    found.refuse_if(!path.is_absolute(), "terminationMessagePath", "write an absolute path");
    mounts(spec, one, found);
    lifecycle(one, found);
    probes(one, found);
    let Some(security) = &one.security_context else { return };
    found.within("securityContext", |found| {
        found.refuse_if(security.windows_options.is_some(), "windowsOptions", NO_WINDOWS);
        let proc_mount = security.proc_mount.as_deref().unwrap_or("Default");
        let known = matches!(proc_mount, "Default" | "Unmasked");
        found.refuse_if(!known, "procMount", "write `Default` or `Unmasked`");
        id(security.run_as_user, "runAsUser", found);
        id(security.run_as_group, "runAsGroup", found);
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
            let sub = mount.sub_path.as_deref().unwrap_or_default();
            let inside = volumes::is_inside(Path::new(sub));
            found.refuse_if(!inside, "subPath", "write a path below the volume, without `..`");
        });
    }
}

/// What the environment asks for must be known; addresses are taken to be.
fn variables(pod: &Pod, one: &k8s::Container, found: &mut Findings) {
    let node = NodeFacts {
        name: String::new(),
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
    };
    if let Err(error) = environment(pod, one, &node) {
        found.refuse_if(true, &error.field, &error.why);
    }
}

fn lifecycle(one: &k8s::Container, found: &mut Findings) {
    let Some(lifecycle) = &one.lifecycle else { return };
    let hooks = [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)];
    for (name, hook) in hooks {
        let Some(hook) = hook else { continue };
        found.within(&format!("lifecycle.{name}"), |found| {
            let asked = (hook.exec.as_ref(), hook.http_get.as_ref(), hook.tcp_socket.as_ref());
            let nothing = !handler(one, asked, found) && hook.sleep.is_none();
            found.refuse_if(nothing, "", "says nothing to do");
        });
    }
    if let Some(name) = &lifecycle.stop_signal {
        let known = spec::signal(name).is_some();
        found.refuse_if(!known, "lifecycle.stopSignal", "is not a signal that is passed on");
    }
}

fn probes(one: &k8s::Container, found: &mut Findings) {
    let all = [
        ("livenessProbe", &one.liveness_probe),
        ("readinessProbe", &one.readiness_probe),
        ("startupProbe", &one.startup_probe),
    ];
    for (name, probe) in all {
        let Some(probe) = probe else { continue };
        found.within(name, |found| {
            let asked = (probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
            let nothing = !handler(one, asked, found) && probe.grpc.is_none();
            found.refuse_if(nothing, "", "says nothing to ask");
            found.refuse_if(
                probe.termination_grace_period_seconds.is_some(),
                "terminationGracePeriodSeconds",
                "the pod's own grace is used: leave it out",
            );
        });
    }
}

/// What lifecycle handlers and probes have in common. False if nothing of it is asked.
fn handler(
    one: &k8s::Container,
    (exec, http, tcp): (
        Option<&k8s::ExecAction>,
        Option<&k8s::HTTPGetAction>,
        Option<&k8s::TCPSocketAction>,
    ),
    found: &mut Findings,
) -> bool {
    let is_empty = |e: &k8s::ExecAction| e.command.as_deref().unwrap_or_default().is_empty();
    found.refuse_if(exec.is_some_and(is_empty), "exec.command", "there is nothing to run");
    let no_port = "is neither a port number nor the name of a port of this container";
    if let Some(http) = http {
        let is_tls = http.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https"));
        found.refuse_if(is_tls, "httpGet.scheme", "HTTPS is not spoken: use `exec`");
        found.refuse_if(probe_client::port(&http.port, one).is_none(), "httpGet.port", no_port);
        for field in probe_client::unsendable(http) {
            found.refuse_if(true, &format!("httpGet.{field}"), field.why());
        }
    }
    if let Some(tcp) = tcp {
        found.refuse_if(probe_client::port(&tcp.port, one).is_none(), "tcpSocket.port", no_port);
    }
    exec.is_some() || http.is_some() || tcp.is_some()
}

fn id(given: Option<i64>, field: &str, found: &mut Findings) {
    let wrong = given.is_some_and(|id| u32::try_from(id).is_err());
    found.refuse_if(wrong, field, "is not a user or group number");
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

/// A kind that is misspelt would confine nothing.
fn kind_of_profile(kind: &str, found: &mut Findings) {
    let known = matches!(kind, "RuntimeDefault" | "Localhost" | "Unconfined");
    found.refuse_if(!known, "type", "write `RuntimeDefault`, `Localhost` or `Unconfined`");
}

/// Collects, under a field's path.
#[derive(Default)]
struct Findings {
    path: String,
    all: Vec<UnsupportedField>,
}

impl Findings {
    fn refuse_if(&mut self, refused: bool, field: &str, why: &str) {
        if refused {
            let dot = if self.path.is_empty() || field.is_empty() { "" } else { "." };
            let field = format!("{}{dot}{field}", self.path);
            self.all.push(UnsupportedField { field, why: why.to_owned() });
        }
    }

    fn within(&mut self, step: &str, work: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(step);
        work(self);
        self.path.truncate(length);
    }
}

#[cfg(test)]
mod tests;
