//! The status that the API should have.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::status::PodPhase;

use super::{ReportedStatus, conditions, containers};

/// Returns `before` with what the node reports.
pub(super) fn merge(
    pod: &api::Pod,
    before: &api::PodStatus,
    reported: &ReportedStatus<'_>,
) -> api::PodStatus {
    let said = reported.status;
    let had = PodPhase::of(before);
    let wanted = PodPhase::of(said);
    let runs = containers::any_running(said);
    let ends = wanted.is_some_and(PodPhase::is_terminal);
    let over = reported.last || (ends && !runs);
    let held_back = ends && !over;

    let mut after = before.clone();
    let now_in = next_phase(had, wanted, held_back);
    after.phase = now_in.map(|p| p.as_str().to_owned()).or_else(|| before.phase.clone());
    give_reasons(&mut after, had, wanted, held_back, said);
    let generation = observed(pod, before, reported);
    if generation.is_some() {
        after.observed_generation = generation;
    }
    let ended = now_in.filter(|p| p.is_terminal());
    conditions::merge(
        &mut after.conditions,
        &conditions::News { pod, reported, held_back, ended, generation },
    );
    containers::merge(&mut after, pod, said, ended.is_some(), over);
    addresses(&mut after, pod, reported);
    after.start_time = before.start_time.clone().or_else(|| said.start_time.clone());
    after.qos_class = text(&before.qos_class).or_else(|| text(&said.qos_class));
    after
}

fn next_phase(
    had: Option<PodPhase>,
    wanted: Option<PodPhase>,
    held_back: bool,
) -> Option<PodPhase> {
    match (had, wanted) {
        (Some(had), _) if had.is_terminal() || held_back => Some(had),
        (Some(PodPhase::Running), Some(PodPhase::Pending)) => Some(PodPhase::Running),
        (None, _) if held_back => None,
        (had, wanted) => wanted.or(had),
    }
}

/// Sets reason and message. They belong to the phase: those of a terminal one stay, unless it has none.
fn give_reasons(
    after: &mut api::PodStatus,
    had: Option<PodPhase>,
    wanted: Option<PodPhase>,
    held_back: bool,
    said: &api::PodStatus,
) {
    if held_back || wanted.is_none() {
        return;
    }
    if had.is_some_and(PodPhase::is_terminal) {
        if had == wanted && text(&after.reason).is_none() && text(&after.message).is_none() {
            after.reason = text(&said.reason);
            after.message = text(&said.message);
        }
        return;
    }
    after.reason = text(&said.reason);
    after.message = text(&said.message);
}

/// The generation to write; `None` if the API does not count generations. It never decreases.
fn observed(pod: &api::Pod, before: &api::PodStatus, reported: &ReportedStatus<'_>) -> Option<i64> {
    let newest = pod.metadata.generation?;
    let said = reported.generation?.min(newest);
    Some(before.observed_generation.map_or(said, |had| had.max(said)))
}

/// Sets addresses as soon as they are known. A terminated pod keeps those that it had.
fn addresses(after: &mut api::PodStatus, pod: &api::Pod, reported: &ReportedStatus<'_>) {
    let said = reported.status;
    let begun = said.start_time.is_some();
    let hosts: Vec<String> = match (&said.host_ips, text(&said.host_ip)) {
        (Some(ips), _) if !ips.is_empty() => ips.iter().map(|ip| ip.ip.clone()).collect(),
        (_, Some(ip)) => vec![ip],
        _ if begun => reported.host_ips.to_vec(),
        _ => Vec::new(),
    };
    let mut own: Vec<String> = match (&said.pod_ips, text(&said.pod_ip)) {
        (Some(ips), _) if !ips.is_empty() => ips.iter().map(|ip| ip.ip.clone()).collect(),
        (_, Some(ip)) => vec![ip],
        _ => Vec::new(),
    };
    let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    if own.is_empty() && on_host && begun {
        own.clone_from(&hosts);
    }
    if let Some(first) = hosts.first() {
        after.host_ip = Some(first.clone());
        after.host_ips = Some(hosts.into_iter().map(|ip| api::HostIP { ip }).collect());
    }
    if let Some(first) = own.first() {
        after.pod_ip = Some(first.clone());
        after.pod_ips = Some(own.into_iter().map(|ip| api::PodIP { ip }).collect());
    }
}

fn text(value: &Option<String>) -> Option<String> {
    value.clone().filter(|text| !text.is_empty())
}
