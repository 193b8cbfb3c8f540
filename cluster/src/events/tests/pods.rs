use std::time::Duration;

use winddown_shared::{ContainerKind, EndCause, Event, PodEvent, PodEventKind, ProbeKind};

use super::*;

/// Kind, reason and message of what happened to the container `main`.
fn told(what: PodEventKind) -> (&'static str, String, String) {
    let container = Some((ContainerKind::Regular, "main".into()));
    let event = Event::Pod(PodEvent { pod: pod("web"), container, what });
    let [draft] = events_of(&event, &node()).try_into().unwrap();
    (draft.kind.as_str(), draft.reason.to_string(), draft.message.to_string())
}

#[test]
fn what_happens_to_containers_is_told_in_the_kubelets_words() {
    use PodEventKind as H;
    let image = || "busybox:1.36".to_owned();
    let error = || "rpc error: code = Unknown desc = no".to_owned();
    let took = (Duration::from_micros(1_234_567), Duration::from_micros(2_000_001));
    for (what, kind, reason, message) in [
        (
            H::ImagePresent { image: image() },
            "Normal",
            "Pulled",
            r#"Container image "busybox:1.36" already present on machine and can be accessed by the pod"#,
        ),
        (H::Pulling { image: image() }, "Normal", "Pulling", r#"Pulling image "busybox:1.36""#),
        (
            H::Pulled { image: image(), took, size: 4096 },
            "Normal",
            "Pulled",
            r#"Successfully pulled image "busybox:1.36" in 1.234s (2s including waiting). Image size: 4096 bytes."#,
        ),
        (
            H::PullFailed { image: image(), error: error() },
            "Warning",
            "Failed",
            r#"Failed to pull image "busybox:1.36": rpc error: code = Unknown desc = no"#,
        ),
        (
            H::PullBackOff { image: image() },
            "Normal",
            "BackOff",
            r#"Back-off pulling image "busybox:1.36""#,
        ),
        (
            H::NeverPulled { image: image() },
            "Warning",
            "ErrImageNeverPull",
            r#"Container image "busybox:1.36" is not present with pull policy of Never"#,
        ),
        (
            H::InspectFailed { image: image(), error: error() },
            "Warning",
            "InspectFailed",
            r#"Failed to inspect image "busybox:1.36": rpc error: code = Unknown desc = no"#,
        ),
        (H::Created, "Normal", "Created", "Container created"),
        (H::Started, "Normal", "Started", "Container started"),
        (
            H::Failed { error: "ErrImagePull".to_owned() },
            "Warning",
            "Failed",
            "Error: ErrImagePull",
        ),
        (
            H::BackOff,
            "Warning",
            "BackOff",
            "Back-off restarting failed container main in pod web_shop(uid-web)",
        ),
        (
            H::Unhealthy {
                probe: ProbeKind::Readiness,
                output: "HTTP probe failed with statuscode: 500".to_owned(),
            },
            "Warning",
            "Unhealthy",
            "Readiness probe failed: HTTP probe failed with statuscode: 500",
        ),
        (
            H::ProbeWarned { probe: ProbeKind::Liveness, warning: "elsewhere".to_owned() },
            "Warning",
            "ProbeWarning",
            "Liveness probe warning: elsewhere",
        ),
        (
            H::ProbeErrored { probe: ProbeKind::Liveness, error: "busy".to_owned() },
            "Warning",
            "Unhealthy",
            "Liveness probe errored and resulted in unknown state: busy",
        ),
        (H::Killing(EndCause::Pod), "Normal", "Killing", "Stopping container main"),
        (
            H::Killing(EndCause::Changed),
            "Normal",
            "Killing",
            "Container main definition changed, will be restarted",
        ),
        (
            H::Killing(EndCause::Probe(ProbeKind::Startup)),
            "Normal",
            "Killing",
            "Container main failed startup probe, will be restarted",
        ),
        (H::Killing(EndCause::PostStart), "Normal", "Killing", "FailedPostStartHook"),
        (H::PostStartFailed, "Warning", "FailedPostStartHook", "PostStartHook failed"),
        (H::PreStopFailed, "Warning", "FailedPreStopHook", "PreStopHook failed"),
        (
            H::SandboxChanged,
            "Normal",
            "SandboxChanged",
            "Pod sandbox changed, it will be killed and re-created.",
        ),
        (
            H::SandboxFailed { error: error() },
            "Warning",
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: rpc error: code = Unknown desc = no",
        ),
        (
            H::NetworkNotReady {
                error: "container runtime network not ready: NetworkReady=false".to_owned(),
            },
            "Warning",
            "NetworkNotReady",
            "network is not ready: container runtime network not ready: NetworkReady=false",
        ),
    ] {
        assert_eq!(told(what), (kind, reason.to_owned(), message.to_owned()));
    }
}

#[test]
fn an_event_names_the_container_by_its_path_in_the_spec() {
    let path = |container| {
        let event = PodEvent { pod: pod("web"), container, what: PodEventKind::Started };
        events_of(&Event::Pod(event), &node())[0].about.reference().field_path
    };
    for (kind, list) in [
        (ContainerKind::Regular, "containers"),
        (ContainerKind::Init, "initContainers"),
        (ContainerKind::Sidecar, "initContainers"),
    ] {
        assert_eq!(path(Some((kind, "a".into()))), Some(format!("spec.{list}{{a}}")));
    }
    assert_eq!(path(None), None);
}
