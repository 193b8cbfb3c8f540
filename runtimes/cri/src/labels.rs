//! Labels and annotations of sandboxes and containers: the kubelet's, so that `crictl` and log
//! collectors work as usual, and winddown's own, by which an agent recognises what it created.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use winddown_shared::{ContainerKind, Pod, Requests, ResourceName};

/// Marks what this agent created. A kubelet's pods in the same runtime do not have it and are never
/// touched.
pub(crate) const MANAGED: &str = "io.winddown.managed";

pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";

const HASH: &str = "io.kubernetes.container.hash";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
const PORTS: &str = "io.kubernetes.container.ports";
const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
const POD_REQUESTS: &str = "io.winddown.pod.requests";

const KIND: &str = "io.winddown.container.kind";
const PLACE: &str = "io.winddown.container.place";
const STOP_SIGNAL: &str = "io.winddown.container.stop-signal";
const BACKOFF: &str = "io.winddown.container.backoff-ms";
const IMAGE: &str = "io.winddown.container.image";

/// The greatest length of all preStop hooks of a pod, as JSON, that are kept in annotations.
const MAX_HOOK_BYTES: usize = 128 * 1024;

/// The policy that takes the message from the log if the file is empty and the container failed.
pub(crate) const FALL_BACK_TO_LOGS: &str = "FallbackToLogsOnError";

/// The facts about a container that its labels and annotations record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContainerFacts {
    /// Its name in the pod's spec.
    pub(crate) name: String,
    pub(crate) kind: ContainerKind,
    /// Its index in the pod: init containers first, then the regular ones.
    pub(crate) place: usize,
    /// The backoff after this run.
    pub(crate) backoff: Duration,
    /// The pod's own grace period, if it sets one.
    pub(crate) grace: Option<Duration>,
    /// The image as the spec names it; `None` if an earlier version of the agent created the container.
    pub(crate) image: Option<String>,
    pub(crate) stop_signal: Option<String>,
    /// The parts of the spec that are needed to stop the container even if its pod is unknown.
    pub(crate) spec: k8s::Container,
}

/// The pod, as `namespace/name`, and the name of a container with these labels, for people.
pub(crate) fn title(labels: &HashMap<String, String>) -> (String, &str) {
    let label = |name| labels.get(name).map_or("", String::as_str);
    (format!("{}/{}", label(POD_NAMESPACE), label(POD_NAME)), label(CONTAINER_NAME))
}

/// The selector for everything this agent created.
pub(crate) fn managed() -> HashMap<String, String> {
    HashMap::from([(MANAGED.to_owned(), "true".to_owned())])
}

/// The selector for everything that belongs to one pod.
pub(crate) fn of_pod(uid: &str) -> HashMap<String, String> {
    let mut labels = managed();
    labels.insert(POD_UID.to_owned(), uid.to_owned());
    labels
}

/// The selector for everything of one pod, also what another agent made.
pub(crate) fn of_pod_by_anyone(uid: &str) -> HashMap<String, String> {
    HashMap::from([(POD_UID.to_owned(), uid.to_owned())])
}

/// A sandbox's labels: the pod's own labels, overridden by the pod's identity.
pub(crate) fn sandbox(pod: &Pod) -> HashMap<String, String> {
    let mut labels: HashMap<String, String> =
        pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(identity(pod));
    labels
}

/// A sandbox's annotations: the pod's, and the resources that it requests, written as in a spec.
pub(crate) fn sandbox_annotations(pod: &Pod) -> HashMap<String, String> {
    let of_pod = pod.metadata.annotations.clone().unwrap_or_default();
    let requests = pod.fit_requests().iter().map(|(name, amount)| {
        let unit = if name == ResourceName::Cpu { "m" } else { "" };
        (name.to_string(), Quantity(format!("{amount}{unit}")))
    });
    let requests: BTreeMap<String, Quantity> = requests.collect();
    let requests = serde_json::to_string(&requests).ok();
    of_pod.into_iter().chain(requests.map(|json| (POD_REQUESTS.to_owned(), json))).collect()
}

/// What [`sandbox_annotations`] recorded of the resources. `None` if an earlier version of the agent created the
/// sandbox.
pub(crate) fn read_requests(annotations: &HashMap<String, String>) -> Option<Requests> {
    let requests: BTreeMap<String, Quantity> =
        serde_json::from_str(annotations.get(POD_REQUESTS)?).ok()?;
    let resources = k8s::ResourceRequirements { requests: Some(requests), ..Default::default() };
    let container = k8s::Container { resources: Some(resources), ..Default::default() };
    let spec = k8s::PodSpec { containers: vec![container], ..Default::default() };
    let mut object = k8s::Pod { spec: Some(spec), ..Default::default() };
    object.metadata.name = Some("none".to_owned());
    let pod = Pod::of_case(object, || "none".to_owned()).ok()?;
    Some(pod.fit_requests().clone())
}

