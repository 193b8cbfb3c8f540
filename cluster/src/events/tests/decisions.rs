use std::time::Duration;

use winddown_shared::{Event, KillReason};

use super::*;

/// Kind, reason, message and namespace of the event, and the UID of its object.
type Line = (&'static str, String, String, String, String);

fn lines(event: &Event) -> Vec<Line> {
    let line = |draft: EventDraft| {
        (
            draft.kind.as_str(),
            draft.reason.to_string(),
            draft.message.to_string(),
            draft.about.events_namespace().to_owned(),
            draft.about.reference().uid.unwrap(),
        )
    };
    events_of(event, &node()).into_iter().map(line).collect()
}

fn line(kind: &'static str, reason: &str, message: &str, about: &str) -> Line {
    let namespace = if about == "n1" { "default" } else { "shop" };
    (kind, reason.into(), message.into(), namespace.into(), about.into())
}

#[test]
fn decisions_make_the_kubelets_events_in_its_words() {
    let second = Duration::from_secs(1);
    let preempted = "Preempted in order to admit critical pod";
    let failed = |of_stop, error: &str| {
        let (pod, error) = (pod("a"), error.to_owned());
        Event::SyncFailed { pod, of_stop, error, again_in: second }
    };
    for (event, expected) in [
        (
            Event::PodRejected {
                pod: pod("a"),
                reason: "NodeShutdown".into(),
                message: "Pod was rejected as the node is shutting down.".into(),
            },
            vec![line(
                "Warning",
                "NodeShutdown",
                "Pod was rejected as the node is shutting down.",
                "uid-a",
            )],
        ),
        (
            Event::PreemptionStarted {
                pod: pod("critical"),
                victims: vec![pod("a"), pod("b")],
                signal: None,
                message: "cpu".into(),
            },
            vec![
                line("Warning", "Preempting", preempted, "uid-a"),
                line("Warning", "Preempting", preempted, "uid-b"),
            ],
        ),
        (
            Event::EvictionThresholdMet {
                signal: "nodefs.inodesFree",
                resource: "inodes",
                stats_age: None,
                short_for: second,
            },
            vec![line("Warning", "EvictionThresholdMet", "Attempting to reclaim inodes", "n1")],
        ),
        (
            Event::EvictionStarted {
                pod: pod("a"),
                signal: "memory.available",
                message: "The node was low on resource: memory. ".into(),
                annotations: vec![("starved_resource", "memory".into())],
                grace: second,
            },
            vec![line("Warning", "Evicted", "The node was low on resource: memory. ", "uid-a")],
        ),
        (
            Event::ExceededGracePeriod { pod: pod("a") },
            vec![line(
                "Warning",
                "ExceededGracePeriod",
                "Container runtime did not kill the pod within specified grace period.",
                "uid-a",
            )],
        ),
        (
            Event::ShutdownStarted { pods: 3, budget: second },
            vec![line("Normal", "Shutdown", "Shutdown manager detected shutdown event", "n1")],
        ),
        (
            Event::ShutdownCancelled { spared_groups: 1 },
            vec![line(
                "Normal",
                "Shutdown",
                "Shutdown manager detected shutdown cancellation",
                "n1",
            )],
        ),
        (
            Event::KillRequested {
                pod: pod("a"),
                is_static: false,
                by: KillReason::Shutdown,
                grace: Duration::from_secs(90),
                status: None,
            },
            vec![line(
                "Normal",
                "Killing",
                "Stopping pod: the node shuts down, within 1m30s",
                "uid-a",
            )],
        ),
        (
            Event::PodStopped {
                pod: pod("a"),
                by: Some(KillReason::Shutdown),
                took: second,
                forced: Vec::new(),
                remark: Some("the disruption budget a refused for 2.0 s".into()),
            },
            vec![line(
                "Warning",
                "Killed",
                "Pod has terminated: the disruption budget a refused for 2.0 s",
                "uid-a",
            )],
        ),
        (failed(false, "no image"), vec![line("Warning", "FailedSync", "no image", "uid-a")]),
        (
            failed(true, "error killing pod: it hangs"),
            vec![line("Warning", "FailedKillPod", "error killing pod: it hangs", "uid-a")],
        ),
    ] {
        assert_eq!(lines(&event), expected, "{event:?}");
    }
}

#[test]
fn what_the_kubelet_says_nothing_about_makes_no_event() {
    let took = Duration::from_secs(1);
    for event in [
        Event::PodAdmitted { pod: pod("a") },
        Event::PodWaiting { pod: pod("a"), message: "room".into() },
        Event::PodPreempted { pod: pod("a"), by: pod("b"), signal: None, message: "cpu".into() },
        Event::PodEvicted { pod: pod("a"), signal: "memory.available", took },
        Event::EvictionShadowed { pod: pod("a"), signal: "pid.available", message: "m".into() },
        Event::NodePressure { condition: "DiskPressure", on: true, reason: "NodeHasDiskPressure" },
        Event::PodRestarted { pod: pod("a"), is_static: true },
        Event::OrphanFound { pod: pod("a") },
        Event::PodStopped { pod: pod("a"), by: None, took, forced: Vec::new(), remark: None },
        Event::ShutdownResumed { after: took, pods: 1 },
        Event::GroupStarted {
            reason: KillReason::Shutdown,
            priority: 0,
            name: None,
            pods: 1,
            allowed: took,
        },
        Event::ShutdownFinished { took, left: 0, unknown: false, released: true },
        Event::LastBoot { graceful: None, text: "power cut".into() },
    ] {
        assert_eq!(lines(&event), [], "{event:?}");
    }
}

#[test]
fn an_evictions_annotations_are_on_its_event() {
    let event = Event::EvictionStarted {
        pod: pod("a"),
        signal: "memory.available",
        message: "low".into(),
        annotations: vec![("offending_containers", "main".into())],
        grace: Duration::ZERO,
    };
    let drafts = events_of(&event, &node());
    assert_eq!(drafts[0].annotations, [("offending_containers", "main".to_owned())]);
    assert_eq!(drafts[0].weight, Weight::Decision);
}

#[test]
fn a_part_of_a_pod_is_named_by_its_path_and_a_node_by_its_name_as_the_uid() {
    let container = Subject::pod(&pod("a")).at("spec.containers{main}").reference();
    assert_eq!(container.field_path.as_deref(), Some("spec.containers{main}"));
    assert_eq!(container.kind.as_deref(), Some("Pod"));
    assert_eq!(container.namespace.as_deref(), Some("shop"));
    let of_node = Subject::node(&node()).reference();
    assert_eq!((of_node.name.as_deref(), of_node.uid.as_deref()), (Some("n1"), Some("n1")));
    assert_eq!(of_node.namespace, None);
}

#[test]
fn the_agent_records_what_it_decides() {
    let events = events(10);
    events.record(&Event::ExceededGracePeriod { pod: pod("a") });
    events.record(&Event::PodAdmitted { pod: pod("a") });
    assert_eq!(events.counts().waiting, 1);
    assert_eq!(events.take().unwrap().reason, "ExceededGracePeriod");
    assert!(events.take().is_none());
}
