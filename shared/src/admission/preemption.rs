//! The seam to preemption, for a pod that does not fit.

use std::sync::Arc;

use super::failure::FitFailures;
use super::node_view::NodeView;
use crate::{KillRequest, Pod, ResourceName};

/// Finds room for pods that do not fit, by ending others.
pub trait AdmissionFailureHandler: Send + Sync + 'static {
    /// What can be done for `pod`, which would fit but for `failures`, among `others`.
    ///
    /// Only decides; must answer at once and end nothing itself: the caller carries the plan out,
    /// and may not, when another check refuses the pod. Pods that are ending already are not among
    /// `others`, and the room that they will leave is not among the `failures`.
    ///
    /// [`FitFailures::into_requirements`] says whether ending pods can help, and what they have to
    /// give back.
    fn handle_admission_failure(
        &self,
        pod: &Pod,
        failures: FitFailures,
        node: &NodeView,
        others: &[Pod],
    ) -> Room;
}

/// What can be done about room.
#[derive(Clone, Debug)]
pub enum Room {
    /// There is room after all.
    Made,
    /// It comes when these pods have ended. The fit is asked again before the pod starts.
    Coming(VictimPlan),
    /// None: these are the failures to report.
    Refused(FitFailures),
    /// The attempt failed.
    Failed(String),
}

/// Whom to end so that another pod fits.
#[derive(Clone, Debug)]
pub struct VictimPlan {
    /// The pods, in the order in which they were chosen. They are ended side by side.
    pub victims: Vec<Victim>,
    /// What the pod waits for, for people; it becomes the message of its status.
    pub message: Arc<str>,
    /// The resource that counts as the cause in metrics: the first that is lacking.
    pub signal: Option<ResourceName>,
}

/// A pod that ends so that another fits.
#[derive(Clone, Debug)]
pub struct Victim {
    /// The pod.
    pub pod: Pod,
    /// How it is ended, and what its status says of it. The deadline is not used.
    pub request: KillRequest,
}