/// A container's labels.
pub(crate) fn container(pod: &Pod, name: &str) -> HashMap<String, String> {
    let mut labels = identity(pod);
    labels.insert(CONTAINER_NAME.to_owned(), name.to_owned());
    labels
}

pub(crate) fn container_annotations(
    pod: &Pod,
    container: &k8s::Container,
    (kind, place): (ContainerKind, usize),
    attempt: u32,
    backoff: Duration,
    stop_signal: Option<&str>,
) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let mut say = |key: &str, value: String| all.insert(key.to_owned(), value);
    say(HASH, format!("{:x}", hash(container)));
    say(RESTART_COUNT, attempt.to_string());
    say(KIND, kind_text(kind).to_owned());
    say(PLACE, place.to_string());
    say(BACKOFF, backoff.as_millis().to_string());
    say(IMAGE, container.image.clone().unwrap_or_default());
    say(MESSAGE_PATH, message_path(container).to_owned());
    let policy = container.termination_message_policy.as_deref().filter(|p| !p.is_empty());
    say(MESSAGE_POLICY, policy.unwrap_or("File").to_owned());
    if let Some(signal) = stop_signal {
        say(STOP_SIGNAL, signal.to_owned());
    }
    if let Some(grace) = pod.termination_grace_period() {
        say(POD_GRACE, grace.as_secs().to_string());
    }
    if let Some(json) = pre_stop(container).filter(|_| has_short_hooks(pod)) {
        say(PRE_STOP, json);
    }
    if let Some(Ok(json)) = container.ports.as_ref().map(serde_json::to_string) {
        say(PORTS, json);
    }
    all
}

/// A container's preStop hook as JSON.
fn pre_stop(container: &k8s::Container) -> Option<String> {
    let hook = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
    serde_json::to_string(hook).ok()
}

/// Whether the pod's preStop hooks are short enough for annotations, which are part of what the runtime answers about all
/// pods. Longer ones run only where the pod itself is known.
fn has_short_hooks(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    containers.filter_map(pre_stop).map(|json| json.len()).sum::<usize>() <= MAX_HOOK_BYTES
}

/// The path of the termination message file in the container.
pub(crate) fn message_path(container: &k8s::Container) -> &str {
    let path = container.termination_message_path.as_deref().filter(|p| !p.is_empty());
    path.unwrap_or("/dev/termination-log")
}

/// Parses what [`container`] and [`container_annotations`] wrote. `None` without a name.
pub(crate) fn read_container(
    labels: &HashMap<String, String>,
    annotations: &HashMap<String, String>,
) -> Option<ContainerFacts> {
    let name = labels.get(CONTAINER_NAME)?.clone();
    let number = |key: &str| annotations.get(key).and_then(|text| text.parse::<u64>().ok());
    let json = |key: &str| annotations.get(key).map(String::as_str).unwrap_or("null");
    let pre_stop: Option<k8s::LifecycleHandler> =
        serde_json::from_str(json(PRE_STOP)).unwrap_or_default();
    let spec = k8s::Container {
        name: name.clone(),
        ports: serde_json::from_str(json(PORTS)).unwrap_or_default(),
        lifecycle: pre_stop
            .map(|hook| k8s::Lifecycle { pre_stop: Some(hook), ..k8s::Lifecycle::default() }),
        termination_message_policy: annotations.get(MESSAGE_POLICY).cloned(),
        ..k8s::Container::default()
    };
    Some(ContainerFacts {
        kind: kind_of(annotations.get(KIND).map_or("", String::as_str)),
        place: number(PLACE).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX),
        backoff: Duration::from_millis(number(BACKOFF).unwrap_or(0)),
        grace: number(POD_GRACE).map(Duration::from_secs),
        image: annotations.get(IMAGE).cloned(),
        stop_signal: annotations.get(STOP_SIGNAL).cloned(),
        name,
        spec,
    })
}

fn identity(pod: &Pod) -> HashMap<String, String> {
    let mut labels = managed();
    labels.insert(POD_NAME.to_owned(), pod.name().to_string());
    labels.insert(POD_NAMESPACE.to_owned(), pod.namespace().to_string());
    labels.insert(POD_UID.to_owned(), pod.uid().to_string());
    labels
}

