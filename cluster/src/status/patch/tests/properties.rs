//! Properties that hold whatever the API has and whatever the node reports.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use winddown_shared::status::PodPhase;

use super::{apply, at, in_api};
use crate::status::patch::{ReportedStatus, containers, patch};

fn condition() -> impl Strategy<Value = api::PodCondition> {
    let types = [
        "Ready",
        "ContainersReady",
        "Initialized",
        "PodReadyToStartContainers",
        "DisruptionTarget",
        "PodScheduled",
        "example.com/gate",
    ];
    let reasons = ["", "TerminationByKubelet", "Other"];
    (select(types.to_vec()), any::<bool>(), select(reasons.to_vec()), of(0_i64..100)).prop_map(
        |(type_, holds, reason, time)| api::PodCondition {
            type_: type_.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            last_transition_time: time.map(|s| Time(at(s))),
            ..api::PodCondition::default()
        },
    )
}

fn conditions() -> impl Strategy<Value = Vec<api::PodCondition>> {
    vec(condition(), 0..6).prop_map(|mut list| {
        list.sort_by(|a, b| a.type_.cmp(&b.type_));
        list.dedup_by(|a, b| a.type_ == b.type_);
        list
    })
}

fn container() -> impl Strategy<Value = api::ContainerStatus> {
    (select(&["main", "side", "init"][..]), 0..3, any::<bool>()).prop_map(|(name, state, ready)| {
        let none = api::ContainerState::default();
        let state = match state {
            0 => {
                api::ContainerState { waiting: Some(api::ContainerStateWaiting::default()), ..none }
            }
            1 => {
                api::ContainerState { running: Some(api::ContainerStateRunning::default()), ..none }
            }
            _ => api::ContainerState {
                terminated: Some(api::ContainerStateTerminated::default()),
                ..none
            },
        };
        api::ContainerStatus {
            name: name.to_owned(),
            ready,
            state: Some(state),
            ..api::ContainerStatus::default()
        }
    })
}

fn list_of_containers() -> impl Strategy<Value = Option<Vec<api::ContainerStatus>>> {
    of(vec(container(), 0..3).prop_map(|mut list| {
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list.dedup_by(|a, b| a.name == b.name);
        list
    }))
}

fn status() -> impl Strategy<Value = api::PodStatus> {
    let phases = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
    let texts = of(select(&["", "a", "b"][..]).prop_map(str::to_owned));
    (
        of(select(phases.to_vec())),
        texts,
        of(conditions()),
        list_of_containers(),
        list_of_containers(),
        of(select(&["10.0.0.1", "10.0.0.2"][..])),
        of(0_i64..100),
    )
        .prop_map(|(phase, text, conditions, init, regular, ip, start)| api::PodStatus {
            phase: phase.map(str::to_owned),
            reason: text.clone(),
            message: text,
            conditions,
            init_container_statuses: init,
            container_statuses: regular,
            pod_ip: ip.map(str::to_owned),
            pod_ips: ip.map(|ip| vec![api::PodIP { ip: ip.to_owned() }]),
            start_time: start.map(|s| Time(at(s))),
            ..api::PodStatus::default()
        })
}

fn rank(status: &api::PodStatus) -> u8 {
    match PodPhase::of(status) {
        None => 0,
        Some(PodPhase::Pending) => 1,
        Some(PodPhase::Running) => 2,
        Some(PodPhase::Succeeded | PodPhase::Failed) => 3,
    }
}

fn foreign(status: &api::PodStatus) -> Vec<&api::PodCondition> {
    let all = status.conditions.iter().flatten();
    all.filter(|c| matches!(c.type_.as_str(), "PodScheduled" | "example.com/gate")).collect()
}

fn is_true(status: &api::PodStatus, type_: &str) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == type_ && c.status == "True")
}

proptest! {
    #[test]
    fn a_patch_keeps_what_is_promised(
        had in status(),
        said in status(),
        last in any::<bool>(),
        policy in select(&["Always", "OnFailure", "Never"][..]),
        on_host in any::<bool>(),
        generation in of(0_i64..8),
    ) {
        let mut pod = in_api(serde_json::to_value(&had).unwrap());
        if let Some(spec) = &mut pod.spec {
            spec.restart_policy = Some(policy.to_owned());
            spec.host_network = Some(on_host);
        }
        let hosts = ["192.0.2.1".to_owned()];
        let reported =
            ReportedStatus { status: &said, last, generation, host_ips: &hosts, now: at(1000) };
        let after = match patch(&pod, &reported) {
            Some(patch) => apply(&pod, &patch).unwrap(),
            None => pod.clone(),
        };
        let now = after.status.clone().unwrap_or_default();
        prop_assert_eq!(patch(&after, &ReportedStatus { now: at(2000), ..reported }), None, "once is enough");
        prop_assert!(rank(&now) >= rank(&had), "the phase is never lowered");
        if rank(&had) == 3 {
            prop_assert_eq!(&now.phase, &had.phase, "a terminal phase stays");
        }
        let (kept, now_foreign) = (foreign(&had), foreign(&now));
        prop_assert!(kept.iter().all(|c| now_foreign.contains(c)), "conditions of others survive");
        let new = now_foreign.len() - kept.len();
        prop_assert!(new <= 1 && now_foreign.iter().filter(|c| c.type_ != "PodScheduled").count()
            == kept.iter().filter(|c| c.type_ != "PodScheduled").count());
        if rank(&now) == 3 {
            prop_assert!(!is_true(&now, "Ready") && !is_true(&now, "ContainersReady"));
            if rank(&had) < 3 {
                prop_assert!(!containers::any_running(&now), "nothing runs in a pod that we ended");
            }
        }
        if let (Some(first), Some(ips)) = (&now.pod_ip, &now.pod_ips) {
            prop_assert_eq!(&ips[0].ip, first);
        }
    }
}
