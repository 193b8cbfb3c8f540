//! Finds the fields of a pod that are not honoured: by all runtimes, and by a particular runtime.
//!
//! No field is ignored silently: each is honoured, belongs to another component (scheduling, readiness gates), or is
//! reported. Ephemeral containers (`kubectl debug`), which can only be added to a running pod, are not checked: they
//! never cause a refusal.

use std::net::Ipv4Addr;
use std::path::Path;

use k8s_openapi::api::core::v1 as k8s;
use winddown_shared::{Pod, UnsupportedField};

use crate::environment::{
    EnvironmentFacts, VariablesRoom, command_line_within, environment_within, probe_command_within,
    unchanging,
};
use crate::http_get::invalid_fields;
use crate::{files, pod_resources, probe_client};

/// Most that a pod may have of what costs the agent work and memory. An API server accepts twenty thousand containers; no
/// pod that is meant to run has as many as these.
const MOST_CONTAINERS: usize = 500;
const MOST_VOLUMES: usize = 1000;
/// Of all its containers.
const MOST_MOUNTS: usize = 5000;
const MOST_PORTS: usize = 5000;

/// Collects refused fields, relative to a path.
#[derive(Debug, Default)]
pub struct Findings {
    path: String,
    all: Vec<UnsupportedField>,
}

/// Returns every field of `pod` that is not honoured; `of_pod` and `of_container` add what the particular runtime does
/// not honour, below `spec` and below each container. Pure.
pub fn check(
    pod: &Pod,
    of_pod: impl FnOnce(&k8s::PodSpec, &mut Findings),
    of_container: impl Fn(&k8s::PodSpec, &k8s::Container, &mut Findings),
) -> Vec<UnsupportedField> {
    let mut found = Findings::default();
    names(pod, &mut found);
    let Some(spec) = pod.spec.as_ref() else {
        found.refuse("spec", "a pod needs one");
        return found.all;
    };
    let before = found.all.len();
    found.within("spec", |found| amounts(spec, found));
    if found.all.len() > before {
        // What there is too much of is not looked at.
        return found.all;
    }
    found.within("spec", |found| {
        let claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
        found.refuse_if(claims, "resourceClaims", "devices are not allocated");
        let os = spec.os.as_ref().map_or("linux", |os| os.name.as_str());
        found.refuse_if(os != "linux", "os.name", "programs of other systems do not run here");
        for (field, why) in pod_resources::unsupported(spec.resources.as_ref()) {
            found.refuse(&field, why);
        }
        if let Some(security) = &spec.security_context {
            found.within("securityContext", |found| {
                found.id("runAsUser", security.run_as_user);
                found.id("runAsGroup", security.run_as_group);
                for (i, group) in security.supplemental_groups.iter().flatten().enumerate() {
                    found.id(&format!("supplementalGroups[{i}]"), Some(*group));
                }
            });
        }
        of_pod(spec, found);
        let mut room = VariablesRoom::of_pod();
        let init = spec.init_containers.as_deref().unwrap_or_default();
        for (list, containers) in [("initContainers", init), ("containers", &spec.containers)] {
            for (i, one) in containers.iter().enumerate() {
                found.within(&format!("{list}[{i}]"), |found| {
                    container(one, list == "initContainers", found);
                    of_container(spec, one, found);
                    variables(pod, one, &mut room, found);
                });
            }
        }
    });
    found.all
}

/// Refuses names after which no directory can be named.
fn names(pod: &Pod, found: &mut Findings) {
    for (field, text) in [
        ("metadata.uid", pod.uid().as_str()),
        ("metadata.name", pod.name()),
        ("metadata.namespace", pod.namespace()),
    ] {
        found.refuse_if(!files::is_safe(text), field, "cannot be the name of a directory");
    }
    // A kubelet fails to create the directory, and tries for ever.
    let logs = files::pod_logs(Path::new(""), pod.namespace(), pod.name(), pod.uid());
    let most = files::MAX_NAME_BYTES;
    let beyond = logs.as_os_str().len().saturating_sub(most);
    if beyond > 0 && found.all.is_empty() {
        let why = format!(
            "is too long by {beyond} for the name of the directory of its logs, `NAMESPACE_NAME_UID`, which has at most \
             {most} bytes: use a shorter one"
        );
        found.refuse("metadata.name", &why);
    }
}

