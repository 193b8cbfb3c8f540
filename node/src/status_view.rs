//! Builds the node's `status` from the state of its parts. Nothing here waits for a disk or a runtime: all of
//! it is in memory.

use std::collections::HashMap;
use std::path::Path;

use k8s_openapi::api::core::v1 as kube;
use winddown_host::pod_logs;
use winddown_shared::status::{PodPhase, StatusEntry, is_terminal};
use winddown_shared::{
    AdmissionFailure, ContainerKind, HostPorts, Lifecycle, LockState, Pod, PodKiller, PodSnapshot,
    PodUid, Runtime, RuntimePod,
};

use crate::metrics::{PodCounts, ScrapedNode};
use crate::{Node, PodSource, Product, Settings, SettingsSource, plugin};
use winddown_control::api;

impl<R: Runtime> Node<R> {
    pub(super) fn picture(&self) -> api::Status {
        let core = &*self.0.core;
        let Settings { source, runtime, manifests, .. } = self.0.settings.borrow().clone();
        let SettingsSource { file, loaded_at, at_restart, mut warnings, .. } = source;
        warnings
            .extend(core.fit.found().iter().flat_map(|found| found.warnings().collect::<Vec<_>>()));
        warnings.extend(self.0.metrics_problem.borrow().clone());
        let (pods, rejected) = self.pods();
        let (time, node, revision) = (core.wall.now(), self.identity(), *core.changes.borrow());
        let mut status = api::Status { time, node, revision, ..api::Status::default() };
        let health = core.runtime_health();
        status.runtime = api::RuntimeStatus {
            name: runtime,
            healthy: health.is_ok(),
            message: health.err().unwrap_or_default(),
        };
        status.config = api::ConfigStatus {
            file: file.map(|f| f.display().to_string()).unwrap_or_default(),
            loaded_at,
            at_restart,
            warnings,
            ..api::ConfigStatus::default()
        };
        status.plugins = plugin::statuses(&self.0.plugin_notes);
        let reasons = core.gate.reasons();
        status.admission_closed = !reasons.is_empty();
        status.admission_closed_by = reasons.iter().map(Into::into).collect();
        status.pods_unknown = !core.workers.running().known;
        status.pods = pods;
        if let Some(logs) = core.runtime.pod_logs() {
            status.pods.iter_mut().for_each(|pod| name_logs(logs, pod));
        }
        status.rejected = rejected;
        status.manifests = self.manifests(manifests.as_deref().or(self.0.manifests.as_deref()));
        status.decisions = core.recorders.decisions.last();
        self.0.sections.iter().for_each(|section| section.status(&mut status));
        status
    }

    /// The current state of the node, for a scrape.
    pub(super) fn facts(&self) -> ScrapedNode {
        let core = &*self.0.core;
        let wanted = core.wanted.borrow().clone();
        let wanted = wanted.iter().flat_map(|wanted| &wanted.pods);
        let manifests = self.0.sources.iter().filter_map(PodSource::manifests);
        let has_ended = |pod: &Pod| core.statuses.get(pod.uid()).is_some_and(|s| is_terminal(&s));
        let mut facts = ScrapedNode {
            product: core.product().clone(),
            pods: PodCounts::of(wanted, &core.workers.snapshot(), has_ended),
            manifest_problems: manifests.map(|manifests| manifests.errors.len()).sum(),
            process: self.0.process.read(),
            gate: core.gate.reasons(),
            ..ScrapedNode::default()
        };
        self.0.sections.iter().for_each(|section| section.facts(&mut facts));
        facts.pods.mirrors = facts.cluster.as_ref().map_or(0, |cluster| cluster.mirrors);
        facts
    }

    fn identity(&self) -> api::NodeStatus {
        let product = self.0.core.product();
        api::NodeStatus {
            name: self.0.core.identity.name.clone(),
            boot_id: self.0.core.identity.boot_id.clone(),
            product: (product != &Product::default()).then(|| product.name().to_owned()),
            version: product.version().to_owned(),
            pid: std::process::id(),
            started_at: Some(self.0.started_at),
            uptime_seconds: self.0.started.elapsed().as_secs(),
        }
    }

