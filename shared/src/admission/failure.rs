//! The reasons why a pod does not fit, and the rejections that they lead to.

use std::borrow::Cow;

use super::Rejection;
use crate::{Pod, ResourceName};

/// One reason why a pod does not fit on the node. The text is that of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionFailure {
    /// The request exceeds what the other pods leave, or what the node has at all.
    #[error(
        "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, \
         capacity: {capacity}"
    )]
    InsufficientResource {
        /// The resource.
        resource: ResourceName,
        /// The pod's request: cpu in thousandths, `pods` always 1, everything else in base units.
        requested: i64,
        /// The requests of the other pods of the node, in the same unit.
        used: i64,
        /// The allocatable amount of the node, in the same unit.
        capacity: i64,
    },
    /// The pod may not run on this node.
    #[error("Predicate {name} failed: {description}")]
    PredicateFailure {
        /// `NodeAffinity`, `NodeName`, `NodePorts` or `TaintToleration`; becomes the reason of the rejection.
        name: Cow<'static, str>,
        /// The requirement that is not met.
        description: Cow<'static, str>,
    },
}

/// All reasons why a pod does not fit, in the order in which they are reported. Empty if it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitFailures(Vec<AdmissionFailure>);

// === impl AdmissionFailure ===

impl AdmissionFailure {
    /// The node's labels do not match the pod's selector or affinity.
    pub const NODE_AFFINITY: Self =
        Self::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    /// The pod names another node.
    pub const NODE_NAME: Self =
        Self::predicate("NodeName", "node(s) didn't match the requested node name");
    /// Another pod uses a host port that this one requests.
    pub const NODE_PORTS: Self =
        Self::predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    /// The node has a `NoExecute` taint that the pod does not tolerate.
    pub const TAINT_TOLERATION: Self =
        Self::predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");

    /// Creates a predicate failure.
    #[must_use]
    pub const fn predicate(name: &'static str, description: &'static str) -> Self {
        Self::PredicateFailure {
            name: Cow::Borrowed(name),
            description: Cow::Borrowed(description),
        }
    }

    /// `status.reason` of a pod rejected for this: `OutOfcpu`, `NodePorts`, …
    #[must_use]
    pub fn reason(&self) -> Cow<'_, str> {
        match self {
            Self::InsufficientResource { resource, .. } => Cow::Owned(format!("OutOf{resource}")),
            Self::PredicateFailure { name, .. } => Cow::Borrowed(name),
        }
    }

    /// The resource and the amount of it that other pods have to free, always more than 0; `None`
    /// for a failure that no amount fixes.
    #[must_use]
    pub fn shortfall(&self) -> Option<(&ResourceName, i64)> {
        let Self::InsufficientResource { resource, requested, used, capacity } = self else {
            return None;
        };
        let free = capacity.saturating_sub(*used);
        Some((resource, requested.saturating_sub(free)))
    }

    /// Whether the failure may pass without a change of the pod: other pods terminate, or the node's labels and taints
    /// change. A node that is too small, or has another name, does not pass.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::InsufficientResource { requested, capacity, .. } => requested <= capacity,
            Self::PredicateFailure { .. } => *self != Self::NODE_NAME,
        }
    }

    /// The rejection of a pod because of this failure.
    #[must_use]
    pub fn rejection(&self) -> Rejection {
        Rejection {
            reason: self.reason().into(),
            message: self.to_string().into(),
            retryable: self.is_passing(),
        }
    }
}

// === impl FitFailures ===

impl FitFailures {
    /// Whether the pod fits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The failures, in order.
    pub fn iter(&self) -> impl Iterator<Item = &AdmissionFailure> {
        self.0.iter()
    }

    /// The rejection of the pod, which reports the first failure. `None` if the pod fits.
    ///
    /// Retryable only if every failure may pass: a permanent one keeps the pod out, whichever is reported.
    #[must_use]
    pub fn rejection(&self) -> Option<Rejection> {
        let mut rejection = self.0.first()?.rejection();
        rejection.retryable = self.0.iter().all(AdmissionFailure::is_passing);
        Some(rejection)
    }

    /// The resources that other pods must free for this one: each once, in order, with an amount above 0.
    ///
    /// # Errors
    /// Preempting pods does not help: the failures to report. For a pod that is not critical these are all of them; for a
    /// critical one, those that are not about resources.
    pub fn into_requirements(self, pod: &Pod) -> Result<Vec<(ResourceName, i64)>, Self> {
        if !pod.is_critical() {
            return Err(self);
        }
        if self.0.iter().any(|failure| failure.shortfall().is_none()) {
            let others = self.0.into_iter().filter(|failure| failure.shortfall().is_none());
            return Err(others.collect());
        }
        let lacking = self.0.iter().filter_map(AdmissionFailure::shortfall);
        Ok(lacking.map(|(resource, amount)| (resource.clone(), amount)).collect())
    }
}

impl FromIterator<AdmissionFailure> for FitFailures {
    fn from_iter<I: IntoIterator<Item = AdmissionFailure>>(failures: I) -> Self {
        Self(failures.into_iter().collect())
    }
}
