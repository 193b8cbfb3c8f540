//! Which pods may start while the node is under pressure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use tokio::sync::watch;
use winddown_shared::{AdmitHandler, OtherPods, Pod, PressureCondition, QosClass, Rejection};

use crate::conditions::Conditions;
use crate::message::{EVICTED, node_had_condition};
use crate::policy::Policy;

#[cfg(test)]
mod tests;

const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

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
/// Under memory pressure alone, pods that request no memory may not, unless they tolerate it. Under disk or PID pressure,
/// no pod may. Pods that are never evicted always may. The kubelet says so of critical pods, because it never evicts
/// those; a static pod that `policy` evicts would be evicted as soon as it runs.
#[must_use]
pub fn admits(policy: &Policy, conditions: Conditions, pod: &Pod) -> bool {
    if conditions.is_empty() || policy.exemption(pod).is_some() {
        return true;
    }
    let only_memory = conditions == Conditions::from_iter([PressureCondition::Memory]);
    only_memory && (pod.qos() != QosClass::BestEffort || tolerates_memory_pressure(pod))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.into_iter().any(tolerates)
}

/// Whether a toleration matches the memory pressure taint (no value, effect `NoSchedule`), by Kubernetes' rules.
fn tolerates(toleration: &Toleration) -> bool {
    let text = |field: &Option<String>| field.as_deref().unwrap_or_default().to_owned();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let fits = (effect.is_empty() || effect == "NoSchedule")
        && (key.is_empty() || key == MEMORY_PRESSURE_TAINT);
    fits && match text(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value).is_empty(),
        _ => false,
    }
}