    fn manifests(&self, directory: Option<&std::path::Path>) -> api::Manifests {
        let manifests = self.0.sources.iter().filter_map(PodSource::manifests);
        let kept = kept_for_want_of_a_manifest(&self.0.core.workers.running().runtime_only);
        api::Manifests {
            directory: directory.map(|d| d.display().to_string()).unwrap_or_default(),
            problems: manifests
                .flat_map(|manifests| manifests.errors.clone())
                .map(|problem| api::ManifestProblem {
                    file: problem.file.display().to_string(),
                    line: problem.line.and_then(|line| u64::try_from(line).ok()),
                    field: problem.field,
                    message: match &kept {
                        Some(kept) if problem.may_run => format!("{}; {kept}", problem.message),
                        _ => problem.message,
                    },
                    since: Some(problem.since),
                })
                .collect(),
        }
    }

    fn pods(&self) -> (Vec<api::PodStatus>, Vec<api::RejectedPod>) {
        let said = self.0.core.statuses.all();
        let mut said: HashMap<PodUid, StatusEntry> =
            said.into_iter().map(|entry| (entry.pod.uid().clone(), entry)).collect();
        let mut pods: Vec<api::PodStatus> = self
            .0
            .core
            .workers
            .snapshot()
            .into_iter()
            .filter_map(|snapshot| one_pod(&snapshot, said.remove(&snapshot.uid).as_ref()))
            .collect();
        // A pod with a status but without a worker was refused, or waits.
        let (held, rest): (Vec<_>, Vec<_>) = said.into_values().partition(is_held);
        pods.extend(held.iter().map(waiting));
        let lifecycle = |uid: &PodUid| self.0.core.workers.lifecycle(uid);
        let runtime_only = self.0.core.workers.running().runtime_only;
        pods.extend(runtime_only.iter().map(|pod| without_manifest(pod, lifecycle(&pod.uid))));
        let running = || self.0.core.workers.running().into_pods();
        let mut rejected: Vec<api::RejectedPod> =
            rest.into_iter().map(|entry| refused(entry, running)).collect();
        pods.sort_unstable_by(|a, b| {
            (a.priority, &a.namespace, &a.name).cmp(&(b.priority, &b.namespace, &b.name))
        });
        rejected.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        (pods, rejected)
    }
}

fn one_pod(snapshot: &PodSnapshot, said: Option<&StatusEntry>) -> Option<api::PodStatus> {
    let pod = snapshot.pod.as_ref().or(said.map(|s| &s.pod))?;
    let mut told = pod_status(pod, said.map(|s| &*s.status));
    told.state = state(snapshot.lifecycle);
    told.grace_left_seconds = snapshot.grace_left.map(|left| left.as_secs());
    told.stays_on_reboot = snapshot.restarts_on_node;
    Some(told)
}

/// Adds the paths of the logs of containers that have run.
fn name_logs(logs: &Path, pod: &mut api::PodStatus) {
    let directory =
        pod_logs::pod_logs(logs, &pod.namespace, &pod.name, &PodUid::new(pod.uid.as_str()));
    for container in &mut pod.containers {
        if container.started_at.is_some() || container.last_state.is_some() {
            let log = directory.join(pod_logs::run_log(&container.name, container.restarts));
            container.log = log.display().to_string();
        }
    }
}

/// Whether the pod has no worker yet because it waits: for room, for its turn, or for what it refers to.
fn is_held(entry: &StatusEntry) -> bool {
    PodPhase::of(&entry.status) == Some(PodPhase::Pending)
}

fn waiting(entry: &StatusEntry) -> api::PodStatus {
    let containers = entry.pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    api::PodStatus {
        state: api::PodState::Waiting,
        desired_containers: containers,
        ..pod_status(&entry.pod, Some(&entry.status))
    }
}

