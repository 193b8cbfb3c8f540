//! What of a pod the process runtime cannot honour.

use k8s_openapi::api::core::v1 as api;
use winddown_engine::environment::{NodeFacts, environment};
use winddown_engine::{files, pod_resources, probe_client};
use winddown_shared::{Pod, UnsupportedField};

use super::launch;

/// Everything of `pod` that this runtime cannot honour; empty if it runs the pod as written.
///
/// Nothing is ignored in silence: a field is honoured, or has no meaning without an image (for
/// example `imagePullPolicy`), or belongs to another component (scheduling, probes of readiness
/// gates), or is listed here. Containers that can only be added to a running pod (`kubectl debug`)
/// are not: they refuse no pod. Pure; use it in admission and to show what would happen.
pub fn check_supported(pod: &Pod) -> Vec<UnsupportedField> {
    let mut found = Findings::default();
    for (field, text) in [
        ("metadata.uid", pod.uid().as_str()),
        ("metadata.name", pod.name()),
        ("metadata.namespace", pod.namespace()),
    ] {
        found
            .refuse_if(!files::is_safe(text), field, || "cannot be the name of a directory".into());
    }
    let Some(spec) = pod.spec.as_ref() else {
        found.refuse("spec", "a pod needs one");
        return found.0;
    };
    pod_network(spec, &mut found);
    pod_isolation(spec, &mut found);
    if let Some(security) = &spec.security_context {
        pod_security(security, &mut found);
    }
    let lists = [
        ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        ("containers", &spec.containers),
    ];
    for (list, containers) in lists {
        for (i, one) in containers.iter().enumerate() {
            let is_init = list == "initContainers";
            let mut found = found.below(&format!("spec.{list}[{i}]"));
            container(spec, one, is_init, &mut found);
            variables(pod, one, &mut found);
        }
    }
    found.0
}

/// Collects, under a field's path.
#[derive(Default)]
struct Findings(Vec<UnsupportedField>);

struct Below<'a> {
    path: String,
    all: &'a mut Findings,
}

fn pod_network(spec: &api::PodSpec, found: &mut Findings) {
    found.refuse_if(spec.host_network != Some(true), "spec.hostNetwork", || {
        "processes of the host are on the host's network: write `hostNetwork: true`".into()
    });
    let policy = spec.dns_policy.as_deref().unwrap_or_default();
    found.refuse_if(matches!(policy, "None" | "ClusterFirstWithHostNet"), "spec.dnsPolicy", || {
        format!("{policy} is not done: the host's resolver is used, write `dnsPolicy: Default`")
    });
    let own_names = "the host's own files are used: leave it out";
    found.refuse_if(spec.dns_config.is_some(), "spec.dnsConfig", || own_names.into());
    let aliases = spec.host_aliases.as_ref().is_some_and(|a| !a.is_empty());
    found.refuse_if(aliases, "spec.hostAliases", || own_names.into());
    let own_name = "the pod has the host's name: leave it out";
    found.refuse_if(spec.hostname.is_some(), "spec.hostname", || own_name.into());
    found.refuse_if(spec.subdomain.is_some(), "spec.subdomain", || own_name.into());
    let fqdn = spec.set_hostname_as_fqdn == Some(true);
    found.refuse_if(fqdn, "spec.setHostnameAsFQDN", || own_name.into());
}

fn pod_isolation(spec: &api::PodSpec, found: &mut Findings) {
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        let token = volume.name.starts_with("kube-api-access-");
        found.refuse(
            format!("spec.volumes[{i}]"),
            if token {
                "volumes are not mounted: write `automountServiceAccountToken: false`"
            } else {
                "volumes are not mounted: use paths of the host in the command"
            },
        );
    }
    let claims = spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty());
    found.refuse_if(claims, "spec.resourceClaims", || "devices are not allocated".into());
    for (field, why) in pod_resources::unsupported(spec.resources.as_ref()) {
        found.refuse(field, why);
    }
    found.refuse_if(spec.host_users == Some(false), "spec.hostUsers", || {
        "there is no user namespace: leave it out".into()
    });
    let class = spec.runtime_class_name.as_ref().is_some_and(|c| !c.is_empty());
    found.refuse_if(class, "spec.runtimeClassName", || "there is one runtime: leave it out".into());
    let os = spec.os.as_ref().map_or("linux", |os| os.name.as_str());
    found.refuse_if(os != "linux", "spec.os.name", || format!("{os} programs do not run here"));
}

