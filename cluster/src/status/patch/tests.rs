//! Tables and properties of status patches.
#![allow(clippy::needless_pass_by_value, reason = "JSON reads better where it is used")]

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};

use super::{ReportedStatus, patch};
use winddown_shared::WallTime;

mod properties;

use super::apply::apply;

fn at(second: i64) -> WallTime {
    WallTime::from_second(second).unwrap()
}

/// A pod as the API has it.
fn in_api(status: Value) -> api::Pod {
    pod(json!({ "containers": [{ "name": "main" }], "restartPolicy": "Always" }), status)
}

fn pod(spec: Value, status: Value) -> api::Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u-1", "generation": 4 },
        "spec": spec,
        "status": status,
    }))
    .unwrap()
}

fn status(status: Value) -> api::PodStatus {
    serde_json::from_value(status).unwrap()
}

fn reported(status: &api::PodStatus, last: bool) -> ReportedStatus<'_> {
    ReportedStatus { status, last, generation: None, host_ips: &[], now: at(1000) }
}

fn changes(pod: &api::Pod, said: Value, last: bool) -> Value {
    let said = status(said);
    let patch = patch(pod, &reported(&said, last));
    patch.map_or(Value::Null, |mut patch| patch["status"].take())
}

fn running(name: &str) -> Value {
    json!({ "name": name, "ready": true, "restartCount": 0, "image": "i", "imageID": "",
        "state": { "running": { "startedAt": "1970-01-01T00:00:05Z" } } })
}

fn exited(name: &str, code: i32) -> Value {
    json!({ "name": name, "ready": false, "restartCount": 0, "image": "i", "imageID": "",
        "state": { "terminated": { "exitCode": code, "reason": "Error" } } })
}

#[test]
fn the_uid_is_the_precondition_and_the_same_again_is_no_patch() {
    let pod = in_api(json!({ "phase": "Pending" }));
    let said = status(json!({ "phase": "Running", "containerStatuses": [running("main")] }));
    let patch_1 = patch(&pod, &reported(&said, false)).unwrap();
    assert_eq!(patch_1["metadata"], json!({ "uid": "u-1" }));
    assert_eq!(patch_1["status"]["phase"], "Running");
    let after = apply(&pod, &patch_1).unwrap();
    assert_eq!(patch(&after, &reported(&said, false)), None);
}

#[test]
fn a_pod_without_a_uid_is_never_written_to() {
    let mut pod = in_api(json!({ "phase": "Pending" }));
    pod.metadata.uid = None;
    let said = status(json!({ "phase": "Running" }));
    assert_eq!(patch(&pod, &reported(&said, false)), None);
}

#[test]
fn the_phase_only_goes_up() {
    let cases = [
        ("Pending", "Running", "Running"),
        ("Running", "Pending", "Running"),
        ("Running", "Failed", "Failed"),
        ("Pending", "Succeeded", "Succeeded"),
        ("Failed", "Running", "Failed"),
        ("Succeeded", "Pending", "Succeeded"),
        ("Failed", "Succeeded", "Failed"),
        ("Unknown", "Running", "Running"),
    ];
    for (had, said, then) in cases {
        let pod = in_api(json!({ "phase": had }));
        let changes = changes(&pod, json!({ "phase": said }), false);
        let now = changes.get("phase").and_then(Value::as_str).unwrap_or(had);
        assert_eq!(now, then, "{had} then {said}");
    }
}

#[test]
fn a_terminal_phase_is_held_back_while_a_container_runs() {
    let pod = in_api(json!({ "phase": "Running" }));
    let said = |container: Value| {
        json!({
            "phase": "Failed", "reason": "Terminated", "message": "the node shuts down",
            "containerStatuses": [container],
            "conditions": [{ "type": "DisruptionTarget", "status": "True",
                "reason": "TerminationByKubelet", "lastTransitionTime": "1970-01-01T00:00:09Z" }],
        })
    };
    let early = changes(&pod, said(running("main")), false);
    assert_eq!(early, json!({ "containerStatuses": [running("main")] }).pruned());
    let late = changes(&pod, said(exited("main", 0)), false);
    assert_eq!(late["phase"], "Failed");
    assert_eq!(late["reason"], "Terminated");
    assert_eq!(late["conditions"][0]["type"], "DisruptionTarget");
}

