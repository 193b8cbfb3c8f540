//! The kubelet's texts, byte for byte, and when times change.

use super::super::conditions::*;
use super::*;

fn texts(health: &NodeHealth, kind: &str) -> [String; 3] {
    let all = wanted(health, &[]);
    let one = find(&all, kind).unwrap_or_else(|| panic!("{kind} is wanted"));
    [one.status.clone(), one.reason.clone().unwrap(), one.message.clone().unwrap()]
}

fn has(kind: &str, status: &str, reason: &str) -> k8s_openapi::api::core::v1::NodeCondition {
    serde_json::from_value(serde_json::json!({
        "type": kind, "status": status, "reason": reason, "message": "whatever",
        "lastTransitionTime": "2027-01-15T08:00:00Z", "lastHeartbeatTime": "2027-01-15T08:00:00Z",
    }))
    .unwrap()
}

#[test]
fn a_healthy_node_has_the_kubelets_four_conditions_and_no_others() {
    let health = NodeHealth::default();
    let kinds: Vec<_> = wanted(&health, &[]).into_iter().map(|one| one.type_).collect();
    assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    assert_eq!(
        texts(&health, "Ready"),
        ["True", "KubeletReady", "kubelet is posting ready status"]
    );
    assert_eq!(
        texts(&health, "MemoryPressure"),
        ["False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"]
    );
    assert_eq!(
        texts(&health, "DiskPressure"),
        ["False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"]
    );
    assert_eq!(
        texts(&health, "PIDPressure"),
        ["False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"]
    );
}

#[test]
fn pressure_is_told_in_the_kubelets_words() {
    let pressure = winddown_shared::PressureCondition::ALL.to_vec();
    let health = NodeHealth { pressure, ..NodeHealth::default() };
    assert_eq!(
        texts(&health, "MemoryPressure"),
        ["True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"]
    );
    assert_eq!(
        texts(&health, "DiskPressure"),
        ["True", "KubeletHasDiskPressure", "kubelet has disk pressure"]
    );
    assert_eq!(
        texts(&health, "PIDPressure"),
        ["True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"]
    );
}

#[test]
fn a_node_that_is_not_ready_says_why_one_reason_alone_and_several_in_brackets() {
    let table: [(&[&str], bool, &str); 5] = [
        (&[], true, "node is shutting down"),
        (&["container runtime is down"], false, "container runtime is down"),
        (
            &["container runtime is down"],
            true,
            "[container runtime is down, node is shutting down]",
        ),
        (&["a", "b", "a"], false, "[a, b]"),
        (&["a", "a"], false, "a"),
    ];
    for (reasons, shutting_down, message) in table {
        let not_ready = reasons.iter().map(|reason| (*reason).into()).collect();
        let health = NodeHealth { not_ready, shutting_down, ..NodeHealth::default() };
        assert_eq!(texts(&health, "Ready"), ["False", "KubeletNotReady", message]);
    }
}

#[test]
fn a_shutdown_has_both_conditions_of_kep_6249_with_its_reason() {
    let health = NodeHealth { shutting_down: true, ..NodeHealth::default() };
    for kind in [SHUTDOWN_IN_PROGRESS, DRAIN_IN_PROGRESS] {
        let [status, reason, _] = texts(&health, kind);
        assert_eq!((status.as_str(), reason.as_str()), ("True", "NodeShutdown"));
    }
}

#[test]
fn lifecycle_conditions_are_cleared_when_they_are_ours_and_left_alone_when_they_are_not() {
    let calm = NodeHealth::default();
    let status_of =
        |server: &[_], kind| find(&wanted(&calm, server), kind).map(|one| one.status.clone());
    // This agent reports a shutdown, no matter which client wrote the condition last.
    for reason in ["NodeShutdown", "KubeletUnreachable", "Admin"] {
        let server = [has(SHUTDOWN_IN_PROGRESS, "True", reason)];
        assert_eq!(status_of(&server, SHUTDOWN_IN_PROGRESS).as_deref(), Some("False"));
    }
    for (reason, cleared) in [
        ("NodeShutdown", true),
        ("NodeDrain", true),
        ("KubeletUnreachable", true),
        ("Admin", false),
    ] {
        let server = [has(DRAIN_IN_PROGRESS, "True", reason), has(DRAINED, "True", reason)];
        let expected = cleared.then_some("False");
        assert_eq!(status_of(&server, DRAIN_IN_PROGRESS).as_deref(), expected, "{reason}");
        assert_eq!(status_of(&server, DRAINED).as_deref(), expected, "{reason}");
    }
}