fn amounts(spec: &k8s::PodSpec, found: &mut Findings) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    let all = || spec.containers.iter().chain(init);
    let sum = |count: fn(&k8s::Container) -> usize| all().map(count).sum::<usize>();
    let mounts = |one: &k8s::Container| {
        let devices = one.volume_devices.as_ref().map_or(0, Vec::len);
        one.volume_mounts.as_ref().map_or(0, Vec::len) + devices
    };
    let ports = |one: &k8s::Container| one.ports.as_ref().map_or(0, Vec::len);
    for (field, what, count, most) in [
        ("containers", "containers", all().count() + ephemeral, MOST_CONTAINERS),
        ("volumes", "volumes", spec.volumes.as_ref().map_or(0, Vec::len), MOST_VOLUMES),
        ("containers", "mounts of volumes", sum(mounts), MOST_MOUNTS),
        ("containers", "ports", sum(ports), MOST_PORTS),
    ] {
        let why = format!("{count} {what}, and a pod may have at most {most}");
        found.refuse_if(count > most, field, &why);
    }
}

fn container(one: &k8s::Container, is_init: bool, found: &mut Findings) {
    found.refuse_if(!files::is_safe(&one.name), "name", "cannot be the name of a directory");
    let from = one.env_from.as_ref().is_some_and(|e| !e.is_empty());
    found.refuse_if(from, "envFrom", "there is no API server to read it from: write `env`");
    let claims = one.resources.as_ref().and_then(|r| r.claims.as_ref());
    let claims = claims.is_some_and(|c| !c.is_empty());
    found.refuse_if(claims, "resources.claims", "devices are not allocated");
    let restart = one.restart_policy.as_deref();
    let odd = restart.is_some() && !(is_init && restart == Some("Always"));
    found.refuse_if(odd, "restartPolicy", "only an init container has one, and only `Always`");
    let rules = one.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty());
    found.refuse_if(rules, "restartPolicyRules", "exit codes have no rules: leave it out");
    if let Some(security) = &one.security_context {
        found.within("securityContext", |found| {
            found.id("runAsUser", security.run_as_user);
            found.id("runAsGroup", security.run_as_group);
        });
    }
    let lifecycle = one.lifecycle.as_ref();
    for (name, hook) in [
        ("lifecycle.postStart", lifecycle.and_then(|l| l.post_start.as_ref())),
        ("lifecycle.preStop", lifecycle.and_then(|l| l.pre_stop.as_ref())),
    ] {
        let Some(hook) = hook else { continue };
        found.within(name, |found| {
            let asked = (hook.exec.as_ref(), hook.http_get.as_ref(), hook.tcp_socket.as_ref());
            let nothing = !handler(one, asked, found) && hook.sleep.is_none();
            found.refuse_if(nothing, "", "says nothing to do");
        });
    }
    for (name, probe) in probes(one) {
        found.within(name, |found| {
            let asked = (probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
            let nothing = !handler(one, asked, found) && probe.grpc.is_none();
            found.refuse_if(nothing, "", "says nothing to ask");
            let port = probe.grpc.as_ref().map(|grpc| grpc.port);
            let is_port = port.is_none_or(|port| (1..=65535).contains(&port));
            found.refuse_if(!is_port, "grpc.port", "is not a port number");
            let mode = probe.grpc.as_ref().and_then(|grpc| grpc.mode.as_deref());
            let is_plain = matches!(mode, None | Some("Plaintext"));
            found.refuse_if(!is_plain, "grpc.mode", "TLS is not supported: write `Plaintext`");
            let ends_nothing =
                name == "readinessProbe" && probe.termination_grace_period_seconds.is_some();
            let why = "a readiness probe terminates nothing: leave it out";
            found.refuse_if(ends_nothing, "terminationGracePeriodSeconds", why);
        });
    }
}

/// The probes that a container has, by the names of their fields.
pub fn probes(one: &k8s::Container) -> impl Iterator<Item = (&'static str, &k8s::Probe)> {
    let all = [
        ("livenessProbe", one.liveness_probe.as_ref()),
        ("readinessProbe", one.readiness_probe.as_ref()),
        ("startupProbe", one.startup_probe.as_ref()),
    ];
    all.into_iter().filter_map(|(name, probe)| Some((name, probe?)))
}

/// Checks the actions that lifecycle handlers and probes have in common. Returns false if there is none.
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
        let scheme = http.scheme.as_deref().unwrap_or_default().to_ascii_uppercase();
        let is_known = matches!(&*scheme, "" | "HTTP" | "HTTPS");
        found.refuse_if(!is_known, "httpGet.scheme", "write `HTTP` or `HTTPS`");
        let one_version = "only HTTP/1.1 is supported: leave it out";
        found.refuse_if(http.protocol.is_some(), "httpGet.protocol", one_version);
        found.refuse_if(probe_client::port(&http.port, one).is_none(), "httpGet.port", no_port);
        for (field, why) in invalid_fields(http) {
            found.refuse(&format!("httpGet.{field}"), why);
        }
    }
    if let Some(tcp) = tcp {
        found.refuse_if(probe_client::port(&tcp.port, one).is_none(), "tcpSocket.port", no_port);
    }
    exec.is_some() || http.is_some() || tcp.is_some()
}