#[test]
fn the_final_status_ends_containers_whose_end_was_not_observed() {
    let pod = in_api(json!({ "phase": "Running", "containerStatuses": [running("main")] }));
    let changes = changes(&pod, json!({ "phase": "Failed", "reason": "Terminated" }), true);
    let state = &changes["containerStatuses"][0]["state"];
    assert_eq!(state["terminated"]["exitCode"], 137);
    assert_eq!(state["terminated"]["reason"], "ContainerStatusUnknown");
    assert_eq!(state.get("running"), None);
}

/// As the kubelet's status manager finishes the status of a pod that has terminated.
#[test]
fn the_containers_of_a_terminated_pod_that_never_started_wait_for_no_one() {
    let waiting = |name: &str| {
        json!({ "name": name, "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": { "waiting": { "reason": "ContainerCreating" } } })
    };
    let (unknown, waits) = ("ContainerStatusUnknown", "waiting");
    for (init, regular, expected) in [
        (vec![], vec![waiting("a")], vec![unknown]),
        (vec![], vec![exited("a", 1), waiting("b")], vec!["Error", unknown]),
        (vec![waiting("i")], vec![waiting("a")], vec![unknown, waits]),
        (vec![exited("i", 1), waiting("j")], vec![waiting("a")], vec!["Error", waits, waits]),
        (vec![waiting("i"), exited("j", 1)], vec![], vec![unknown, "Error"]),
        (vec![exited("i", 0)], vec![waiting("a")], vec!["Error", unknown]),
    ] {
        let states = |phase: &str| {
            let changes = changes(
                &in_api(json!({ "phase": "Pending" })),
                json!({ "phase": phase, "initContainerStatuses": init,
                    "containerStatuses": regular }),
                true,
            );
            let lists = ["initContainerStatuses", "containerStatuses"];
            let all = lists.into_iter().filter_map(|list| changes[list].as_array().cloned());
            let reasons = all.flatten().map(|one| {
                one["state"]["terminated"]["reason"].as_str().unwrap_or("waiting").to_owned()
            });
            reasons.collect::<Vec<_>>()
        };
        assert_eq!(states("Failed"), expected, "{init:?} {regular:?}");
        assert!(!states("Pending").contains(&unknown.to_owned()), "{init:?} {regular:?}");
    }
}

#[test]
fn a_terminal_phase_never_comes_with_ready() {
    let ready = json!([
        { "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:03Z" },
        { "type": "ContainersReady", "status": "True", "lastTransitionTime": "1970-01-01T00:00:03Z" },
    ]);
    // A rejected pod, whose status has no conditions at all.
    let pod = in_api(json!({ "phase": "Running", "conditions": ready }));
    let refused = changes(&pod, json!({ "phase": "Failed", "reason": "NodeShutdown" }), true);
    for condition in refused["conditions"].as_array().unwrap() {
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["reason"], "PodFailed");
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:16:40Z");
    }
    // Others failed it while its containers still run.
    let pod = in_api(json!({ "phase": "Failed", "conditions": ready }));
    let said =
        json!({ "phase": "Running", "conditions": ready, "containerStatuses": [running("main")] });
    let changes = changes(&pod, said, false);
    assert_eq!(changes["conditions"][0]["status"], "False");
    assert_eq!(changes.get("containerStatuses"), None, "no container is shown to run then");
}