/// How many pods a problem of a manifest names.
const MAX_NAMED_PODS: usize = 3;

/// Says of a manifest that cannot be used which pods it keeps running; none if there is no pod that only the runtime
/// knows.
fn kept_for_want_of_a_manifest(pods: &[RuntimePod]) -> Option<String> {
    let mut names: Vec<String> =
        pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_NAMED_PODS);
    let said = names[..names.len() - more].join(", ");
    match (names.len(), more) {
        (0, _) => None,
        (1, _) => Some(format!("{said} keeps running, because this may be its manifest")),
        (_, 0) => Some(format!("{said} keep running, because this may be the manifest of one")),
        _ => Some(format!(
            "{said} and {more} more keep running, because this may be the manifest of one"
        )),
    }
}

/// A pod that only the runtime knows.
fn without_manifest(pod: &RuntimePod, lifecycle: Option<Lifecycle>) -> api::PodStatus {
    api::PodStatus {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
        phase: "Running".to_owned(),
        reason: "NoManifest".to_owned(),
        message: match lifecycle {
            Some(Lifecycle::Terminating) => {
                "It is being terminated, and no manifest of it can be read."
            }
            Some(Lifecycle::Terminated | Lifecycle::Finished) => {
                "It has terminated, and no manifest of it can be read."
            }
            Some(Lifecycle::Waiting | Lifecycle::Syncing) | None => {
                "It runs, and no manifest of it can be read."
            }
        }
        .to_owned(),
        state: lifecycle.map_or(api::PodState::Syncing, state),
        ..api::PodStatus::default()
    }
}

fn pod_status(pod: &Pod, status: Option<&kube::PodStatus>) -> api::PodStatus {
    let containers = status.map(|status| containers(pod, status)).unwrap_or_default();
    let counted = containers.iter().filter(|c| c.kind != "init");
    let text = |field: Option<&String>| field.cloned().unwrap_or_default();
    api::PodStatus {
        namespace: pod.namespace().to_string(),
        name: pod.name().to_string(),
        uid: pod.uid().to_string(),
        source: pod.source().unwrap_or("api").to_owned(),
        priority: pod.priority_or_zero(),
        has_no_priority: pod.priority().is_none(),
        critical: pod.is_critical(),
        qos: pod.qos().as_str().to_owned(),
        phase: text(status.and_then(|s| s.phase.as_ref())),
        reason: text(status.and_then(|s| s.reason.as_ref())),
        message: text(status.and_then(|s| s.message.as_ref())),
        state: api::PodState::default(),
        ready: status.is_some_and(is_ready),
        ready_containers: counted.clone().filter(|c| c.ready).count(),
        desired_containers: counted.count(),
        restarts: containers.iter().map(|c| c.restarts).sum(),
        started_at: status.and_then(|s| Some(s.start_time.as_ref()?.0)),
        grace_left_seconds: None,
        stays_on_reboot: false,
        containers,
    }
}