/// Checks that all variables, the command line and the commands of probes can be resolved and fit into the pod's room,
/// unless others have exceeded it; addresses are assumed to be known.
fn variables(pod: &Pod, one: &k8s::Container, room: &mut VariablesRoom, found: &mut Findings) {
    if room.is_exceeded() {
        return;
    }
    let node = EnvironmentFacts {
        name: String::new(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        allocatable: unchanging([]),
        memory_bytes: 0,
    };
    let resolved = environment_within(room, pod, one, &node).and_then(|env| {
        command_line_within(room, one, &env)?;
        probes(one).try_for_each(|(name, probe)| {
            let command = probe.exec.as_ref().and_then(|exec| exec.command.as_deref());
            let field = format!("{name}.exec.command");
            probe_command_within(room, &field, one, command.unwrap_or_default()).map(drop)
        })
    });
    if let Err(error) = resolved {
        found.refuse(&error.field, &error.why);
    }
}

impl Findings {
    /// Reports `field`, relative to the path, as not honoured; `why` says what to write instead. An empty field means
    /// the path itself.
    pub fn refuse(&mut self, field: &str, why: &str) {
        let dot = if self.path.is_empty() || field.is_empty() { "" } else { "." };
        let field = format!("{}{dot}{field}", self.path);
        self.all.push(UnsupportedField::new(field, why));
    }

    /// Reports an annotation of the pod as not honoured, whatever the path.
    pub fn refuse_annotation(&mut self, key: &str, why: &str) {
        self.all.push(UnsupportedField::new(format!("metadata.annotations[{key}]"), why));
    }

    /// Reports the field if `refused`.
    pub fn refuse_if(&mut self, refused: bool, field: &str, why: &str) {
        if refused {
            self.refuse(field, why);
        }
    }

    /// Reports a user or group id that is out of range.
    pub fn id(&mut self, field: &str, id: Option<i64>) {
        let wrong = id.is_some_and(|id| u32::try_from(id).is_err());
        self.refuse_if(wrong, field, "is not a user or group number");
    }

    /// Appends `step` to the path of everything that `work` reports.
    pub fn within(&mut self, step: &str, work: impl FnOnce(&mut Self)) {
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
mod tests {
    use serde_json::json;

    use super::*;

    /// What is refused of a pod whose name has this length.
    fn refused(length: usize) -> Vec<UnsupportedField> {
        let object = json!({
            "metadata": {"name": "w".repeat(length), "namespace": "shop", "uid": "u1"},
            "spec": {"containers": [{"name": "main"}]},
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        check(&pod, |_, _| {}, |_, _, _| {})
    }

    #[test]
    fn a_pod_whose_logs_no_directory_can_be_named_after_is_refused() {
        assert_eq!(refused(247), []);
        let found = refused(250);
        let [one] = &*found else { panic!("{found:?}") };
        assert_eq!(one.field, "metadata.name");
        assert!(one.why.starts_with("is too long by 3 "), "{}", one.why);
    }

    #[test]
    fn a_pod_of_more_containers_than_any_has_is_refused_by_their_number_and_no_further_looked_at() {
        let said = |containers: usize, each: serde_json::Value, volumes: usize| {
            let container = |i| {
                let mut one = each.clone();
                one["name"] = json!(format!("c{i}"));
                one
            };
            let object = json!({
                "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
                "spec": {
                    "containers": (1..containers).map(container).collect::<Vec<_>>(),
                    "initContainers": [{"name": "first"}],
                    "volumes": (0..volumes).map(|i| json!({"name": i.to_string()})).collect::<Vec<_>>(),
                },
            });
            let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
            let found = check(&pod, |_, _| {}, |_, _, found| found.refuse("name", "looked at"));
            found
                .iter()
                .take(3)
                .map(|one| format!("{}: {}", one.field, one.why))
                .collect::<Vec<_>>()
        };
        let plain = || json!({});
        assert_eq!(said(500, plain(), 1000).last().unwrap(), "spec.containers[1].name: looked at");
        let many = said(20_000, plain(), 1001);
        let wanted = [
            "spec.containers: 20000 containers, and a pod may have at most 500",
            "spec.volumes: 1001 volumes, and a pod may have at most 1000",
        ];
        assert_eq!(many, wanted);
        let mounts: Vec<_> =
            (0..11).map(|i| json!({"name": "v", "mountPath": format!("/{i}")})).collect();
        let ports: Vec<_> = (1..12).map(|i| json!({"containerPort": i})).collect();
        let wanted = [
            "spec.containers: 5489 mounts of volumes, and a pod may have at most 5000",
            "spec.containers: 5489 ports, and a pod may have at most 5000",
        ];
        assert_eq!(said(500, json!({"volumeMounts": mounts, "ports": ports}), 0), wanted);
    }
}
