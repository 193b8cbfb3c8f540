//! A pod's status as a pure function of what is known about it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::phase::{self, PodPhase};
use super::{conditions, containers};
use crate::{ContainerKind, Pod, PodRuntimeStatus, StatusOverride, WallTime};

/// The input for a pod's status.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The current state of its containers.
    pub runtime: &'a PodRuntimeStatus,
    /// The previous status: its transition times and conditions of others stay, and a terminal phase never changes.
    pub previous: Option<&'a api::PodStatus>,
    /// Whether the pod was stopped for good: nothing runs and nothing will.
    pub stopped: bool,
    /// The status given by the requester of the termination. It takes precedence over the exit
    /// codes: a pod that the node terminated did not succeed (k8s#141483).
    pub ended_by_agent: Option<&'a StatusOverride>,
    /// The node's addresses, the primary one first; empty while they are not known.
    pub host_ips: &'a [IpAddr],
    /// Wall time, for timestamps.
    pub now: WallTime,
}

/// Computes the status of a pod.
pub fn generate(input: StatusInput<'_>) -> api::PodStatus {
    let said = input.previous.and_then(PodPhase::of);
    let finished_before = said.filter(|p| p.is_terminal());
    let words = match finished_before {
        None if input.stopped => input.ended_by_agent,
        _ => None,
    };
    // A pod that stays has not failed: it starts again with the node.
    let stays = words.filter(|words| words.restarts_on_node);
    let words = words.filter(|words| !words.restarts_on_node);
    let phase = finished_before.unwrap_or_else(|| {
        if words.is_some() {
            PodPhase::Failed
        } else if stays.is_none() && input.stopped && !input.pod.is_static() {
            phase::stopped(input.pod, input.runtime)
        } else {
            phase::observed(input.pod, input.runtime)
        }
    });
    let kept = input.previous.filter(|_| said == Some(phase) && words.is_none());
    let listed = |kinds: &[ContainerKind]| containers::listed(&input.runtime.containers, kinds);
    let host_ips = host_ips(&input);
    let pod_ips = pod_ips(&input, &host_ips);
    let disruption = words.and_then(|w| w.disruption_message.as_deref());
    api::PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason: words.map(|w| w.reason.to_string()).or_else(|| kept?.reason.clone()),
        message: words.map(|w| w.message.to_string()).or_else(|| kept?.message.clone()),
        conditions: Some(conditions::compute(
            phase,
            input.runtime,
            disruption,
            stays.map(|words| (&*words.reason, &*words.message)),
            input.previous,
            input.now,
        )),
        qos_class: Some(input.pod.qos().as_str().to_owned()),
        start_time: input
            .previous
            .or(input.pod.status.as_ref())
            .and_then(|s| s.start_time.clone())
            .or_else(|| Some(Time(input.runtime.started_at.unwrap_or(input.now)))),
        host_ip: host_ips.first().cloned(),
        host_ips: list(host_ips, |ip| api::HostIP { ip }),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: list(pod_ips, |ip| api::PodIP { ip }),
        init_container_statuses: listed(&[ContainerKind::Init, ContainerKind::Sidecar]),
        container_statuses: listed(&[ContainerKind::Regular]),
        ephemeral_container_statuses: listed(&[ContainerKind::Ephemeral]),
        ..api::PodStatus::default()
    }
}

/// The node's addresses, or those of the previous status while they are not known.
fn host_ips(input: &StatusInput<'_>) -> Vec<String> {
    if !input.host_ips.is_empty() {
        return input.host_ips.iter().map(ToString::to_string).collect();
    }
    let said = input.previous.and_then(|status| status.host_ips.as_ref());
    said.into_iter().flatten().map(|said| said.ip.clone()).collect()
}

/// The pod's addresses: on the host's network those of the node. They are kept after the pod has stopped.
fn pod_ips(input: &StatusInput<'_>, host_ips: &[String]) -> Vec<String> {
    if !input.runtime.ips.is_empty() {
        return input.runtime.ips.clone();
    }
    let said = input.previous.and_then(|status| status.pod_ips.as_ref());
    let said: Vec<_> = said.into_iter().flatten().map(|said| said.ip.clone()).collect();
    if said.is_empty() && input.pod.is_on_host_network() { host_ips.to_vec() } else { said }
}

fn list<T>(all: Vec<String>, one: impl Fn(String) -> T) -> Option<Vec<T>> {
    (!all.is_empty()).then(|| all.into_iter().map(one).collect())
}