fn pod_security(security: &api::PodSecurityContext, found: &mut Findings) {
    let mut found = found.below("spec.securityContext");
    found.refuse_if(security.fs_group.is_some(), "fsGroup", "there are no volumes: leave it out");
    let merge = security.supplemental_groups_policy.as_deref() == Some("Merge");
    found.refuse_if(
        merge,
        "supplementalGroupsPolicy",
        "groups of /etc/group are not added: write `Strict`, and list them in supplementalGroups",
    );
    let sysctls = security.sysctls.as_ref().is_some_and(|s| !s.is_empty());
    found.refuse_if(sysctls, "sysctls", "they would change the host: set them there");
    found.ids(&[("runAsUser", security.run_as_user), ("runAsGroup", security.run_as_group)]);
    for (i, group) in security.supplemental_groups.iter().flatten().enumerate() {
        found.ids(&[(&format!("supplementalGroups[{i}]"), Some(*group))]);
    }
    profiles(
        security.seccomp_profile.as_ref(),
        security.app_armor_profile.as_ref(),
        security.se_linux_options.is_some(),
        security.windows_options.is_some(),
        &mut found,
    );
}

fn container(spec: &api::PodSpec, one: &api::Container, is_init: bool, found: &mut Below<'_>) {
    found.refuse_if(!files::is_safe(&one.name), "name", "cannot be the name of a directory");
    let words = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|w| !w.is_empty());
    found.refuse_if(
        !words(&one.command) && !words(&one.args),
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
    let from = one.env_from.as_ref().is_some_and(|e| !e.is_empty());
    found.refuse_if(from, "envFrom", "there is no API server to read it from: write `env`");
    let claims =
        one.resources.as_ref().and_then(|r| r.claims.as_ref()).is_some_and(|c| !c.is_empty());
    found.refuse_if(claims, "resources.claims", "devices are not allocated");
    let limits = one.resources.as_ref().and_then(|r| r.limits.as_ref()).into_iter().flatten();
    for (name, _) in limits.filter(|(name, _)| name.starts_with("hugepages-")) {
        let why = "huge pages are not limited: leave it out";
        found.refuse_if(true, format!("resources.limits.{name}"), why);
    }
    let path = one.termination_message_path.as_deref().unwrap_or_default();
    found.refuse_if(
        !matches!(path, "" | "/dev/termination-log"),
        "terminationMessagePath",
        &format!("write to the file that ${} names", launch::TERMINATION_LOG_VARIABLE),
    );
    let restart = one.restart_policy.as_deref();
    found.refuse_if(
        restart.is_some() && !(is_init && restart == Some("Always")),
        "restartPolicy",
        "only an init container has one, and only `Always`",
    );
    lifecycle(one, found);
    probes(one, found);
    container_security(spec, one, found);
}

/// What the environment asks for must be known; the node's own address is taken to be.
fn variables(pod: &Pod, one: &api::Container, found: &mut Below<'_>) {
    let node = NodeFacts {
        name: String::new(),
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        cpu_milli: 1000,
        memory_bytes: 1 << 30,
    };
    if let Err(error) = environment(pod, one, &node) {
        found.refuse_if(true, error.field, &error.why);
    }
}

fn lifecycle(one: &api::Container, found: &mut Below<'_>) {
    let Some(lifecycle) = &one.lifecycle else { return };
    let hooks = [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)];
    for (name, hook) in hooks {
        let Some(hook) = hook else { continue };
        let path = format!("lifecycle.{name}");
        handler(one, &path, (&hook.exec, &hook.http_get, &hook.tcp_socket), found);
        let nothing = hook.exec.is_none() && hook.http_get.is_none() && hook.tcp_socket.is_none();
        found.refuse_if(nothing && hook.sleep.is_none(), path, "says nothing to do");
    }
    if let Some(name) = &lifecycle.stop_signal {
        let known = launch::parse_signal(name).is_some();
        found.refuse_if(!known, "lifecycle.stopSignal", &format!("{name} is not a signal"));
    }
}

