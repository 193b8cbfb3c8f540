//! The texts of events about a pod's containers: the kubelet's (`pkg/kubelet/events`, 1.36).

use std::time::Duration;

use winddown_shared::{ContainerKind, GoDuration, PodEvent, PodEventKind, millis};

use super::{EventDraft, EventKind, Subject};

/// Returns the Kubernetes Event of `event`.
// Over the limit because it is a table: one row per kind of event, in the words of the kubelet.
pub(super) fn draft(event: &PodEvent) -> EventDraft {
    use EventKind::{Normal, Warning};
    use PodEventKind as H;
    let name = event.container.as_ref().map_or("", |(_, name)| name);
    let (kind, reason, message) = match &event.what {
        H::ImagePresent { image } => {
            let text = "already present on machine and can be accessed by the pod";
            (Normal, "Pulled", format!("Container image {image:?} {text}"))
        }
        H::Pulling { image } => (Normal, "Pulling", format!("Pulling image {image:?}")),
        H::PullSecretsUnused(secrets) => {
            let which = secrets.join(", ");
            let message = format!(
                "Unable to retrieve some image pull secrets ({which}); attempting to pull the image may not succeed."
            );
            (Warning, "FailedToRetrieveImagePullSecret", message)
        }
        H::Pulled { image, took: (pull, whole), size } => {
            let [pull, whole] =
                [pull, whole].map(|took| in_words(Duration::from_millis(millis(*took))));
            let how = format!("in {pull} ({whole} including waiting). Image size: {size} bytes.");
            (Normal, "Pulled", format!("Successfully pulled image {image:?} {how}"))
        }
        H::PullFailed { image, error } => {
            (Warning, "Failed", format!("Failed to pull image {image:?}: {error}"))
        }
        H::PullBackOff { image } => {
            (Normal, "BackOff", format!("Back-off pulling image {image:?}"))
        }
        H::NeverPulled { image } => {
            let message =
                format!("Container image {image:?} is not present with pull policy of Never");
            (Warning, "ErrImageNeverPull", message)
        }
        H::InspectFailed { image, error } => {
            (Warning, "InspectFailed", format!("Failed to inspect image {image:?}: {error}"))
        }
        H::Created => (Normal, "Created", "Container created".to_owned()),
        H::Started => (Normal, "Started", "Container started".to_owned()),
        H::Failed { error } => (Warning, "Failed", format!("Error: {error}")),
        H::BackOff => {
            let pod = event.pod.kubelet_title();
            let message = format!("Back-off restarting failed container {name} in pod {pod}");
            (Warning, "BackOff", message)
        }
        H::Unhealthy { probe, output } => {
            (Warning, "Unhealthy", format!("{} probe failed: {output}", probe.as_str()))
        }
        H::ProbeWarned { probe, warning } => {
            (Warning, "ProbeWarning", format!("{} probe warning: {warning}", probe.as_str()))
        }
        H::ProbeErrored { probe, error } => {
            let probe = probe.as_str();
            let message = format!("{probe} probe errored and resulted in unknown state: {error}");
            (Warning, "Unhealthy", message)
        }
        H::Killing(why) => (Normal, "Killing", why.text(name)),
        H::PostStartFailed => (Warning, "FailedPostStartHook", "PostStartHook failed".to_owned()),
        H::PreStopFailed => (Warning, "FailedPreStopHook", "PreStopHook failed".to_owned()),
        H::SandboxChanged => {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            (Normal, "SandboxChanged", message.to_owned())
        }
        H::SandboxFailed { error } => {
            (Warning, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"))
        }
        H::NetworkNotReady { error } => {
            (Warning, "NetworkNotReady", format!("network is not ready: {error}"))
        }
    };
    let pod = Subject::pod(&event.pod);
    let about = match &event.container {
        Some((kind, name)) => pod.at(format!("spec.{}{{{name}}}", list(*kind))),
        None => pod,
    };
    EventDraft { kind, ..EventDraft::normal(about, reason, message) }
}

/// Formats a duration as Go does.
pub(super) fn in_words(time: Duration) -> String {
    GoDuration::try_from(time).map_or_else(|_| format!("{time:?}"), |time| time.to_string())
}

fn list(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Regular => "containers",
        ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        ContainerKind::Ephemeral => "ephemeralContainers",
    }
}
