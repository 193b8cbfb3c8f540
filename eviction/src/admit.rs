//! Which pods may start while the node is under pressure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use tokio::sync::watch;
use winddown_shared::{AdmitHandler, OtherPods, Pod, QosClass, Rejection};

use crate::conditions::Conditions;
use crate::message::{EVICTED, node_had_condition};
use crate::policy::Policy;

#[cfg(test)]
mod tests;

/// Rejects pods that would make a shortage worse: see [`admits`].
#[derive(Clone, Debug)]
pub struct PressureGate {
    conditions: watch::Receiver<Conditions>,
    policy: watch::Receiver<Arc<Policy>>,
}

impl PressureGate {
    /// A gate that uses the conditions and the policy at the time of each check.
    #[must_use]
    pub fn new(
        conditions: watch::Receiver<Conditions>,
        policy: watch::Receiver<Arc<Policy>>,
    ) -> Self {
        Self { conditions, policy }
    }
}

impl AdmitHandler for PressureGate {
    fn admit(&self, pod: &Pod, _: &OtherPods) -> Result<(), Rejection> {
        let conditions = *self.conditions.borrow();
        if admits(&self.policy.borrow(), conditions, pod) {
            return Ok(());
        }
        Err(Rejection::new(EVICTED, node_had_condition(conditions)).retryable(true))
    }
}

/// Whether a pod may start under these conditions.
///
/// Under a condition that has a [taint](winddown_shared::PressureCondition::tolerated), BestEffort pods may not, unless
/// they tolerate it; under any other, no pod may. Pods that are never evicted always may. The kubelet says so of critical
/// pods, because it never evicts those; a static pod that `policy` evicts would be evicted as soon as it runs.
#[must_use]
pub fn admits(policy: &Policy, conditions: Conditions, pod: &Pod) -> bool {
    if conditions.is_empty() || policy.exemption(pod).is_some() {
        return true;
    }
    let is_best_effort = pod.qos() == QosClass::BestEffort;
    conditions.iter().all(|condition| {
        condition.tolerated().is_some_and(|taint| !is_best_effort || tolerates(pod, taint))
    })
}

fn tolerates(pod: &Pod, taint: &str) -> bool {
    let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.any(|toleration| matches(toleration, taint))
}

/// Whether a toleration matches a taint without a value and with the effect `NoSchedule`, by Kubernetes' rules.
fn matches(toleration: &Toleration, taint: &str) -> bool {
    let text = |field: &Option<String>| field.as_deref().unwrap_or_default().to_owned();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let fits = (effect.is_empty() || effect == "NoSchedule") && (key.is_empty() || key == taint);
    fits && match text(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value).is_empty(),
        _ => false,
    }
}