fn kind_text(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init => "init",
        ContainerKind::Sidecar => "sidecar",
        ContainerKind::Regular => "regular",
        ContainerKind::Ephemeral => "ephemeral",
    }
}

fn kind_of(text: &str) -> ContainerKind {
    match text {
        "init" => ContainerKind::Init,
        "sidecar" => ContainerKind::Sidecar,
        "ephemeral" => ContainerKind::Ephemeral,
        _ => ContainerKind::Regular,
    }
}

/// FNV-1a of the container's JSON; it only distinguishes specs.
fn hash(container: &k8s::Container) -> u32 {
    let json = serde_json::to_vec(container).unwrap_or_default();
    json.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_container_is_can_be_read_back_from_its_labels() {
        let spec: k8s::Container = serde_json::from_value(json!({
            "name": "main", "ports": [{"name": "web", "containerPort": 80}],
            "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}},
        }))
        .unwrap();
        let object = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "terminationGracePeriodSeconds": 7}});
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let wait = Duration::from_secs(20);
        let labels = container(&pod, "main");
        let notes =
            container_annotations(&pod, &spec, (ContainerKind::Sidecar, 2), 3, wait, Some("QUIT"));
        assert_eq!(notes[RESTART_COUNT], "3");
        assert_eq!(notes[POD_GRACE], "7");
        let facts = read_container(&labels, &notes).unwrap();
        assert_eq!((facts.kind, facts.place, facts.backoff), (ContainerKind::Sidecar, 2, wait));
        assert_eq!(facts.stop_signal.as_deref(), Some("QUIT"));
        assert_eq!(facts.grace, Some(Duration::from_secs(7)));
        assert_eq!(facts.spec.ports, spec.ports);
        assert_eq!(facts.spec.lifecycle, spec.lifecycle);
    }

    #[test]
    fn pre_stop_hooks_that_are_long_together_are_not_kept_in_annotations() {
        for (length, expected) in [(MAX_HOOK_BYTES / 4, true), (MAX_HOOK_BYTES, false)] {
            let hook = |length| json!({"preStop": {"exec": {"command": ["x".repeat(length)]}}});
            let containers = json!([{"name": "main", "lifecycle": hook(1)},
                {"name": "other", "lifecycle": hook(length)}]);
            let object = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
                "spec": {"containers": containers}});
            let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
            let main = &pod.spec.as_ref().unwrap().containers[0];
            let place = (ContainerKind::Regular, 0);
            let notes = container_annotations(&pod, main, place, 0, Duration::ZERO, None);
            assert_eq!(notes.contains_key(PRE_STOP), expected, "{length}");
        }
    }

    #[test]
    fn what_a_pod_requests_can_be_read_back_from_its_sandbox() {
        let amounts = json!({"cpu": "250m", "memory": "1Gi", "example.com/card": "2"});
        for requests in [amounts, json!({"cpu": "1.5"}), json!({})] {
            let object = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u",
                    "annotations": {"own": "kept"}},
                "spec": {"overhead": {"memory": "3"}, "containers": [
                    {"name": "main", "resources": {"requests": requests}}]}});
            let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
            let annotations = sandbox_annotations(&pod);
            assert_eq!(annotations["own"], "kept");
            assert_eq!(read_requests(&annotations).as_ref(), Some(pod.fit_requests()));
        }
        let of = |text: &str| read_requests(&[(POD_REQUESTS.to_owned(), text.to_owned())].into());
        assert_eq!(read_requests(&HashMap::new()), None);
        assert_eq!(of("{"), None);
        assert_eq!(of(r#"{"cpu": "many", "memory": "-5"}"#), Some(Requests::default()));
    }

    #[test]
    fn foreign_labels_are_read_without_harm() {
        assert_eq!(read_container(&HashMap::new(), &HashMap::new()), None);
        let labels = HashMap::from([(CONTAINER_NAME.to_owned(), "x".to_owned())]);
        let odd = [(PLACE, "-1"), (BACKOFF, "soon"), (PRE_STOP, "{"), (PORTS, "[1]"), (KIND, "?")];
        let odd = odd.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let facts = read_container(&labels, &HashMap::from(odd)).unwrap();
        assert_eq!((facts.kind, facts.place), (ContainerKind::Regular, usize::MAX));
        assert_eq!((facts.spec.ports, facts.spec.lifecycle), (None, None));
    }
}
