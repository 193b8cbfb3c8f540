//! Preemption for critical pods, as an admission failure handler.

use std::fmt::Write;
use std::sync::Arc;

use winddown_shared::{
    AdmissionFailureHandler, FitFailures, KillReason, KillRequest, NodeView, Pod,
    PreemptionOutcome, Quantity, QuantityFormat, ResourceName, StatusOverride, Victim, VictimPlan,
};

use crate::select::select_for_admission;
use crate::{Requirement, Strategy};

#[cfg(test)]
mod tests;

/// `status.reason` of a victim.
const REASON: &str = "Preempting";
/// `status.message` of a victim.
const MESSAGE: &str = "Preempted in order to admit critical pod";
/// The message of its `DisruptionTarget` condition.
const DISRUPTION_MESSAGE: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// The most pods that a message names of each list.
const MAX_NAMED_PODS: usize = 3;

/// Preempts pods for critical pods that lack nothing but resources.
///
/// This only decides, as [`AdmissionFailureHandler`] requires. Each victim is stopped with its own grace
/// period, and gets the status that the kubelet would set.
///
/// ```
/// use std::sync::Arc;
///
/// use winddown_preemption::{PreemptionHandler, Strategy};
/// use winddown_shared::{Admission, NodeFit, NodeView};
///
/// let room = Arc::new(PreemptionHandler::new(Strategy::Minimal));
/// let fit = NodeFit::new(Arc::new(NodeView::default())).with_preemption(room);
/// let admission = Admission::default().then(fit);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PreemptionHandler {
    strategy: Strategy,
}

impl PreemptionHandler {
    /// Creates a handler that chooses victims by `strategy`.
    #[must_use]
    pub const fn new(strategy: Strategy) -> Self {
        Self { strategy }
    }
}

impl AdmissionFailureHandler for PreemptionHandler {
    fn handle_admission_failure(
        &self,
        pod: &Pod,
        failures: FitFailures,
        _node: &NodeView,
        others: &[Pod],
    ) -> PreemptionOutcome {
        let requirements = match failures.into_requirements(pod) {
            Ok(requirements) => requirements,
            Err(failures) => return PreemptionOutcome::Rejected(failures),
        };
        let (_, chosen) = select_for_admission(pod, others, &requirements, self.strategy);
        let victims = match chosen {
            Ok(selection) => selection.victims,
            Err(error) => {
                let text = format!("preemption: error finding a set of pods to preempt: {error}");
                return PreemptionOutcome::Failed(text);
            }
        };
        if victims.is_empty() {
            return PreemptionOutcome::Fits;
        }
        let message = message(pod, others, &victims, &requirements);
        let signal = requirements.into_iter().next().map(|(resource, _)| resource);
        let victims = victims.into_iter().map(|place| victim(&others[place])).collect();
        PreemptionOutcome::Preempt(VictimPlan::new(victims, message, signal))
    }
}

fn victim(pod: &Pod) -> Victim {
    let request = KillRequest::new(KillReason::Preemption).with_evict(true).with_status(Some(
        StatusOverride::failed(REASON, MESSAGE, Some(DISRUPTION_MESSAGE.into())),
    ));
    Victim::new(pod.clone(), request)
}

/// Describes the shortage, the victims and the pods that are kept.
fn message(pod: &Pod, others: &[Pod], victims: &[usize], requirements: &[Requirement]) -> Arc<str> {
    let mut is_victim = vec![false; others.len()];
    victims.iter().for_each(|place| is_victim[*place] = true);
    let (mut passed_over, mut protected) = (Vec::new(), 0);
    for (other, is_victim) in others.iter().zip(is_victim) {
        match pod.may_preempt(other) {
            true if !is_victim => passed_over.push(other),
            true => {}
            false => protected += 1,
        }
    }
    let mut text = "waiting for ".to_owned();
    // Writing into a string does not fail.
    let _ = write!(text, "{} to free ", names(victims.iter().map(|place| &others[*place])));
    for (at, (resource, amount)) in requirements.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{resource} {}", amount_text(resource, *amount));
    }
    if !passed_over.is_empty() {
        let _ = write!(text, "; passed over: {}", names(passed_over.into_iter()));
    }
    if protected > 0 {
        let _ = write!(text, "; not preemptable: {protected}");
    }
    text.into()
}

/// Names the first few pods and counts the rest.
fn names<'a>(pods: impl ExactSizeIterator<Item = &'a Pod>) -> String {
    let more = pods.len().saturating_sub(MAX_NAMED_PODS);
    let named: Vec<String> =
        pods.take(MAX_NAMED_PODS).map(|pod| pod.pod_ref().to_string()).collect();
    match more {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Formats an amount for people: `1500m`, `2Gi`.
fn amount_text(resource: &ResourceName, amount: i64) -> String {
    match resource {
        ResourceName::Cpu => {
            Quantity::from_nanos(i128::from(amount) * 1_000_000, QuantityFormat::DecimalSi)
        }
        ResourceName::Memory | ResourceName::EphemeralStorage => {
            Quantity::new(amount, QuantityFormat::BinarySi)
        }
        ResourceName::Other(name) if name.starts_with("hugepages-") => {
            Quantity::new(amount, QuantityFormat::BinarySi)
        }
        ResourceName::Pods | ResourceName::Other(_) => {
            Quantity::new(amount, QuantityFormat::DecimalSi)
        }
    }
    .to_string()
}