#[test]
fn a_foreign_drain_is_not_taken_over_by_ours() {
    for health in [
        NodeHealth { shutting_down: true, ..NodeHealth::default() },
        NodeHealth { draining: DrainingNode::InProgress, ..NodeHealth::default() },
    ] {
        let server = [has(DRAIN_IN_PROGRESS, "True", "KubectlDrain")];
        assert_eq!(find(&wanted(&health, &server), DRAIN_IN_PROGRESS), None);
        let over = [has(DRAIN_IN_PROGRESS, "False", "KubectlDrain")];
        assert!(find(&wanted(&health, &over), DRAIN_IN_PROGRESS).is_some());
    }
}

#[test]
fn a_drain_is_in_progress_and_then_done() {
    let under_way = NodeHealth { draining: DrainingNode::InProgress, ..NodeHealth::default() };
    assert_eq!(texts(&under_way, DRAIN_IN_PROGRESS)[..2], ["True", "NodeDrain"]);
    assert_eq!(find(&wanted(&under_way, &[]), SHUTDOWN_IN_PROGRESS), None);
    let done = NodeHealth { draining: DrainingNode::Done, ..NodeHealth::default() };
    let server = [has(DRAIN_IN_PROGRESS, "True", "NodeDrain")];
    let all = wanted(&done, &server);
    assert_eq!(find(&all, DRAIN_IN_PROGRESS).unwrap().status, "False");
    assert_eq!(find(&all, DRAINED).unwrap().status, "True");
}

#[test]
fn a_node_that_is_not_drained_any_more_says_whether_it_admits_pods() {
    let server = [has(DRAINED, "True", "NodeDrain")];
    let texts = |health: NodeHealth| {
        let drained = find(&wanted(&health, &server), DRAINED).unwrap().clone();
        [drained.status, drained.reason.unwrap(), drained.message.unwrap()]
    };
    let drains = NodeHealth { draining: DrainingNode::InProgress, ..NodeHealth::default() };
    let message = "The pods of this node are being terminated; it admits none";
    assert_eq!(texts(drains), ["False", "NodeDrain", message]);
    let message = "The node is shutting down and admits no pods";
    for draining in [DrainingNode::No, DrainingNode::InProgress] {
        let goes_down = NodeHealth { shutting_down: true, draining, ..NodeHealth::default() };
        assert_eq!(texts(goes_down), ["False", "NodeShutdown", message]);
    }
    assert_eq!(texts(NodeHealth::default()), ["False", "NodeDrain", "The node admits pods"]);
}

#[test]
fn the_transition_time_moves_with_the_status_alone_and_the_heartbeat_always() {
    let server = [has("Ready", "True", "KubeletReady"), has("DiskPressure", "True", "x")];
    let stamped = stamp(wanted(&NodeHealth::default(), &server), &server, &time(900));
    let at = |kind| {
        let one = find(&stamped, kind).unwrap();
        (one.last_transition_time.clone().unwrap(), one.last_heartbeat_time.clone().unwrap())
    };
    let before = server[0].last_transition_time.clone().unwrap();
    assert_eq!(at("Ready"), (before, time(900)), "the same status, other words");
    assert_eq!(at("DiskPressure"), (time(900), time(900)), "another status");
    assert_eq!(at("MemoryPressure"), (time(900), time(900)), "a new condition");
}

#[test]
fn agreement_is_about_words_and_not_about_times() {
    let want = wanted(&NodeHealth::default(), &[]);
    let server = stamp(want.clone(), &[], &time(0));
    assert!(agree(&want, &server));
    assert!(!agree(&want, &server[1..]));
    let unready = NodeHealth { not_ready: vec!["why".into()], ..NodeHealth::default() };
    assert!(!agree(&wanted(&unready, &server), &server));
}

#[test]
fn resources_that_a_node_must_have_are_named_when_they_are_missing() {
    let mut facts = facts();
    assert_eq!(facts.lacking(), None);
    facts.capacity.remove("pods");
    facts.capacity.remove("cpu");
    let lacking = "missing node capacity for resources: cpu, pods";
    assert_eq!(facts.lacking().as_deref(), Some(lacking));
}