/// The `Ready` condition, which a shutdown sets to false before the probes notice anything.
fn is_ready(status: &kube::PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn state(lifecycle: Lifecycle) -> api::PodState {
    match lifecycle {
        Lifecycle::Waiting => api::PodState::Waiting,
        Lifecycle::Syncing => api::PodState::Syncing,
        Lifecycle::Terminating => api::PodState::Terminating,
        Lifecycle::Terminated => api::PodState::Terminated,
        Lifecycle::Finished => api::PodState::Finished,
    }
}

fn containers(pod: &Pod, status: &kube::PodStatus) -> Vec<api::ContainerStatus> {
    let specs = || pod.spec.iter().filter_map(|spec| spec.init_containers.as_ref()).flatten();
    let init = status.init_container_statuses.iter().flatten().map(|c| {
        let spec = specs().find(|spec| spec.name == c.name);
        let is_sidecar =
            spec.is_some_and(|spec| ContainerKind::of_init(spec) == ContainerKind::Sidecar);
        container(c, if is_sidecar { "sidecar" } else { "init" })
    });
    let regular = status.container_statuses.iter().flatten().map(|c| container(c, "regular"));
    init.chain(regular).collect()
}

/// The kubelet's record of a run that has exited.
fn exited_run(ended: &kube::ContainerStateTerminated) -> api::ExitedRun {
    api::ExitedRun {
        exit_code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone().unwrap_or_default(),
        started_at: ended.started_at.as_ref().map(|at| at.0),
        finished_at: ended.finished_at.as_ref().map(|at| at.0),
    }
}

fn container(status: &kube::ContainerStatus, kind: &str) -> api::ContainerStatus {
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let mut told = api::ContainerStatus {
        name: status.name.clone(),
        kind: kind.to_owned(),
        ready: status.ready,
        restarts: u32::try_from(status.restart_count).unwrap_or(0),
        last_state: last.map(|ended| api::LastState { terminated: exited_run(ended) }),
        ..api::ContainerStatus::default()
    };
    let Some(state) = &status.state else { return told };
    if let Some(waiting) = &state.waiting {
        "waiting".clone_into(&mut told.state);
        told.reason = waiting.reason.clone().unwrap_or_default();
        told.message = waiting.message.clone().unwrap_or_default();
    } else if let Some(ended) = &state.terminated {
        "exited".clone_into(&mut told.state);
        let run = exited_run(ended);
        (told.reason, told.message) = (run.reason, run.message);
        told.exit_code = Some(run.exit_code);
        (told.started_at, told.finished_at) = (run.started_at, run.finished_at);
    } else if let Some(running) = &state.running {
        "running".clone_into(&mut told.state);
        told.started_at = running.started_at.as_ref().map(|at| at.0);
    }
    told
}

/// A pod that was rejected while the pods of `running` used what they use.
fn refused(entry: StatusEntry, running: impl Fn() -> Vec<Pod>) -> api::RejectedPod {
    let StatusEntry { pod, status, .. } = entry;
    let lacks_port = status.reason == Some(AdmissionFailure::NODE_PORTS.reason().into_owned());
    let used_by = |other: &Pod| {
        let mut ports = HostPorts::default();
        ports.add(other);
        let port = ports.conflict(&pod)?;
        Some(format!("port {port} is used by {}/{}", other.namespace(), other.name()))
    };
    let held_by = lacks_port.then(running).and_then(|running| running.iter().find_map(used_by));
    api::RejectedPod {
        namespace: pod.namespace().to_string(),
        name: pod.name().to_string(),
        uid: pod.uid().to_string(),
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
        held_by,
        since: None,
    }
}

/// The state of a lock, and why it is not held.
pub(crate) fn lock_state(lock: &LockState) -> (api::LockState, Option<String>) {
    match lock {
        LockState::Held => (api::LockState::Held, None),
        LockState::Released => (api::LockState::Released, None),
        LockState::Waiting { why } => (api::LockState::Waiting, Some(why.to_string())),
        LockState::Absent { why } => (api::LockState::Absent, Some(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn a_sidecar_that_waits_to_be_restarted_is_a_sidecar() {
        let of = |name: &str, state: Value| json!({"name": name, "image": "x", "imageID": "", "ready": false, "restartCount": 1, "state": state});
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": {
                "initContainers": [
                    {"name": "first"},
                    {"name": "proxy", "restartPolicy": "Always"},
                ],
                "containers": [{"name": "main"}],
            },
        });
        let status = json!({
            "initContainerStatuses": [
                of("first", json!({"running": {}})),
                of("proxy", json!({"waiting": {"reason": "CrashLoopBackOff"}})),
            ],
            "containerStatuses": [of("main", json!({"running": {}}))],
        });
        let pod = Pod::new(from_value(pod).unwrap()).unwrap();
        let told = pod_status(&pod, Some(&from_value(status).unwrap()));
        let kinds: Vec<&str> = told.containers.iter().map(|one| &*one.kind).collect();
        assert_eq!(kinds, ["init", "sidecar", "regular"]);
        assert_eq!(told.desired_containers, 2);
    }
}
