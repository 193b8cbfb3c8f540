use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use winddown_shared::{
    ContainerExit, EndCause, Event, KillReason, Pod, PodRef, ProbeKind, ResourceName,
};

use super::{
    Check, Decision, DrainEvent, ErrorBody, ErrorCode, Health, LockState, PodState, Status,
};

const TIME: &str = "2026-11-20T12:00:00Z";

fn pod() -> Pod {
    let mut object = core::Pod::default();
    object.metadata.name = Some("web".to_owned());
    object.metadata.namespace = Some("shop".to_owned());
    object.metadata.uid = Some("u1".to_owned());
    Pod::new(object).unwrap()
}

#[test]
fn a_status_of_a_newer_agent_is_read_as_far_as_it_is_known() {
    let newer = serde_json::json!({
        "apiVersion": "winddown.dev/v1alpha1",
        "kind": "Status",
        "time": TIME,
        "weather": "fine",
        "node": { "name": "edge-1", "mood": "good" },
        "lock": { "state": "borrowed" },
        "pods": [{ "namespace": "a", "name": "b", "uid": "c", "state": "levitating" }],
    });
    let status: Status = serde_json::from_value(newer).unwrap();
    assert_eq!(status.lock.state, LockState::Unknown);
    assert_eq!(status.pods.first().map(|pod| pod.state), Some(PodState::Unknown));
    let event: DrainEvent =
        serde_json::from_str("{\"event\":\"coffeeBreak\",\"minutes\":5}").unwrap();
    assert_eq!(event, DrainEvent::Unknown);
    let error: ErrorBody = serde_json::from_str("{\"code\":\"tired\",\"error\":\"x\"}").unwrap();
    assert_eq!(error.code, ErrorCode::Internal);
}

#[test]
fn names_on_the_wire_are_camel_case_and_absent_values_are_absent() {
    let event = DrainEvent::PodTerminated {
        namespace: "a".to_owned(),
        name: "b".to_owned(),
        took_seconds: 1.5,
        forced: false,
    };
    assert_eq!(
        serde_json::to_string(&event).unwrap(),
        "{\"event\":\"podTerminated\",\"namespace\":\"a\",\"name\":\"b\",\"tookSeconds\":1.5,\
         \"forced\":false}"
    );
    let node = super::NodeStatus::default();
    let status = Status { time: TIME.parse().unwrap(), node, ..Status::default() };
    let json = serde_json::to_value(super::Envelope::new(status)).unwrap();
    let lock = serde_json::json!({ "state": "unknown", "requiredSeconds": 0.0 });
    assert_eq!(json["lock"], lock);
    for key in [
        "apiVersion",
        "kind",
        "time",
        "node",
        "lock",
        "shutdown",
        "shutdownPlan",
        "runtime",
        "config",
        "pods",
        "rejected",
        "manifests",
        "decisions",
    ] {
        assert!(json.get(key).is_some(), "{key}");
    }
}

fn exit(exit_code: i32, reason: &str) -> ContainerExit {
    let mut exit = ContainerExit::new(exit_code);
    exit.reason = reason.into();
    exit
}