#[test]
fn what_terminal_containers_lack_may_still_be_completed() {
    let pod = in_api(json!({ "phase": "Failed", "reason": "NodeLost" }));
    let said = json!({ "phase": "Failed", "reason": "Terminated",
        "containerStatuses": [exited("main", 137)] });
    let changes = changes(&pod, said, true);
    assert_eq!(changes["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    assert_eq!(changes.get("reason"), None, "the first reason of a terminal phase stays");
}

/// An API server refuses a whole status in which another container runs again.
#[test]
fn a_container_that_has_ended_runs_again_only_if_it_may() {
    let table = [
        ("containers", "Always", None, 0, true),
        ("containers", "OnFailure", None, 1, true),
        ("containers", "OnFailure", None, 0, false),
        ("containers", "Never", None, 1, false),
        ("containers", "Never", Some("OnFailure"), 1, true),
        ("initContainers", "Always", None, 0, true),
        ("initContainers", "OnFailure", None, 1, true),
        ("initContainers", "OnFailure", None, 0, false),
        ("initContainers", "Never", None, 0, false),
        ("initContainers", "Never", Some("Always"), 0, true),
        ("ephemeralContainers", "Always", None, 1, false),
    ];
    for (list, policy, own, code, may) in table {
        let mut spec = json!({ "containers": [{ "name": "main" }], "restartPolicy": policy });
        spec[list] = json!([{ "name": "one", "restartPolicy": own }]);
        let statuses = format!("{}Statuses", list.trim_end_matches('s'));
        let had = pod(spec, json!({ "phase": "Running", (&*statuses): [exited("one", code)] }));
        let said = json!({ "podIP": "10.1.1.2", (&*statuses): [running("one")] });
        let changes = changes(&had, said, false);
        assert_eq!(changes["podIP"], "10.1.1.2", "the rest arrives");
        let runs = changes[&*statuses][0]["state"]["running"].is_object();
        assert_eq!(runs, may, "{list}, {policy}, {own:?}, exit code {code}");
    }
}

#[test]
fn conditions_of_others_and_the_time_of_the_transition_survive() {
    let others = json!([
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z" },
        { "type": "example.com/gate", "status": "False" },
        { "type": "Initialized", "status": "True", "lastTransitionTime": "1970-01-01T00:00:02Z" },
    ]);
    let pod = in_api(json!({ "phase": "Running", "conditions": others }));
    let said = json!({ "phase": "Running", "conditions": [
        { "type": "PodScheduled", "status": "False" },
        { "type": "example.com/gate", "status": "True" },
        { "type": "Initialized", "status": "True", "reason": "x",
          "lastTransitionTime": "1970-01-01T00:00:08Z" },
    ]});
    let changes = changes(&pod, said, false);
    assert_eq!(changes, json!({ "conditions": [{ "type": "Initialized", "reason": "x" }] }));
}

#[test]
fn the_first_disruption_of_a_pod_keeps_the_condition() {
    let theirs = json!([{ "type": "DisruptionTarget", "status": "True",
        "reason": "PreemptionByScheduler" }]);
    let pod = in_api(json!({ "phase": "Running", "conditions": theirs }));
    let said = json!({ "phase": "Failed", "conditions": [{ "type": "DisruptionTarget",
        "status": "True", "reason": "TerminationByKubelet" }] });
    let changes = changes(&pod, said, true);
    assert_eq!(changes.get("conditions"), None);
}

#[test]
fn a_pod_that_no_scheduler_bound_is_said_to_be_scheduled() {
    let said = json!({ "phase": "Pending",
        "conditions": [{ "type": "PodScheduled", "status": "True" }] });
    let pod = in_api(json!({ "phase": "Pending" }));
    let told = changes(&pod, said, false);
    assert_eq!(told["conditions"][0]["type"], "PodScheduled");
}

#[test]
fn a_closed_readiness_gate_keeps_the_pod_unready() {
    let spec = json!({ "containers": [{ "name": "main" }],
        "readinessGates": [{ "conditionType": "a" }, { "conditionType": "b" }] });
    let with = |conditions: Value| {
        pod(spec.clone(), json!({ "phase": "Running", "conditions": conditions }))
    };
    let said = json!({ "phase": "Running", "conditions": [
        { "type": "Ready", "status": "True" }, { "type": "ContainersReady", "status": "True" }] });
    let closed = changes(&with(json!([{ "type": "a", "status": "False" }])), said.clone(), false);
    assert_eq!(closed["conditions"][0]["status"], "False");
    assert_eq!(
        closed["conditions"][0]["message"],
        "the status of pod readiness gate \"a\" is not \"True\", but False, corresponding condition \
         of pod readiness gate \"b\" does not exist."
    );
    assert_eq!(closed["conditions"][1]["status"], "True", "the containers are ready all the same");
    let open = json!([{ "type": "a", "status": "True" }, { "type": "b", "status": "True" }]);
    assert_eq!(changes(&with(open), said, false)["conditions"][0]["status"], "True");
}

#[test]
fn addresses_are_as_the_kubelet_writes_them() {
    let hosts = ["10.0.0.1".to_owned(), "fd00::1".to_owned()];
    let said = status(
        json!({ "phase": "Running", "startTime": "1970-01-01T00:00:05Z", "podIP": "10.1.1.2" }),
    );
    let reported = ReportedStatus { host_ips: &hosts, ..reported(&said, false) };
    let old = in_api(
        json!({ "phase": "Pending", "podIP": "10.9.9.9", "podIPs": [{ "ip": "10.9.9.9" }] }),
    );
    let first = patch(&old, &reported).unwrap();
    assert_eq!(first["status"]["hostIP"], "10.0.0.1");
    assert_eq!(first["status"]["hostIPs"], json!([{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }]));
    assert_eq!(first["status"]["podIPs"], json!([{ "$patch": "replace" }, { "ip": "10.1.1.2" }]));
    assert_eq!(patch(&apply(&old, &first).unwrap(), &reported), None);
    let on_host = pod(json!({ "containers": [], "hostNetwork": true }), json!({}));
    let said = status(json!({ "phase": "Running", "startTime": "1970-01-01T00:00:05Z" }));
    let patch = patch(&on_host, &ReportedStatus { status: &said, ..reported }).unwrap();
    assert_eq!(patch["status"]["podIPs"], json!([{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }]));
}

#[test]
fn a_pod_that_has_ended_keeps_its_addresses_and_its_start() {
    let pod =
        in_api(json!({ "phase": "Running", "podIP": "10.1.1.2", "podIPs": [{ "ip": "10.1.1.2" }],
        "startTime": "1970-01-01T00:00:05Z", "qosClass": "Burstable" }));
    let said =
        json!({ "phase": "Failed", "startTime": "1970-01-01T00:10:00Z", "qosClass": "BestEffort" });
    assert_eq!(changes(&pod, said, true), json!({ "phase": "Failed" }));
}

#[test]
fn the_generation_is_written_where_the_api_counts_and_never_goes_back() {
    let said = status(json!({ "phase": "Running" }));
    let generation = |pod: &api::Pod, generation: i64| {
        let reported = ReportedStatus { generation: Some(generation), ..reported(&said, false) };
        patch(pod, &reported).map(|patch| patch["status"]["observedGeneration"].clone())
    };
    let pod = in_api(json!({ "phase": "Running", "observedGeneration": 2 }));
    assert_eq!(generation(&pod, 3), Some(json!(3)));
    assert_eq!(generation(&pod, 9), Some(json!(4)), "not more than there are");
    assert_eq!(generation(&pod, 1), None);
    let mut old = pod;
    old.metadata.generation = None;
    assert_eq!(generation(&old, 3), None);
}

#[test]
fn a_fraction_of_a_second_is_no_change() {
    let pod = in_api(json!({ "phase": "Running", "startTime": "1970-01-01T00:00:05Z",
        "containerStatuses": [running("main")] }));
    let mut container = running("main");
    container["state"]["running"]["startedAt"] = json!("1970-01-01T00:00:05.25Z");
    let said = json!({ "phase": "Running", "containerStatuses": [container] });
    assert_eq!(changes(&pod, said, false), Value::Null);
}

#[test]
fn a_state_of_which_the_server_says_nothing_is_no_change_and_an_empty_running_is_one() {
    let mut there = running("main");
    there["lastState"] = json!({});
    let pod = in_api(json!({ "phase": "Running", "containerStatuses": [there] }));
    let same = json!({ "phase": "Running", "containerStatuses": [running("main")] });
    assert_eq!(changes(&pod, same, false), Value::Null);
    let mut other = running("main");
    other["state"] = json!({ "running": {} });
    let said = json!({ "phase": "Running", "containerStatuses": [other] });
    let news = changes(&pod, said, false);
    assert_eq!(news["containerStatuses"][0]["state"], json!({ "running": {} }));
}

trait Pruned {
    fn pruned(self) -> Self;
}

impl Pruned for Value {
    /// The serialized form, without empty fields.
    fn pruned(mut self) -> Self {
        super::difference::drop_empty_in(&mut self);
        self
    }
}
