//! The conditions that the node owns.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use winddown_shared::status::PodPhase;

use super::ReportedStatus;

const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
const OWNED: [&str; 4] = [READY, CONTAINERS_READY, "Initialized", "PodReadyToStartContainers"];

/// The condition of a pod that is terminated for a reason outside of it (KEP-3329).
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Its reason when a node agent terminates the pod.
pub(crate) const BY_NODE: &str = "TerminationByKubelet";

/// The input of a merge.
pub(super) struct News<'a> {
    pub(super) pod: &'a Pod,
    pub(super) reported: &'a ReportedStatus<'a>,
    /// Whether the terminal phase is held back.
    pub(super) held_back: bool,
    /// The terminal phase that the API has, or will have.
    pub(super) ended: Option<PodPhase>,
    pub(super) generation: Option<i64>,
}

/// Merges the node's conditions into `all`; those of others stay as they are.
pub(super) fn merge(all: &mut Option<Vec<PodCondition>>, news: &News<'_>) {
    let mut list = all.take().unwrap_or_default();
    for said in news.reported.status.conditions.iter().flatten() {
        let ours = match said.type_.as_str() {
            DISRUPTION_TARGET => !news.held_back && is_our_disruption(said, &list),
            // If the scheduler has set it, it stays.
            SCHEDULED => said.status == "True" && !list.iter().any(|c| c.type_ == SCHEDULED),
            type_ => OWNED.contains(&type_),
        };
        if !ours {
            continue;
        }
        let mut said = said.clone();
        if let Some((reason, message)) = unready(&said, news, &list) {
            "False".clone_into(&mut said.status);
            said.reason = Some(reason.to_owned());
            said.message = Some(message).filter(|text| !text.is_empty());
        }
        upsert(&mut list, said, news);
    }
    // Also if no readiness was reported: for a pod that was rejected, or that others failed.
    let still_ready: Vec<PodCondition> = list
        .iter()
        .filter(|c| news.ended.is_some() && is_readiness(c) && c.status == "True")
        .cloned()
        .collect();
    for mut said in still_ready {
        "False".clone_into(&mut said.status);
        said.reason = news.ended.map(|phase| reason_of(phase).to_owned());
        said.message = None;
        said.last_transition_time = None;
        upsert(&mut list, said, news);
    }
    *all = Some(list).filter(|list| !list.is_empty());
}

/// Whether this is the node's disruption. The first disruption determines the reason.
fn is_our_disruption(said: &PodCondition, in_api: &[PodCondition]) -> bool {
    let first = in_api.iter().find(|c| c.type_ == DISRUPTION_TARGET && c.status == "True");
    said.reason.as_deref() == Some(BY_NODE)
        && first.is_none_or(|c| c.reason.as_deref() == Some(BY_NODE))
}

/// Why a condition that says ready must not; `None` if it may.
fn unready(
    said: &PodCondition,
    news: &News<'_>,
    in_api: &[PodCondition],
) -> Option<(&'static str, String)> {
    if said.status != "True" || !is_readiness(said) {
        return None;
    }
    if let Some(phase) = news.ended {
        return Some((reason_of(phase), String::new()));
    }
    let gates = news.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let gates = gates.filter(|_| said.type_ == READY).into_iter().flatten();
    let closed: Vec<String> =
        gates.filter_map(|g| closed_gate(&g.condition_type, in_api)).collect();
    if closed.is_empty() {
        return None;
    }
    Some(("ReadinessGatesNotReady", closed.join(", ")))
}

/// The kubelet's message about a readiness gate that is not open.
fn closed_gate(gate: &str, in_api: &[PodCondition]) -> Option<String> {
    match in_api.iter().find(|c| c.type_ == gate) {
        None => {
            Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist."))
        }
        Some(c) if c.status != "True" => Some(format!(
            "the status of pod readiness gate {gate:?} is not \"True\", but {}",
            c.status
        )),
        Some(_) => None,
    }
}

/// Inserts or replaces a condition. Its transition time is that of the status, not of the reason.
fn upsert(list: &mut Vec<PodCondition>, mut said: PodCondition, news: &News<'_>) {
    said.reason = said.reason.filter(|text| !text.is_empty());
    said.message = said.message.filter(|text| !text.is_empty());
    let now = || Some(Time(news.reported.now));
    match list.iter_mut().find(|c| c.type_ == said.type_) {
        Some(had) => {
            let time = had.last_transition_time.clone().filter(|_| had.status == said.status);
            said.last_transition_time = time.or(said.last_transition_time).or_else(now);
            said.last_probe_time = had.last_probe_time.take();
            said.observed_generation = news.generation.or(had.observed_generation);
            *had = said;
        }
        None => {
            said.last_transition_time = said.last_transition_time.or_else(now);
            said.observed_generation = news.generation;
            list.push(said);
        }
    }
}

fn is_readiness(condition: &PodCondition) -> bool {
    matches!(condition.type_.as_str(), READY | CONTAINERS_READY)
}

fn reason_of(phase: PodPhase) -> &'static str {
    if phase == PodPhase::Succeeded { "PodCompleted" } else { "PodFailed" }
}