#[test]
fn every_event_is_told_in_a_line_for_people_and_fields_for_programs() {
    let label = pod().pod_ref().clone();
    let second = Duration::from_secs(1);
    let name: Arc<str> = "c".into();
    let table = [
        (Event::PodAdmitted { pod: label.clone() }, "podAdmitted", "shop/web admitted"),
        (
            Event::PodRejected {
                pod: label.clone(),
                reason: "NodeShutdown".into(),
                message: "no".into(),
            },
            "podRejected",
            "shop/web rejected, NodeShutdown: no",
        ),
        (
            Event::KillRequested {
                pod: label.clone(),
                is_static: false,
                by: KillReason::Shutdown,
                grace: 20 * second,
                status: None,
            },
            "killRequested",
            "shop/web asked to terminate within 20s (the node shuts down)",
        ),
        (
            Event::PodStopped {
                pod: label.clone(),
                by: Some(KillReason::Shutdown),
                took: second / 2,
                forced: vec![],
                remark: None,
            },
            "podStopped",
            "shop/web terminated in 500ms",
        ),
        (
            Event::PodStopped {
                pod: label.clone(),
                by: Some(KillReason::Shutdown),
                took: second,
                forced: vec![name],
                remark: Some("the disruption budget web refused for 2.0 s".into()),
            },
            "podStopped",
            "shop/web terminated in 1s, SIGKILL for c; the disruption budget web refused for 2.0 s",
        ),
        (
            Event::ContainerExited {
                pod: label.clone(),
                container: "main".into(),
                exit: Box::new(exit(3, "Error")),
                failed: None,
                last_line: Some("cannot bind port 80".into()),
                again_in: Some(10 * second),
            },
            "containerExited",
            r#"shop/web container main exited with code 3 (Error), restarting in 10s: "cannot bind port 80""#,
        ),
        (
            Event::ContainerExited {
                pod: label.clone(),
                container: "main".into(),
                exit: Box::new(exit(0, "Completed")),
                failed: Some(EndCause::Probe(ProbeKind::Liveness)),
                last_line: None,
                again_in: None,
            },
            "containerExited",
            "shop/web container main exited with code 0 (Completed): liveness probe failed",
        ),
        (
            Event::SyncFailed {
                pod: label.clone(),
                of_stop: false,
                error: "no fork".to_owned(),
                again_in: 10 * second,
            },
            "syncFailed",
            "shop/web no fork; retrying in 10s",
        ),
        (
            Event::ExceededGracePeriod { pod: label },
            "exceededGracePeriod",
            "shop/web still running after its grace period; the kill continues",
        ),
        (
            Event::ShutdownStarted { pods: 1, budget: 90 * second },
            "shutdownStarted",
            "shutdown started: 1 pod to terminate within 1m30s",
        ),
        (
            Event::GroupStarted {
                reason: KillReason::Shutdown,
                priority: 0,
                name: None,
                pods: 2,
                allowed: Duration::from_millis(19_600),
            },
            "groupStarted",
            "priority 0 and above: 2 pods asked to terminate within 20s",
        ),
        (
            Event::GroupFinished {
                reason: KillReason::Shutdown,
                priority: 0,
                name: None,
                took: second,
                left: 0,
            },
            "groupFinished",
            "priority 0 and above: terminated in 1s",
        ),
        (
            Event::GroupFinished {
                reason: KillReason::Shutdown,
                priority: 0,
                name: None,
                took: second,
                left: 2,
            },
            "groupFinished",
            "priority 0 and above: 2 pods still running after 1s",
        ),
        (
            Event::ShutdownResumed { after: second, pods: 2 },
            "shutdownResumed",
            "continuing the shutdown that started 1s ago, 2 pods still running",
        ),
        (
            Event::ShutdownCancelled { spared_groups: 1 },
            "shutdownCancelled",
            "shutdown cancelled, groups not started: 1",
        ),
        (
            Event::ShutdownFinished { took: second, left: 0, unknown: false, released: true },
            "shutdownFinished",
            "all pods terminated in 1s, lock released",
        ),
        (
            Event::ShutdownFinished { took: second, left: 0, unknown: true, released: true },
            "shutdownFinished",
            "shutdown finished after 1s: whether pods still run is not known, lock released",
        ),
        (
            Event::ShutdownFinished { took: second, left: 0, unknown: false, released: false },
            "shutdownFinished",
            "all pods terminated in 1s",
        ),
        (
            Event::ShutdownFinished { took: second, left: 1, unknown: false, released: true },
            "shutdownFinished",
            "1 pod still running after 1s, lock released",
        ),
        (
            Event::LastBoot { graceful: Some(true), text: "clean shutdown".into() },
            "lastBoot",
            "last boot: clean shutdown",
        ),
    ];
    let other = || PodRef { name: "dns".into(), ..pod().pod_ref().clone() };
    let room = [
        (
            Event::FieldsIgnored {
                pod: pod().pod_ref().clone(),
                message: "spec.ephemeralContainers: they are not run".into(),
            },
            "fieldsIgnored",
            "shop/web continues without spec.ephemeralContainers: they are not run",
        ),
        (
            Event::DeadlineExceeded { pod: pod().pod_ref().clone() },
            "deadlineExceeded",
            "shop/web exceeded its activeDeadlineSeconds, terminating it",
        ),
        (
            Event::PodWaiting { pod: pod().pod_ref().clone(), message: "2 pods terminate".into() },
            "podWaiting",
            "shop/web is waiting for room: 2 pods terminate",
        ),
        (
            Event::PreemptionStarted {
                pod: pod().pod_ref().clone(),
                victims: vec![other(), other()],
                signal: Some(ResourceName::Memory),
                message: "waiting for both".into(),
            },
            "preemptionStarted",
            "shop/web lacks memory, preempting shop/dns, shop/dns",
        ),
        (
            Event::PodPreempted {
                pod: pod().pod_ref().clone(),
                by: other(),
                signal: None,
                message: "waiting for shop/web to free cpu 1".into(),
            },
            "podPreempted",
            "shop/web preempted for shop/dns, which was waiting for shop/web to free cpu 1",
        ),
    ];
    for (event, kind, text) in table.into_iter().chain(room) {
        let told = Decision::of(TIME.parse().unwrap(), &event);
        assert_eq!((told.kind.as_str(), told.text.as_str()), (kind, text));
        let about_a_pod = text.starts_with("shop/web");
        assert_eq!(told.pod == "shop/web", about_a_pod, "{text}");
        assert_eq!(told.fields.contains_key("uid"), about_a_pod, "{text}");
    }
}

#[test]
fn checks_read_as_those_of_kubernetes_components() {
    let mut health = Health { checks: vec![Check::passed("dbus")] };
    assert_eq!(health.text("readyz", false), "ok");
    assert_eq!(health.text("readyz", true), "[+]dbus ok\nreadyz check passed\n");
    health.checks.push(Check::failed("lock", "refused"));
    let failed = "[+]dbus ok\n[-]lock failed: refused\nreadyz check failed\n";
    assert_eq!(health.text("readyz", false), failed);
    assert!(Health::default().ok());
}