fn probes(one: &api::Container, found: &mut Below<'_>) {
    let all = [
        ("livenessProbe", &one.liveness_probe),
        ("readinessProbe", &one.readiness_probe),
        ("startupProbe", &one.startup_probe),
    ];
    for (name, probe) in all {
        let Some(probe) = probe else { continue };
        handler(one, name, (&probe.exec, &probe.http_get, &probe.tcp_socket), found);
        let grpc = "gRPC is not spoken: use `exec`, `httpGet` or `tcpSocket`";
        found.refuse_if(probe.grpc.is_some(), format!("{name}.grpc"), grpc);
        found.refuse_if(
            probe.termination_grace_period_seconds.is_some(),
            format!("{name}.terminationGracePeriodSeconds"),
            "the pod's own grace is used: leave it out",
        );
        let nothing =
            probe.exec.is_none() && probe.http_get.is_none() && probe.tcp_socket.is_none();
        found.refuse_if(nothing && probe.grpc.is_none(), name, "says nothing to ask");
    }
}

/// What lifecycle handlers and probes have in common.
fn handler(
    one: &api::Container,
    path: &str,
    (exec, http, tcp): (
        &Option<api::ExecAction>,
        &Option<api::HTTPGetAction>,
        &Option<api::TCPSocketAction>,
    ),
    found: &mut Below<'_>,
) {
    let is_empty = |e: &api::ExecAction| e.command.as_deref().unwrap_or_default().is_empty();
    let at = |field: &str| format!("{path}.{field}");
    found.refuse_if(
        exec.as_ref().is_some_and(is_empty),
        at("exec.command"),
        "there is nothing to run",
    );
    let no_port = "is neither a port number nor the name of a port of this container";
    if let Some(http) = http {
        let is_tls = http.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https"));
        found.refuse_if(is_tls, at("httpGet.scheme"), "HTTPS is not spoken: use `exec`");
        found.refuse_if(probe_client::port(&http.port, one).is_none(), at("httpGet.port"), no_port);
        for field in probe_client::unsendable(http) {
            found.refuse_if(true, at(&format!("httpGet.{field}")), field.why());
        }
    }
    if let Some(tcp) = tcp {
        found.refuse_if(
            probe_client::port(&tcp.port, one).is_none(),
            at("tcpSocket.port"),
            no_port,
        );
    }
}

fn container_security(spec: &api::PodSpec, one: &api::Container, found: &mut Below<'_>) {
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
    let mut found = found.all.below(&format!("{}.securityContext", found.path));
    found.ids(&[("runAsUser", security.run_as_user), ("runAsGroup", security.run_as_group)]);
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
        security.app_armor_profile.as_ref(),
        security.se_linux_options.is_some(),
        security.windows_options.is_some(),
        &mut found,
    );
}

fn profiles(
    seccomp: Option<&api::SeccompProfile>,
    app_armor: Option<&api::AppArmorProfile>,
    se_linux: bool,
    windows: bool,
    found: &mut Below<'_>,
) {
    let why = "no profile is applied: write `type: Unconfined` or leave it out";
    let confined = |kind: Option<&str>| kind.is_some_and(|k| k != "Unconfined");
    found.refuse_if(confined(seccomp.map(|s| &*s.type_)), "seccompProfile", why);
    found.refuse_if(confined(app_armor.map(|s| &*s.type_)), "appArmorProfile", why);
    found.refuse_if(se_linux, "seLinuxOptions", "labels are not set: leave it out");
    found.refuse_if(windows, "windowsOptions", "this is not Windows: leave it out");
}

// === impl Findings ===

impl Findings {
    fn refuse(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.0.push(UnsupportedField { field: field.into(), why: why.into() });
    }

    fn refuse_if(&mut self, refused: bool, field: &str, why: impl FnOnce() -> String) {
        if refused {
            self.refuse(field, why());
        }
    }

    fn below(&mut self, path: &str) -> Below<'_> {
        Below { path: path.to_owned(), all: self }
    }
}

// === impl Below ===

impl Below<'_> {
    fn refuse_if(&mut self, refused: bool, field: impl AsRef<str>, why: &str) {
        if refused {
            self.all.refuse(format!("{}.{}", self.path, field.as_ref()), why);
        }
    }

    fn ids(&mut self, fields: &[(&str, Option<i64>)]) {
        for (field, id) in fields {
            let wrong = id.is_some_and(|id| u32::try_from(id).is_err());
            self.refuse_if(wrong, field, "is not a user or group number");
        }
    }
}

#[cfg(test)]
mod tests;
