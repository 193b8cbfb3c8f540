//! The interface to preemption, for a pod that does not fit.

use std::sync::Arc;

use super::failure::FitFailures;
use super::node_view::NodeView;
use crate::{KillRequest, Pod, ResourceName};

/// Finds room for pods that do not fit, by choosing others to preempt.
pub trait AdmissionFailureHandler: Send + Sync + 'static {
    /// Decides what can be done for `pod`, which would fit but for `failures`, among `others`.
    ///
    /// Must return at once and terminate nothing itself: the caller carries the plan out, or does
    /// not if another check refuses the pod. Pods that are already terminating are not in `others`,
    /// and the room that they will leave is not in `failures`.
    ///
    /// [`FitFailures::into_requirements`] returns whether preempting pods can help, and what they have to free.
    fn handle_admission_failure(
        &self,
        pod: &Pod,
        failures: FitFailures,
        node: &NodeView,
        others: &[Pod],
    ) -> PreemptionOutcome;
}

/// The result of a search for room.
#[derive(Clone, Debug)]
pub enum PreemptionOutcome {
    /// There is room after all.
    Fits,
    /// There will be room when these pods have terminated. The fit is checked again before the pod starts.
    Preempt(VictimPlan),
    /// There is no room: these are the failures to report.
    Rejected(FitFailures),
    /// The attempt failed.
    Failed(String),
}

/// The pods to preempt so that another pod fits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VictimPlan {
    /// The pods, in the order in which they were chosen. They are terminated in parallel.
    pub victims: Vec<Victim>,
    /// What the pod waits for, for people; becomes the message of its status.
    pub message: Arc<str>,
    /// The resource that counts as the cause in metrics: the first that is short.
    pub signal: Option<ResourceName>,
}

impl VictimPlan {
    /// These pods, the message of the pod that waits for them, and the resource that counts as the cause.
    pub fn new(
        victims: Vec<Victim>,
        message: impl Into<Arc<str>>,
        signal: Option<ResourceName>,
    ) -> Self {
        Self { victims, message: message.into(), signal }
    }
}

/// A pod to preempt so that another fits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Victim {
    /// The pod.
    pub pod: Pod,
    /// The request to terminate it, with its status. The deadline is not used.
    pub request: KillRequest,
}

impl Victim {
    /// The pod, and the request to terminate it.
    pub fn new(pod: Pod, request: KillRequest) -> Self {
        Self { pod, request }
    }
}
