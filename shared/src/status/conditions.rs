//! The conditions that the agent owns. Conditions of others are kept as they are.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::phase::{PodPhase, has_regular_started, is_init_done};
use crate::{ContainerKind, PodRuntimeStatus, WallTime};

/// The condition of a pod that is terminated by the node rather than by itself (KEP-3329).
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// All conditions of a pod: those of the agent recomputed, the others carried over from `previous`. `why_unready` is
/// the reason and message of an unready pod whose cause is not just its containers.
pub(super) fn compute(
    phase: PodPhase,
    status: &PodRuntimeStatus,
    disruption: Option<&str>,
    why_unready: Option<(&str, &str)>,
    previous: Option<&PodStatus>,
    now: WallTime,
) -> Vec<PodCondition> {
    let before = previous.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let (ready, why) = containers_ready(phase, status);
    let unready = why.as_ref().map(|(reason, message)| (*reason, message.as_str()));
    let unready = unready.map(|why| why_unready.unwrap_or(why));
    let begun = status.started_at.is_some() && !phase.is_terminal();
    let incomplete = status.containers.iter().filter(|c| !is_init_done(c));
    let incomplete: Vec<&str> = incomplete.map(|c| &*c.name).collect();
    let initialized =
        !status.containers.is_empty() && (incomplete.is_empty() || has_regular_started(status));
    let incomplete = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    let mut conditions = vec![
        condition("PodReadyToStartContainers", begun, None),
        condition(
            "Initialized",
            initialized || phase == PodPhase::Succeeded,
            match phase {
                PodPhase::Succeeded => Some(("PodCompleted", "")),
                _ if initialized || status.containers.is_empty() => None,
                _ => Some(("ContainersNotInitialized", &*incomplete)),
            },
        ),
        condition("Ready", ready, unready),
        condition("ContainersReady", ready, unready),
        condition("PodScheduled", true, None),
    ];
    if let Some(message) = disruption {
        conditions.push(condition(
            DISRUPTION_TARGET,
            true,
            Some(("TerminationByKubelet", message)),
        ));
    }
    for c in &mut conditions {
        let same = before.iter().find(|b| b.type_ == c.type_ && b.status == c.status);
        c.last_transition_time =
            same.and_then(|b| b.last_transition_time.clone()).or(Some(Time(now)));
    }
    let others = before.iter().filter(|b| !conditions.iter().any(|c| c.type_ == b.type_));
    let others: Vec<_> = others.cloned().collect();
    conditions.extend(others);
    conditions
}

/// Whether every regular container and sidecar is ready, and if not, why.
fn containers_ready(
    phase: PodPhase,
    status: &PodRuntimeStatus,
) -> (bool, Option<(&'static str, String)>) {
    match phase {
        PodPhase::Succeeded => return (false, Some(("PodCompleted", String::new()))),
        PodPhase::Failed => return (false, Some(("PodFailed", String::new()))),
        PodPhase::Pending | PodPhase::Running => {}
    }
    let unready: Vec<&str> = status
        .containers
        .iter()
        .filter(|c| matches!(c.kind, ContainerKind::Regular | ContainerKind::Sidecar) && !c.ready)
        .map(|c| &*c.name)
        .collect();
    if unready.is_empty() && !status.containers.is_empty() {
        return (true, None);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    (false, Some(("ContainersNotReady", message)))
}

fn condition(type_: &str, holds: bool, why: Option<(&str, &str)>) -> PodCondition {
    let text = |t: &str| if t.is_empty() { None } else { Some(t.to_owned()) };
    PodCondition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: why.and_then(|(reason, _)| text(reason)),
        message: why.and_then(|(_, message)| text(message)),
        ..PodCondition::default()
    }
}
